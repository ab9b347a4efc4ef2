"""TLK1's hashes, keys and introductions: what both ends of a handshake compute the same way.

Values in, values out: no state, clock, dice or I/O. `gossip.handshake` decides who says what when;
`docs/protocol-link.md` is the specification, and the names th1, PRK and K are its names.
"""

from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_decrypt,
    crypto_aead_chacha20poly1305_ietf_encrypt,
    crypto_sign,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from gossip.errors import RemoteProtocolError

KEY_B = 32  # every key, id, seed and hash of TLK1
MAC_B = 16
SIGNATURE_B = 64
CLAIM_B = KEY_B + SIGNATURE_B + 16  # id, signature and AEAD tag: an introduction without its HELLO

# A HELLO holds two certificates, each at most a 4 KB record, and a few fields of its own; the limit is
# what an end that proved nothing yet can make us hold and hash.
MAX_HELLO_B = 12_288

# Each introduction has its own key from a fresh Diffie-Hellman, so one fixed nonce is used once.
_NONCE = bytes(12)
_FIELD_PRIME = 2**255 - 19


class Role(Enum):
    """Which end speaks: the label of its box key, and the domain of its signature (16 bytes)."""

    INITIATOR = (b"m3", b"tela link I".ljust(16, b"\0"))
    RESPONDER = (b"m2", b"tela link R".ljust(16, b"\0"))

    @property
    def box_label(self) -> bytes:
        """The label its introduction's key is derived under."""
        return self.value[0]

    @property
    def domain(self) -> bytes:
        """What its signature starts with: no other signature of tela starts so."""
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """Who the other end proved to be."""

    peer: bytes  # its Ed25519 id key
    payload: bytes  # its HELLO
    th: bytes  # the transcript hash, its introduction included


def first_mac(network: bytes, head: bytes) -> bytes:
    """Return the 16 bytes which end M1: its sender knows the network."""
    return blake2b(head, digest_size=MAC_B, key=network, person=b"tela1-m1").digest()


def chain(th: bytes, message: bytes) -> bytes:
    """Return TH(th, message): the transcript hash with one more message in it."""
    sized = len(message).to_bytes(4, "big") + message
    return blake2b(th + sized, digest_size=KEY_B, person=b"tela1-th").digest()


def extract(network: bytes, *, i2r: bytes, r2i: bytes, th: bytes) -> bytes:
    """Return PRK from the two `crypto_kx` keys and the transcript up to both ephemeral keys."""
    shared = i2r + r2i + th
    return blake2b(shared, digest_size=KEY_B, key=network, person=b"tela1-prk").digest()


def derive(prk: bytes, label: bytes, th: bytes) -> bytes:
    """Return K(label, th): the key for one purpose at one point of the transcript."""
    purpose = label + b"\0" + th
    return blake2b(purpose, digest_size=KEY_B, key=prk, person=b"tela1-kdf").digest()


def check_point(point: bytes) -> None:
    """Refuse an X25519 key that is not the canonical encoding of its point (RFC 7748 §5).

    The canonical low-order points are left to `crypto_kx`, which refuses an all-zero secret.

    Raises:
        RemoteProtocolError: code `handshake_point`.
    """
    if int.from_bytes(point, "little") >= _FIELD_PRIME:
        raise refusal("the ephemeral key is not canonical", "point")


def introduce(role: Role, prk: bytes, th: bytes, *, seed: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Sign who we are into the transcript, and seal it for the other end.

    Args:
        role: which end we are.
        prk: the secret of this handshake.
        th: the transcript so far.
        seed: our Ed25519 seed.
        payload: our HELLO.

    Returns:
        The sealed introduction, and the transcript hash that includes it.
    """
    public, secret = crypto_sign_seed_keypair(seed)
    said = chain(th, public + payload)
    signature = crypto_sign(role.domain + said, secret)[:SIGNATURE_B]
    claim = public + signature + payload
    key = derive(prk, role.box_label, th)
    box = crypto_aead_chacha20poly1305_ietf_encrypt(claim, th, _NONCE, key)
    return box, chain(said, box)


def recognise(role: Role, prk: bytes, th: bytes, *, box: bytes, own: bytes, pinned: bytes | None) -> Introduction:
    """Open the other end's introduction and verify who it is.

    Args:
        role: which end it is.
        prk: the secret of this handshake.
        th: the transcript so far.
        box: its sealed introduction, at least `CLAIM_B` long.
        own: our id key, which nobody else may have.
        pinned: the only id key we want to meet; None meets anyone.

    Raises:
        RemoteProtocolError: codes `handshake_box`, `handshake_own_id`, `handshake_pin` and
            `handshake_signature`.
    """
    claim = _open(derive(prk, role.box_label, th), th, box)
    peer, signature = claim[:KEY_B], claim[KEY_B : KEY_B + SIGNATURE_B]
    payload = claim[KEY_B + SIGNATURE_B :]
    if peer == own:
        raise refusal("the other end shows our own id", "own_id")
    if pinned is not None and peer != pinned:
        raise refusal(f"met {peer.hex()[:16]} where {pinned.hex()[:16]} was expected", "pin")
    said = chain(th, peer + payload)
    _verify(peer, signature, role.domain + said)
    return Introduction(peer=peer, payload=payload, th=chain(said, box))


def refusal(reason: str, code: str) -> RemoteProtocolError:
    """Return the error for a handshake the other end broke."""
    return RemoteProtocolError(f"handshake refused: {reason}", code=f"handshake_{code}")


def _open(key: bytes, th: bytes, box: bytes) -> bytes:
    try:
        return crypto_aead_chacha20poly1305_ietf_decrypt(box, th, _NONCE, key)
    except CryptoError as error:
        raise refusal("the introduction is not sealed for this handshake", "box") from error


def _verify(peer: bytes, signature: bytes, message: bytes) -> None:
    # libsodium refuses small-order and non-canonical keys, small-order R and S >= L; tests hold it to that.
    try:
        crypto_sign_open(signature + message, peer)
    except CryptoError as error:
        raise refusal(f"the signature is not {peer.hex()[:16]}'s for this handshake", "signature") from error
