"""The record: a signed envelope that is frozen for ever, and its strict decoder.

Layout, big-endian: version u8 = 1, audience u8, kind length u8, kind, id length u8, id, owner (32-byte
Ed25519 key), run u64, rank u8, seq u64, body length u16, body (JSON), signature (64 bytes over a domain
string and all before it). What a body means is `registry.kinds`; here it is bytes. A breaking change is a new
kind, never a new envelope: an unknown version is refused.
"""

import hashlib
import re
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from nacl import bindings
from nacl.exceptions import CryptoError

from registry.errors import RecordRefused, TelaError
from registry.text import is_id

MAX_RECORD_B = 4096  # fits a few network packets; larger things are blobs fetched by question
DOMAIN = b"tela/rec/1\0\0\0\0\0\0"  # 16 bytes: no other signature of ours starts with it

_VERSION = 1
_SIGNATURE_B = 64
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_ORDER = struct.Struct(">QBQ")
_LENGTH = struct.Struct(">H")
_MAX_U64 = (1 << 64) - 1

Sign = Callable[[bytes], bytes]


class Audience(IntEnum):
    """Which shelf a record lies on."""

    PUBLIC = 0
    ACCOUNTS = 1


class Key(NamedTuple):
    """The register a record writes to. The owner is part of it, so nobody can displace another's record."""

    audience: Audience
    kind: str
    id: str
    owner: bytes


class Order(NamedTuple):
    """The total order inside one register: a new run wins, then rank, then sequence, then hash."""

    run: int
    rank: int
    seq: int
    hash: bytes


class Record(NamedTuple):
    """A record whose signature was checked.

    `raw` is the envelope as it travels; it is kept and forwarded byte for byte.
    """

    raw: bytes
    key: Key
    order: Order
    body: bytes


class Draft(NamedTuple):
    """What is to be signed."""

    kind: str
    id: str
    body: bytes
    audience: Audience = Audience.PUBLIC
    run: int = 0
    rank: int = 0
    seq: int = 0


def record_hash(raw: bytes) -> bytes:
    """The 32-byte hash that names a record, breaks ties and links charters and acts."""
    return hashlib.blake2b(raw, digest_size=32, person=b"tela-record").digest()


def seed_signer(seed: bytes) -> tuple[bytes, Sign]:
    """The public key of a 32-byte seed, and a function that signs with it."""
    public, secret = bindings.crypto_sign_seed_keypair(seed)
    return public, lambda message: bindings.crypto_sign(message, secret)[:_SIGNATURE_B]


def seal(draft: Draft, owner: bytes, sign: Sign) -> Record:
    """Sign a draft.

    Raises:
        TelaError: when the draft could not be decoded again; the reason names the field.
    """
    kind, subject = draft.kind.encode(), draft.id.encode()
    if max(len(kind), len(subject)) > 255 or len(draft.body) > MAX_RECORD_B:
        raise TelaError(f"record too large: kind {draft.kind!r}, {len(draft.body)} bytes of body")
    if not (0 <= draft.run <= _MAX_U64 and 0 <= draft.seq <= _MAX_U64 and 0 <= draft.rank <= 255):
        raise TelaError("record order out of range")
    head = b"".join((
        bytes((_VERSION, draft.audience, len(kind))), kind, bytes((len(subject),)), subject, owner,
        _ORDER.pack(draft.run, draft.rank, draft.seq), _LENGTH.pack(len(draft.body)), draft.body,
    ))  # fmt: skip
    try:
        return decode(head + sign(DOMAIN + head))
    except RecordRefused as refusal:
        raise TelaError(f"cannot write this record: {refusal.reason}") from refusal


def decode(raw: bytes) -> Record:
    """Decode and verify one record from outside; the only way in.

    Raises:
        RecordRefused: with the reason, for anything but a canonical envelope with a good signature.
    """
    if len(raw) > MAX_RECORD_B:
        raise RecordRefused(f"{len(raw)} bytes, at most {MAX_RECORD_B}")
    if not raw or raw[0] != _VERSION:
        raise RecordRefused("unknown envelope version")
    try:
        record = _parse(raw)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise RecordRefused("cut short or not ASCII") from None
    _verify(raw, record.key.owner)
    return record


def _parse(raw: bytes) -> Record:
    if raw[1] not in {0, 1}:
        raise RecordRefused("unknown audience")
    at = 3 + raw[2]
    kind = raw[3:at].decode("ascii")
    at, start = at + 1 + raw[at], at + 1
    subject = raw[start:at].decode("ascii")
    owner = raw[at : at + 32]
    run, rank, seq = _ORDER.unpack_from(raw, at + 32)
    (length,) = _LENGTH.unpack_from(raw, at + 49)
    body = raw[at + 51 : at + 51 + length]
    if len(raw) != at + 51 + length + _SIGNATURE_B:
        raise RecordRefused("length does not match")
    if not _KIND.match(kind):
        raise RecordRefused("malformed kind")
    if not is_id(subject):
        raise RecordRefused("malformed id")
    order = Order(run, rank, seq, record_hash(raw))
    return Record(raw, Key(Audience(raw[1]), kind, subject, owner), order, body)


def _verify(raw: bytes, owner: bytes) -> None:
    try:
        bindings.crypto_sign_open(raw[-_SIGNATURE_B:] + DOMAIN + raw[:-_SIGNATURE_B], owner)
    except (CryptoError, ValueError, TypeError):
        raise RecordRefused("signature does not verify") from None
