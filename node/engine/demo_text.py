"""What the demo engine says: words, token numbers and vectors drawn from a hash of the request.

Nothing here depends on time, chance or the process, so any replica of a model gives the same bytes.
A token is one word. It pretends to no meaning.
"""

import base64
import math
import struct
from hashlib import blake2b
from typing import Final

import msgspec

# 64 words, so six bits of hash choose one. Some need escaping or more than one byte in UTF-8: a
# proxy that cuts, re-encodes or counts characters shows it on the demo engine first.
_SPOKEN: Final = """
the a of to and in is it as on for with by from at or this that thread loom weave warp weft cloth
knot spool yarn pattern edge frame needle stitch fibre silk linen wool carries joins holds turns
crosses follows returns begins ends keeps rests slowly evenly twice again quiet long narrow bright
naïve größer façade 織物 ткань ✓ 🧵 "yes" c:\\loom
"""
WORDS: Final = tuple(_SPOKEN.split())
_BLOCK_TOKENS: Final = blake2b.MAX_DIGEST_SIZE
_VOCABULARY: Final = 32_000  # the size of a small model's vocabulary
SEED_B: Final = 32


def escape(text: str) -> bytes:
    """Return the text as the inside of a JSON string, in UTF-8, without the quotes."""
    return msgspec.json.encode(text)[1:-1]


_FIRST: Final = tuple(escape(word) for word in WORDS)
_LATER: Final = tuple(b" " + word for word in _FIRST)


def seed_of(model: str, canonical: bytes) -> bytes:
    """Return the seed of an answer: a hash of the model and of the request's canonical content."""
    digest = blake2b(model.encode(), digest_size=SEED_B)
    digest.update(b"\0")
    digest.update(canonical)
    return digest.digest()


def _bytes_of(seed: bytes, index: int, size_b: int) -> bytes:
    """Expand a seed: BLAKE2b keyed with it, in counter mode, salted with the index."""
    salt = index.to_bytes(blake2b.SALT_SIZE, "big")
    blocks = -(-size_b // _BLOCK_TOKENS)
    return b"".join(blake2b(number.to_bytes(8, "big"), key=seed, salt=salt).digest() for number in range(blocks))[
        :size_b
    ]


def tokens_of(seed: bytes, index: int, count: int) -> list[bytes]:
    """Return the first tokens of choice `index`, each the inside of a JSON string.

    A shorter answer is a prefix of a longer one, as with a greedy model.
    """
    drawn = _bytes_of(seed, index, count)
    tokens = [_LATER[byte & 63] for byte in drawn]
    if tokens:
        tokens[0] = _FIRST[drawn[0] & 63]
    return tokens


def count_words(text: str) -> int:
    """Return the number of tokens the demo engine sees in a text."""
    return len(text.split())


def token_ids(text: str) -> list[int]:
    """Return a stable number for each word of a text."""
    return [
        int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big") % _VOCABULARY for word in text.split()
    ]


def embedding_of(seed: bytes, dimensions: int) -> list[float]:
    """Return a vector of length one in float32 precision."""
    drawn = struct.unpack(f"<{dimensions}i", _bytes_of(seed, 0, 4 * dimensions))
    length = math.sqrt(sum(value * value for value in drawn)) or 1.0
    packed = struct.pack(f"<{dimensions}f", *(value / length for value in drawn))
    return list(struct.unpack(f"<{dimensions}f", packed))


def pack_embedding(vector: list[float]) -> str:
    """Return a vector as OpenAI's `encoding_format: base64`: little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
