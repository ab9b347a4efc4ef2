"""TLK1 a second time, from docs/protocol-link.md alone: `cryptography` and hashlib, no libsodium.

It also lies on demand: a test may claim another id or sign something else than it should.
"""

import hashlib
import struct
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305


def blake(person: str, *parts: bytes, key: bytes = b"", size: int = 32) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=size, key=key, person=person.encode()).digest()


def th_next(th: bytes, message: bytes) -> bytes:
    return blake("tela1-th", th, struct.pack(">I", len(message)), message)


def first_message(network: bytes, magic: bytes, ephemeral: bytes, nonce: bytes, version: bytes = b"\1\0") -> bytes:
    head = magic + version + ephemeral + nonce
    return head + blake("tela1-m1", head, key=network, size=16)


class End:
    """One end of a handshake; which one depends on the methods called."""

    def __init__(
        self,
        *,
        seed: bytes,
        network: bytes,
        payload: bytes,
        ephemeral_seed: bytes,
        nonce: bytes = bytes(16),
        magic: bytes = b"TLK1",
        claims: bytes | None = None,  # an id that need not be ours
        signs: Callable[[bytes], bytes] | None = None,  # message -> 64 bytes, instead of a signature
    ) -> None:
        identity = Ed25519PrivateKey.from_private_bytes(seed)
        self.id = claims or identity.public_key().public_bytes_raw()
        self.sign = signs or identity.sign
        self.network, self.payload, self.nonce, self.magic = network, payload, nonce, magic
        # crypto_kx derives its secret key by hashing the seed
        self.secret = X25519PrivateKey.from_private_bytes(hashlib.blake2b(ephemeral_seed, digest_size=32).digest())
        self.public = self.secret.public_key().public_bytes_raw()
        self.th = self.prk = self.said = b""
        self.peer = self.peer_signature = self.peer_payload = b""

    def m1(self) -> bytes:
        message = first_message(self.network, self.magic, self.public, self.nonce)
        self.th = th_next(bytes(32), message)
        return message

    def m2(self, m1: bytes) -> bytes:
        assert m1 == first_message(self.network, self.magic, m1[6:38], m1[38:54])
        self.th = th_next(th_next(bytes(32), m1), self.public)
        self._agree(theirs=m1[6:38], initiator=m1[6:38], responder=self.public)
        return self.public + self._introduce(b"m2", b"tela link R\0\0\0\0\0")

    def read_m2(self, m2: bytes) -> None:
        self.th = th_next(self.th, m2[:32])
        self._agree(theirs=m2[:32], initiator=self.public, responder=m2[:32])
        self._recognise(m2[32:], b"m2", b"tela link R\0\0\0\0\0")

    def m3(self) -> bytes:
        return self._introduce(b"m3", b"tela link I\0\0\0\0\0")

    def read_m3(self, m3: bytes) -> None:
        self._recognise(m3, b"m3", b"tela link I\0\0\0\0\0")

    def key(self, label: bytes) -> bytes:
        return blake("tela1-kdf", label, b"\0", self.th, key=self.prk)

    def _agree(self, *, theirs: bytes, initiator: bytes, responder: bytes) -> None:
        shared = self.secret.exchange(X25519PublicKey.from_public_bytes(theirs))
        both = hashlib.blake2b(shared + initiator + responder, digest_size=64).digest()
        self.prk = blake("tela1-prk", both[32:], both[:32], self.th, key=self.network)

    def _introduce(self, label: bytes, domain: bytes) -> bytes:
        said = th_next(self.th, self.id + self.payload)
        claim = self.id + self.sign(domain + said) + self.payload
        box = ChaCha20Poly1305(self.key(label)).encrypt(bytes(12), claim, self.th)
        self.th = th_next(said, box)
        return box

    def _recognise(self, box: bytes, label: bytes, domain: bytes) -> None:
        claim = ChaCha20Poly1305(self.key(label)).decrypt(bytes(12), box, self.th)
        self.peer, self.peer_signature, self.peer_payload = claim[:32], claim[32:96], claim[96:]
        said = th_next(self.th, self.peer + self.peer_payload)
        Ed25519PublicKey.from_public_bytes(self.peer).verify(self.peer_signature, domain + said)
        self.th = th_next(said, box)


class Stream:
    """The sending side of libsodium's secretstream."""

    def __init__(self, key: bytes, header: bytes) -> None:
        # HChaCha20 is a ChaCha20 block without the last addition of the words it has in known places.
        block = struct.unpack("<16I", _chacha(key, header[:16], bytes(64)))
        known = struct.unpack("<8I", b"expand 32-byte k" + header[:16])
        words = (*block[:4], *block[12:])
        self.key = struct.pack("<8I", *((word - add) % 2**32 for word, add in zip(words, known, strict=True)))
        self.front, self.counter, self.mask = header, 1, header[16:24]

    def push(self, plain: bytes, tag: int, ad: bytes = b"") -> bytes:
        clear = bytes(64) + bytes([tag]) + bytes(63) + plain
        stream = _chacha(self.key, bytes(4) + struct.pack("<I", self.counter) + self.mask, clear)
        sealed, box = stream[128:], stream[64:128]
        # The padding after the text is libsodium's own: len, not -len, modulo 16.
        body = ad + bytes(-len(ad) % 16) + box + sealed + bytes(len(plain) % 16)
        mac = Poly1305.generate_tag(stream[:32], body + struct.pack("<QQ", len(ad), 64 + len(plain)))
        self.mask = bytes(a ^ b for a, b in zip(self.mask, mac, strict=False))
        self.counter += 1
        front, self.front = self.front, b""
        return front + box[:1] + sealed + mac


def _chacha(key: bytes, nonce: bytes, clear: bytes) -> bytes:
    return Cipher(ChaCha20(key, nonce), mode=None).encryptor().update(clear)
