"""Identifiers: how a key becomes a node id, and how requests and fabrics are named."""

import hashlib
from base64 import b32encode

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ACCOUNT_CHARS = 12  # 60 bits: nobody makes a second one on purpose, or finds an operator key that fits


def key_id(public_key: bytes) -> str:
    """The name of a node or member key in records: 24 base32 characters of its hash."""
    digest = hashlib.blake2b(public_key, digest_size=15, person=b"tela-key-id").digest()
    return b32encode(digest).decode().lower()


def fabric_name(fabric_id: bytes) -> str:
    """A short handle for people of a 32-byte fabric id."""
    return b32encode(fabric_id[:5]).decode().lower()


def replica_id(node: str, slot: str) -> str:
    """The record id of a replica: its node's id and the name of the slot the engine runs in."""
    return f"{node}/{slot}"


def account_id(operator: bytes, entropy: bytes) -> str:
    """The id of an API key: twelve characters of chance, and twelve that tell who named it so.

    Args:
        operator: the public key of the operator who grants it.
        entropy: eight random bytes at least.
    """
    chance = b32encode(entropy).decode().lower()[:_ACCOUNT_CHARS]
    return f"k_{chance}{_tag(operator, chance)}"


def is_account_of(name: str, operator: bytes) -> bool:
    """Whether an operator named an API key: nobody else has an id that says so."""
    chance, tag = name[2 : 2 + _ACCOUNT_CHARS], name[2 + _ACCOUNT_CHARS :]
    return tag == _tag(operator, chance)


def _tag(operator: bytes, chance: str) -> str:
    digest = hashlib.blake2b(operator + chance.encode(), digest_size=10, person=b"tela-account-id").digest()
    return b32encode(digest).decode().lower()[:_ACCOUNT_CHARS]


def request_id(unix_ms: int, entropy: int) -> str:
    """A ULID (48-bit milliseconds, 80 bits of `entropy`): unique, and sorted by time."""
    number = (unix_ms & (1 << 48) - 1) << 80 | entropy & (1 << 80) - 1
    return "".join([_CROCKFORD[number >> shift & 31] for shift in range(125, -5, -5)])
