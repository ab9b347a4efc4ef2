"""The recovery key as a person writes it down: 64 characters in groups, with a checksum. Pure.

Crockford's base32 without I, L, O and U; what is read back may be in any case, with those letters for the digits they
look like.
"""

import hashlib

from registry.errors import TelaError

SEED_B = 32
CHECK_B = 8  # 40 bytes are 64 characters: a mistake slips through once in 2**64
GROUP = 4
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARS = (SEED_B + CHECK_B) * 8 // 5
_LOOK_ALIKE = str.maketrans({"O": "0", "I": "1", "L": "1"})


def recovery_text(seed: bytes) -> str:
    """A seed in groups of four, as it is printed once."""
    number = int.from_bytes(seed + _check(seed))
    digits = "".join(_ALPHABET[number >> shift & 31] for shift in range((_CHARS - 1) * 5, -1, -5))
    return "-".join(digits[at : at + GROUP] for at in range(0, _CHARS, GROUP))


def recovery_seed(text: str) -> bytes:
    """The seed that was written down.

    Raises:
        TelaError: it is none; says what is wrong.
    """
    typed = "".join(char for char in text.upper() if not char.isspace() and char != "-").translate(_LOOK_ALIKE)
    if wrong := sorted(set(typed) - set(_ALPHABET)):
        raise _refused(f"{wrong[0]!a} is no character of it")
    if len(typed) != _CHARS:
        raise _refused(f"it has {_CHARS} characters in groups of {GROUP}, and here are {len(typed)}")
    number = 0
    for char in typed:
        number = number << 5 | _ALPHABET.index(char)
    raw = number.to_bytes(SEED_B + CHECK_B)
    seed = raw[:SEED_B]
    if raw[SEED_B:] != _check(seed):
        raise _refused("a character is wrong: its checksum does not fit")
    return seed


def _refused(why: str) -> TelaError:
    return TelaError(f"this is not a recovery key: {why}", hint="compare it with the paper", code="bad_recovery_key")


def _check(seed: bytes) -> bytes:
    return hashlib.blake2b(seed, digest_size=CHECK_B, person=b"tela-recovery").digest()
