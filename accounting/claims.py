"""Claims: one-use secrets with which the person a key is for fetches it. Pure.

A claim has the form of a key with another prefix, so that each is told from the other, and both from an invite, before
anybody is asked.
"""

from hashlib import sha256

from accounting.keys import CLAIM, PREFIX, looks_valid, mint


def mint_claim(entropy: bytes) -> str:
    """The claim that carries 32 bytes of entropy."""
    return CLAIM + mint(entropy).removeprefix(PREFIX)


def looks_like_claim(text: str) -> bool:
    """Whether a text has a claim's form and checksum."""
    return text.startswith(CLAIM) and looks_valid(PREFIX + text.removeprefix(CLAIM))


def claim_digest(claim: str) -> bytes:
    """The SHA-256 under which a claim is kept."""
    return sha256(claim.encode("utf-8", "surrogatepass")).digest()
