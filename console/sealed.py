"""The file of an operator's key: its seed under a passphrase, or the public half of a key an ssh-agent holds. Pure.

Argon2id makes the passphrase expensive to guess, and its cost is in the file. What does not decode is refused with the
reason, and so is a cost that would only make this host suffer.
"""

from typing import Annotated, Literal

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from registry.errors import TelaError
from registry.kinds import Name, PublicKey
from registry.record import seed_signer

SALT_B = bindings.crypto_pwhash_SALTBYTES
NONCE_B = bindings.crypto_secretbox_NONCEBYTES
ENTROPY_B = SALT_B + NONCE_B
# libsodium's interactive cost: about 0.1 s and 64 MiB for us, as much for each guess of a thief.
OPS = bindings.crypto_pwhash_argon2id_OPSLIMIT_INTERACTIVE
MEMORY_B = bindings.crypto_pwhash_argon2id_MEMLIMIT_INTERACTIVE
MAX_OPS = 16
MAX_MEMORY_B = 1 << 30
MAX_FILE_B = 4096

How = Literal["passphrase", "none", "ssh-agent"]
NOTE = "no passphrase: whoever can read this file is this operator"


class Box(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A seed under a passphrase."""

    kdf: Literal["argon2id"] = "argon2id"
    ops: Annotated[int, msgspec.Meta(ge=1, le=MAX_OPS)] = OPS
    memory_b: Annotated[int, msgspec.Meta(ge=8192, le=MAX_MEMORY_B)] = MEMORY_B
    salt: Annotated[bytes, msgspec.Meta(min_length=SALT_B, max_length=SALT_B)]
    box: Annotated[bytes, msgspec.Meta(min_length=72, max_length=72)]  # nonce, then 32 bytes of seed and its tag


class Sealed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator's key as it lies on disk."""

    v: Literal[1] = 1
    name: Name
    key: PublicKey
    how: How
    box: Box | None = None  # None: an ssh-agent holds the secret half
    note: Annotated[str, msgspec.Meta(max_length=256)] = ""


def seal(name: str, seed: bytes, passphrase: bytes, entropy: bytes) -> Sealed:
    """Put a seed under a passphrase; an empty one is written down as none.

    Args:
        name: the operator's.
        seed: 32 bytes.
        passphrase: as typed, UTF-8.
        entropy: `ENTROPY_B` random bytes, used once.
    """
    salt, nonce = entropy[:SALT_B], entropy[SALT_B:ENTROPY_B]
    box = nonce + bindings.crypto_secretbox(seed, nonce, _stretch(passphrase, salt, OPS, MEMORY_B))
    how: How = "passphrase" if passphrase else "none"
    key, _ = seed_signer(seed)
    note = "" if passphrase else NOTE
    return Sealed(name=name, key=key, how=how, box=Box(ops=OPS, memory_b=MEMORY_B, salt=salt, box=box), note=note)


def held_by_agent(name: str, key: bytes) -> Sealed:
    """The entry of a key whose secret half stays in an ssh-agent."""
    return Sealed(name=name, key=key, how="ssh-agent")


def unseal(sealed: Sealed, passphrase: bytes) -> bytes:
    """The seed.

    Raises:
        TelaError: the passphrase is wrong (`wrong_passphrase`), or the file was changed.
    """
    if sealed.box is None:
        raise TelaError("this operator key is in an ssh-agent, not in its file", code="bad_key")
    box = sealed.box
    stretched = _stretch(passphrase, box.salt, box.ops, box.memory_b)
    try:
        seed: bytes = bindings.crypto_secretbox_open(box.box[NONCE_B:], box.box[:NONCE_B], stretched)
    except CryptoError:
        raise TelaError(
            f"this passphrase does not open the operator key of {sealed.name}",
            hint="try again; lost for good? another owner can name a new key, and so can the recovery key",
            code="wrong_passphrase",
        ) from None
    if seed_signer(seed)[0] != sealed.key:
        raise TelaError(
            "the operator key's file was changed: its public half does not fit",
            hint="restore it from a backup",
            code="bad_key",
        )
    return seed


def encode(sealed: Sealed) -> bytes:
    """The bytes of the file."""
    return msgspec.json.format(msgspec.json.encode(sealed), indent=1) + b"\n"


def read(raw: bytes, where: str) -> Sealed:
    """What a file holds.

    Args:
        raw: its bytes.
        where: its path, for the error.

    Raises:
        TelaError: it is no operator's key, with the reason.
    """
    try:
        if len(raw) > MAX_FILE_B:
            raise msgspec.ValidationError(f"it is longer than {MAX_FILE_B} bytes")
        sealed = msgspec.json.decode(raw, type=Sealed)
        if (sealed.box is None) != (sealed.how == "ssh-agent"):
            raise msgspec.ValidationError("it does not say how the key is kept")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TelaError(
            f"{where} is no operator's key: {error}",
            hint="restore it from a backup; tela operators request makes a new key in its place once it is moved away",
            code="bad_key",
        ) from None
    return sealed


def _stretch(passphrase: bytes, salt: bytes, ops: int, memory_b: int) -> bytes:
    try:
        stretched: bytes = bindings.crypto_pwhash_alg(
            bindings.crypto_secretbox_KEYBYTES,
            passphrase,
            salt,
            ops,
            memory_b,
            bindings.crypto_pwhash_ALG_ARGON2ID13,
        )
    except (CryptoError, MemoryError) as error:  # libsodium says nothing but that it had no memory
        raise TelaError(
            f"no memory to check a passphrase: it takes {memory_b >> 20} MiB",
            hint="do it on another host, or with a higher limit (ulimit -v)",
            code="no_memory",
        ) from error
    return stretched
