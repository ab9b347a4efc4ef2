"""API keys: minted, recognised offline, and looked up by digest on every request.

Pure: entropy and time come in. Only digests are kept; a secret is never stored, logged or shown again,
and what a refused caller is told does not depend on why.
"""

import enum
import hmac
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from registry.errors import TelaError

PREFIX = "tela_sk_"
ENTROPY_B = 32
# 62**43 > 2**256 and 62**6 > 2**32: the fewest characters that always hold the value.
_BODY_CHARS = 43
_CHECK_CHARS = 6
_SECRET_CHARS = len(PREFIX) + _BODY_CHARS + _CHECK_CHARS
# 62**10 ids: two of 100,000 keys share one with probability 6e-9.
_ID_CHARS = 10
# Keys imported from another gateway may be longer than ours; longer than this is not hashed.
_MAX_PRESENTED_CHARS = 256
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# What else of ours looks like a key, and what people should do with it instead.
CLAIM = "tela_claim_"
INVITE = "tela_invite_"
_OTHERS = {
    CLAIM: "This is a claim, not an API key: `tela keys claim` makes a key of it, once.",
    INVITE: "This is an invite for nodes, not an API key: `tela join @FILE` takes it.",
}

# The one sentence every refused caller reads: a guess must not learn that it was close.
REFUSED_REASON = "No valid API key was presented."


class Cause(enum.Enum):
    """Why a key was refused: for this node's log, never for the caller."""

    MISSING = "missing"  # no credential in either header
    MALFORMED = "malformed"  # does not look like a key; usually a typing or pasting error
    UNKNOWN = "unknown"  # looks like a key, but not one of this fabric
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """What an ingress knows about one secret. Several secrets may share an id while a key rotates."""

    id: str
    digest: bytes = field(repr=False)
    label: str
    # Unix seconds of fabric time; None = never.
    expires_at: float | None
    # Model names this key may call; None = any.
    models: tuple[str, ...] | None
    revoked: bool = False
    user: str = ""  # whose it is
    project: str = ""  # what it is charged to


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The presented key is valid now."""

    entry: KeyEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The presented key is not valid now."""

    cause: Cause
    # Set when the secret was a known one that is no longer valid.
    key_id: str | None = None
    reason: str = REFUSED_REASON


def mint(entropy: bytes) -> str:
    """Return the secret that carries 32 bytes of entropy; equal entropy gives an equal secret.

    The form is GitHub's (prefix, base62, CRC32 in base62): scanners find it, a double click selects
    it, and a typing error shows without asking anyone.

    Raises:
        TelaError: the entropy is not 32 bytes.
    """
    if len(entropy) != ENTROPY_B:
        raise TelaError(f"a key needs {ENTROPY_B} bytes of entropy, not {len(entropy)}")
    body = PREFIX + _base62(int.from_bytes(entropy), _BODY_CHARS)
    return body + _checksum(body)


def looks_valid(secret: str) -> bool:
    """Say whether the text has a key's form and checksum. Says nothing about who knows it."""
    return (
        len(secret) == _SECRET_CHARS
        and secret.startswith(PREFIX)
        and secret.isascii()
        and secret[len(PREFIX) :].isalnum()
        and secret[-_CHECK_CHARS:] == _checksum(secret[:-_CHECK_CHARS])
    )


def digest(secret: str) -> bytes:
    """Return the SHA-256 under which a secret is stored; 256 random bits need no slow hash."""
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def key_id(secret_digest: bytes) -> str:
    """Return the public name of a key, stable for its digest and useless for finding it."""
    named = sha256(b"tela key id\x00" + secret_digest).digest()
    return "k_" + _base62(int.from_bytes(named) % 62**_ID_CHARS, _ID_CHARS)


class KeyRing:
    """The keys one ingress accepts; made anew when they change, never altered."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[KeyEntry]) -> None:
        """Take the entries; of two with the same digest the more restrictive counts."""
        self._entries: dict[bytes, KeyEntry] = {}
        for entry in entries:
            held = self._entries.setdefault(entry.digest, entry)
            if held is not entry and _permissiveness(entry) < _permissiveness(held):
                self._entries[entry.digest] = entry

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, authorization: str | None, x_api_key: str | None, now_fabric: float) -> Admitted | Refused:
        """Judge the credential of one request.

        Args:
            authorization: the header's text; counts when its scheme is Bearer, and then wins.
            x_api_key: the header's text, as Anthropic's clients send it.
            now_fabric: unix seconds of fabric time.
        """
        secret = _presented(authorization, x_api_key)
        if not secret:
            return _MISSING
        if len(secret) > _MAX_PRESENTED_CHARS:
            return _not_a_key(secret)
        presented = digest(secret)
        entry = self._entries.get(presented)
        # The dict compares digests, and what their timing tells leads to no secret; the comparison
        # that decides is constant in time all the same.
        if entry is None or not hmac.compare_digest(entry.digest, presented):
            return _UNKNOWN if looks_valid(secret) else _not_a_key(secret)
        if entry.revoked:
            return Refused(cause=Cause.REVOKED, key_id=entry.id)
        if entry.expires_at is not None and now_fabric >= entry.expires_at:
            return Refused(cause=Cause.EXPIRED, key_id=entry.id)
        return Admitted(entry=entry)


_MISSING = Refused(cause=Cause.MISSING)
_MALFORMED = Refused(cause=Cause.MALFORMED)
_UNKNOWN = Refused(cause=Cause.UNKNOWN)


def _not_a_key(presented: str) -> Refused:
    """The refusal of a text without a key's form: it says more only where the prefix says what it is."""
    said = next((said for prefix, said in _OTHERS.items() if presented.startswith(prefix)), None)
    return _MALFORMED if said is None else Refused(cause=Cause.MALFORMED, reason=said)


def _presented(authorization: str | None, x_api_key: str | None) -> str | None:
    if authorization is not None and authorization[:7].lower() == "bearer ":
        return authorization[7:].strip()
    return x_api_key.strip() if x_api_key is not None else None


def _permissiveness(entry: KeyEntry) -> tuple[bool, float, bool, tuple[str, ...], str, str]:
    lasts_until = float("inf") if entry.expires_at is None else entry.expires_at
    return (
        not entry.revoked,
        lasts_until,
        entry.models is None,
        entry.models or (),
        entry.id,
        entry.label,
    )


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii")), _CHECK_CHARS)


def _base62(value: int, chars: int) -> str:
    found = []
    for _ in range(chars):
        value, rest = divmod(value, 62)
        found.append(_BASE62[rest])
    return "".join(reversed(found))
