"""The records of a link: one secretstream per direction, under the keys TLK1 made.

One record is one websocket message. There is no rekey inside a stream (a fresh link replaces an old
one), no empty record and no way back from a failure. The only dice are libsodium's, for the header.
"""

import re

from nacl.bindings import (
    crypto_secretstream_xchacha20poly1305_ABYTES,
    crypto_secretstream_xchacha20poly1305_HEADERBYTES,
    crypto_secretstream_xchacha20poly1305_init_pull,
    crypto_secretstream_xchacha20poly1305_init_push,
    crypto_secretstream_xchacha20poly1305_pull,
    crypto_secretstream_xchacha20poly1305_push,
    crypto_secretstream_xchacha20poly1305_state,
    crypto_secretstream_xchacha20poly1305_TAG_FINAL,
    crypto_secretstream_xchacha20poly1305_TAG_MESSAGE,
    crypto_secretstream_xchacha20poly1305_TAG_PUSH,
)
from nacl.exceptions import CryptoError

from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.transcript import KEY_B

# Frames of 16 KB reach most of libsodium's speed; 64 KiB holds a few and bounds what a peer makes us hold.
MAX_PLAIN_B = 65_536
OVERHEAD_B = crypto_secretstream_xchacha20poly1305_ABYTES
HEADER_B = crypto_secretstream_xchacha20poly1305_HEADERBYTES
MAX_MESSAGE_B = HEADER_B + MAX_PLAIN_B + OVERHEAD_B  # what the transport must let through

_MAX_RECORD_B = MAX_PLAIN_B + OVERHEAD_B

# A verdict has a tag of its own, so no record can pass for one nor a verdict for a record.
_RECORD = crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
_VERDICT = crypto_secretstream_xchacha20poly1305_TAG_PUSH
_FINAL = crypto_secretstream_xchacha20poly1305_TAG_FINAL

_ACCEPT = b"ACCEPT"
_REJECT = b"REJECT"
_CODE = re.compile(r"[a-z0-9_]{1,32}")


class Sealer:
    """The sending direction of a link. Mutable: every record moves the stream on.

    A record that was sealed must be sent, in order; the link is dead otherwise.

    Args:
        key: the 32-byte key of this direction, never used before.

    Raises:
        LocalProtocolError: a record too large or empty, or sealed after the end.
    """

    __slots__ = ("_front", "_state")

    def __init__(self, key: bytes) -> None:
        _check_key(key)
        state = crypto_secretstream_xchacha20poly1305_state()
        # The header until the first record took it.
        self._front = crypto_secretstream_xchacha20poly1305_init_push(state, key)
        self._state: crypto_secretstream_xchacha20poly1305_state | None = state

    def seal(self, plain: bytes, *, ad: bytes = b"") -> bytes:
        """Return one record of 1 to `MAX_PLAIN_B` bytes, sealed together with `ad`."""
        if not plain:
            raise _misuse("an empty record says nothing")
        return self._push(plain, ad, _RECORD)

    def finish(self, plain: bytes = b"") -> bytes:
        """Return the last record; without it the other end takes the link for cut."""
        record = self._push(plain, b"", _FINAL)
        self._state = None
        return record

    def _push(self, plain: bytes, ad: bytes, tag: int) -> bytes:
        state = self._state
        if state is None:
            raise _misuse("nothing may follow the last record")
        if len(plain) > MAX_PLAIN_B:
            raise _misuse(f"a record holds at most {MAX_PLAIN_B} bytes, not {len(plain)}")
        try:
            record = crypto_secretstream_xchacha20poly1305_push(state, plain, ad, tag)
        except (CryptoError, TypeError) as error:
            raise _misuse("a record is made of bytes") from error
        if self._front:
            record, self._front = self._front + record, b""
        return record

    def _push_verdict(self, body: bytes, binding: bytes, *, ends: bool) -> bytes:
        _check_binding(binding)
        if not self._front:
            raise _misuse("a verdict is the first record")
        record = self._push(body, binding, _VERDICT)
        if ends:
            self._state = None
        return record


class Opener:
    """The receiving direction of a link. Mutable: every record moves the stream on.

    libsodium would go on after a record that failed and after the last one; this does not.

    Args:
        key: the 32-byte key of this direction.

    Raises:
        RemoteProtocolError: from the first record that is not the next one, for ever. Codes
            `record_size`, `record_forged`, `record_tag`, `record_empty`, `record_after_final`,
            `verdict`, and `link_dead` afterwards.
    """

    __slots__ = ("_finished", "_key", "_state")

    def __init__(self, key: bytes) -> None:
        _check_key(key)
        self._key = key  # until the first message brought the header
        self._state: crypto_secretstream_xchacha20poly1305_state | None = crypto_secretstream_xchacha20poly1305_state()
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether the other end said that nothing follows: by its last record or its refusal."""
        return self._finished

    def open(self, message: bytes | bytearray, *, ad: bytes = b"") -> bytes:
        """Return what one record holds; empty only when it is the last one."""
        plain, tag = self._pull(message, ad)
        if tag == _RECORD and plain:
            return plain
        if tag != _FINAL:
            raise self._fail(*_unwanted(tag))
        self._end()
        return plain

    def _pull(self, message: bytes | bytearray, ad: bytes) -> tuple[bytes, int]:
        state = self._state
        if state is None:
            raise self._dead()
        record = bytes(message)  # the websocket layer hands bytearray, libsodium takes bytes
        if self._key:
            record = self._begin(state, record)
        if not OVERHEAD_B <= len(record) <= _MAX_RECORD_B:
            raise self._fail(f"a record of {len(record)} bytes", "record_size")
        try:
            return crypto_secretstream_xchacha20poly1305_pull(state, record, ad)
        except (CryptoError, RuntimeError, TypeError, ValueError) as error:
            raise self._fail("a record is not the next one of this link", "record_forged") from error

    def _begin(self, state: crypto_secretstream_xchacha20poly1305_state, message: bytes) -> bytes:
        """Take the header off the first message."""
        key, self._key = self._key, b""
        if len(message) < HEADER_B + OVERHEAD_B:
            raise self._fail(f"a first message of {len(message)} bytes", "record_size")
        crypto_secretstream_xchacha20poly1305_init_pull(state, message[:HEADER_B], key)
        return message[HEADER_B:]

    def _pull_verdict(self, binding: bytes, message: bytes | bytearray) -> str | None:
        _check_binding(binding)
        if self._state is not None and not self._key:
            raise _misuse("a verdict is the first record")
        body, tag = self._pull(message, binding)
        if tag != _VERDICT:
            raise self._fail("the first record is not a verdict", "verdict")
        if body == _ACCEPT:
            return None
        code = body.removeprefix(_REJECT).decode("ascii", "replace")
        if not body.startswith(_REJECT) or not _CODE.fullmatch(code):
            raise self._fail("a verdict that says neither yes nor no", "verdict")
        self._end()
        return code

    def _end(self) -> None:
        self._finished = True
        self._state = None

    def _fail(self, what: str, code: str) -> RemoteProtocolError:
        self._state = None
        self._key = b""
        return RemoteProtocolError(f"link broken: {what}", code=code)

    def _dead(self) -> RemoteProtocolError:
        if self._finished:
            return self._fail("data after the last record", "record_after_final")
        return self._fail("it failed before and stays closed", "link_dead")


def seal_accept(sealer: Sealer, binding: bytes) -> bytes:
    """Return M4 of a responder that lets the other end in.

    Args:
        sealer: the responder's own, not used before.
        binding: `Established.binding` of this link.

    Raises:
        LocalProtocolError: the sealer was used before.
    """
    return sealer._push_verdict(_ACCEPT, binding, ends=False)


def seal_reject(sealer: Sealer, binding: bytes, code: str) -> bytes:
    """Return M4 of a responder that refuses, and close the sealer.

    Args:
        sealer: the responder's own, not used before.
        binding: `Established.binding` of this link.
        code: why: 1 to 32 of `a-z`, `0-9` and `_`.

    Raises:
        LocalProtocolError: the sealer was used before, or the code is malformed.
    """
    if not _CODE.fullmatch(code):
        raise _misuse("a refusal code is 1 to 32 of a-z, 0-9 and _")
    return sealer._push_verdict(_REJECT + code.encode(), binding, ends=True)


def open_verdict(opener: Opener, binding: bytes, message: bytes | bytearray) -> str | None:
    """Read M4; until then an initiator sends nothing.

    Args:
        opener: the initiator's own, not used before.
        binding: `Established.binding` of this link.
        message: the responder's first message.

    Returns:
        None when we are let in, else the code of the refusal.

    Raises:
        LocalProtocolError: the opener was used before.
        RemoteProtocolError: not a verdict of this link.
    """
    return opener._pull_verdict(binding, message)


def _unwanted(tag: int) -> tuple[str, str]:
    if tag == _RECORD:
        return "an empty record", "record_empty"
    return f"a record with tag {tag} has no place here", "record_tag"


def _check_key(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_B:
        raise _misuse(f"a link key has {KEY_B} bytes")


def _check_binding(binding: bytes) -> None:
    if not isinstance(binding, bytes) or len(binding) != KEY_B:
        raise _misuse(f"a binding has {KEY_B} bytes")


def _misuse(message: str) -> LocalProtocolError:
    return LocalProtocolError(message, code="record_misuse")
