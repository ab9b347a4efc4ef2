"""Digests: finding what two replicas differ in without sending them.

A shelf is cut into 256 buckets by the hash of the register's key. A root (16 bytes) rides on every ping; on a
difference the 256 bucket digests (8 bytes each) are compared, then the entries (8 bytes of key hash, 8 of
record hash) of the buckets that differ. Hashes, not sums: nobody can craft records that cancel out. Updates
are O(1); a bucket is hashed again only when it is asked for.
"""

import hashlib

from registry.record import Key

BUCKETS = 256
ROOT_B = 16
DIGEST_B = 8

Entries = dict[bytes, bytes]  # 8 bytes of key hash -> 8 bytes of record hash


def slot_of(key: Key) -> bytes:
    """The 8-byte address of a register in the digests; its first byte is the bucket."""
    packed = b"\0".join((key.kind.encode(), key.id.encode(), key.owner))
    return hashlib.blake2b(packed, digest_size=8, person=b"tela-slot").digest()


class Digest:
    """The digests of one shelf. Changed only by `put` and `remove`, called by the shelf that owns it."""

    __slots__ = ("_buckets", "_root", "_sums")

    def __init__(self) -> None:
        self._buckets: list[Entries] = [{} for _ in range(BUCKETS)]
        self._sums: list[bytes | None] = [None] * BUCKETS  # None: to be hashed again
        self._root: bytes | None = None

    def put(self, slot: bytes, record_hash: bytes) -> None:
        """Record what a register now holds."""
        self._buckets[slot[0]][slot] = record_hash[:8]
        self._touch(slot[0])

    def remove(self, slot: bytes) -> None:
        """Forget a register."""
        self._buckets[slot[0]].pop(slot, None)
        self._touch(slot[0])

    def root(self) -> bytes:
        """16 bytes that are equal exactly when two shelves hold the same records."""
        if self._root is None:
            sums = b"".join(self.sums())
            self._root = hashlib.blake2b(sums, digest_size=ROOT_B, person=b"tela-root").digest()
        return self._root

    def sums(self) -> list[bytes]:
        """The digest of each bucket."""
        return [self._sum(index) for index in range(BUCKETS)]

    def differing(self, theirs: bytes) -> list[int]:
        """The buckets in which another shelf, given its concatenated digests, differs from this one."""
        return [
            index for index, own in enumerate(self.sums()) if own != theirs[index * DIGEST_B : (index + 1) * DIGEST_B]
        ]

    def entries(self, bucket: int) -> Entries:
        """What a bucket holds."""
        return self._buckets[bucket]

    def _touch(self, bucket: int) -> None:
        self._sums[bucket] = None
        self._root = None

    def _sum(self, bucket: int) -> bytes:
        known = self._sums[bucket]
        if known is None:
            packed = b"".join(slot + entry for slot, entry in sorted(self._buckets[bucket].items()))
            known = hashlib.blake2b(packed, digest_size=DIGEST_B, person=b"tela-bucket").digest()
            self._sums[bucket] = known
        return known
