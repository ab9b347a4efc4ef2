"""Ed25519 keys of a running ssh-agent: which there are, and signatures made with one.

The agent's protocol (draft-ietf-sshm-ssh-agent) as far as needed: two questions and their answers. Keys of other kinds
are passed over, and a signature that does not verify is refused, since an agent is another program.
"""

import hashlib
import socket
import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nacl import bindings
from nacl.exceptions import CryptoError

from registry.errors import TelaError
from registry.text import clean

LIST_S = 5.0
SIGN_S = 60.0  # the agent may ask its owner first (ssh-add -c)
MAX_MESSAGE_B = 262_144  # what OpenSSH's agent allows itself
MAX_KEYS = 2048  # the same
KIND = b"ssh-ed25519"

_ASK_KEYS, _KEYS = 11, 12
_ASK_SIGNATURE, _SIGNATURE = 13, 14
_LENGTH = struct.Struct(">I")


class AgentKey(NamedTuple):
    """A key an agent holds."""

    key: bytes  # 32 bytes
    comment: str  # as its owner called it; not cleaned

    @property
    def fingerprint(self) -> str:
        """As `ssh-add -l` shows it."""
        digest = hashlib.sha256(blob_of(self.key)).digest()
        return "SHA256:" + b64encode(digest).decode().rstrip("=")

    @property
    def shown(self) -> str:
        """Fingerprint and comment, safe to print."""
        return f"{self.fingerprint} {clean(self.comment, 60)}".rstrip()


class Agent:
    """An ssh-agent at a socket. Each question is a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def identities(self) -> list[AgentKey]:
        """Its Ed25519 keys.

        Raises:
            TelaError: it does not answer (`no_agent`).
        """
        kind, answer = self._ask(bytes((_ASK_KEYS,)), LIST_S)
        if kind != _KEYS:
            raise self._trouble("it does not list its keys")
        try:
            return read_keys(answer)
        except ValueError:
            raise self._trouble("its list of keys cannot be read") from None

    def sign(self, key: bytes, message: bytes) -> bytes:
        """A raw signature of 64 bytes.

        Raises:
            TelaError: it does not answer (`no_agent`), or would not sign (`agent_refused`).
        """
        question = bytes((_ASK_SIGNATURE,)) + _string(blob_of(key)) + _string(message) + _LENGTH.pack(0)
        kind, answer = self._ask(question, SIGN_S)
        if kind != _SIGNATURE:
            raise TelaError(
                "the ssh-agent would not sign with the operator key",
                hint="is the key still in it (ssh-add -l)? is it locked, or was its question refused?",
                code="agent_refused",
            )
        try:
            return read_signature(answer, key, message)
        except ValueError:
            raise self._trouble("its signature does not verify") from None

    def _ask(self, question: bytes, within_s: float) -> tuple[int, bytes]:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(within_s)
                connection.connect(str(self.path))
                connection.sendall(_string(question))
                (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
                if not 1 <= length <= MAX_MESSAGE_B:
                    raise self._trouble("its answer has no end")
                answer = _exactly(connection, length)
        except OSError as error:
            raise self._trouble(error.strerror or str(error) or "no answer in time") from error
        return answer[0], answer[1:]

    def _trouble(self, why: str) -> TelaError:
        return TelaError(
            f"no talking to the ssh-agent at {self.path}: {why}",
            hint='ssh-add -l shows whether it runs; eval "$(ssh-agent)" starts one, ssh -A forwards yours',
            code="no_agent",
        )


def agent_of(env: Mapping[str, str]) -> Agent:
    """The agent an environment names.

    Raises:
        TelaError: it names none.
    """
    path = env.get("SSH_AUTH_SOCK", "")
    if not path:
        raise TelaError(
            "no ssh-agent here: SSH_AUTH_SOCK is not set",
            hint='eval "$(ssh-agent)" && ssh-add starts one, ssh -A forwards yours',
            code="no_agent",
        )
    return Agent(Path(path))


def chosen(keys: Sequence[AgentKey], fingerprint: str | None) -> AgentKey:
    """The key meant: the one with that fingerprint, or the beginning of one; without it, the only one there is.

    Raises:
        TelaError: none, or several to choose from.
    """
    if fingerprint is not None:
        wanted = fingerprint if fingerprint.startswith("SHA256:") else f"SHA256:{fingerprint}"
        fitting = [each for each in keys if each.fingerprint.startswith(wanted)]
    else:
        fitting = list(keys)
    if len(fitting) == 1:
        return fitting[0]
    if not keys:
        raise TelaError(
            "the ssh-agent holds no Ed25519 key",
            hint="ssh-keygen -t ed25519 makes one, ssh-add adds it; a security key's (sk-) will not do",
            code="no_agent_key",
        )
    what = "several Ed25519 keys" if fitting else f"no Ed25519 key {clean(fingerprint or '', 60)}"
    listed = "; ".join(each.shown for each in (fitting or keys)[:8])
    raise TelaError(f"the ssh-agent holds {what}", hint=f"say which: --ssh-agent FINGERPRINT of {listed}", code="usage")


def blob_of(key: bytes) -> bytes:
    """A public key as ssh writes it."""
    return _string(KIND) + _string(key)


def read_keys(answer: bytes) -> list[AgentKey]:
    """The Ed25519 keys in a list; ValueError when it is none."""
    reader = _Reader(answer)
    count = reader.number()
    if count > MAX_KEYS:
        raise ValueError
    found: list[AgentKey] = []
    for _ in range(count):
        blob, comment = _Reader(reader.string()), reader.string()
        if blob.string() == KIND:
            key = blob.string()
            if len(key) != bindings.crypto_sign_PUBLICKEYBYTES:
                raise ValueError
            found.append(AgentKey(key, comment.decode(errors="replace")))
    return found


def read_signature(answer: bytes, key: bytes, message: bytes) -> bytes:
    """The raw signature in an answer; ValueError when it is none of that key on that message."""
    inner = _Reader(_Reader(answer).string())
    kind, signature = inner.string(), inner.string()
    if kind != KIND or len(signature) != bindings.crypto_sign_BYTES:
        raise ValueError
    try:
        bindings.crypto_sign_open(signature + message, key)
    except CryptoError:
        raise ValueError from None
    return signature


class _Reader:
    """Reads ssh's strings and numbers. Mutable: moves on. ValueError where bytes are missing."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    def number(self) -> int:
        try:
            (value,) = _LENGTH.unpack_from(self._text, self._at)
        except struct.error:
            raise ValueError from None
        self._at += _LENGTH.size
        return int(value)

    def string(self) -> bytes:
        length = self.number()
        start, self._at = self._at, self._at + length
        if self._at > len(self._text):
            raise ValueError
        return self._text[start : self._at]


def _string(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


def _exactly(connection: socket.socket, count: int) -> bytes:
    held = bytearray()
    while len(held) < count:
        more = connection.recv(count - len(held))
        if not more:
            raise OSError("it hung up")
        held += more
    return bytes(held)
