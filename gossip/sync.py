"""Repair by digest: what to answer when two replicas differ. Pure; `gossip.peer` decides when to begin.

Sum → Entries → Records and Want → Records. Both ends end with the join of what they held, whatever was lost,
repeated or reordered on the way, because each step only ever adds records.
"""

from collections.abc import Iterable, Iterator

from gossip.frames import PAIR_B, Entries, Frame, Sum, Want, batches
from registry.digest import DIGEST_B
from registry.record import Audience
from registry.replica import Shelf

MAX_PAIRS = 3_500  # a bucket beyond this is repaired in several rounds


def opening(audience: Audience, shelf: Shelf) -> Sum:
    """The first step: the digests of every bucket."""
    return Sum(audience, b"".join(shelf.digest.sums()))


def answer_sum(frame: Sum, shelf: Shelf) -> Iterator[Frame]:
    """What we hold in the buckets that differ."""
    for bucket in shelf.digest.differing(frame.sums):
        pairs = list(shelf.digest.entries(bucket).items())[:MAX_PAIRS]
        yield Entries(frame.shelf, bucket, b"".join(slot + entry for slot, entry in pairs))


def answer_entries(frame: Entries, shelf: Shelf) -> Iterator[Frame]:
    """The records they lack or hold otherwise, and the addresses of those we do."""
    theirs = dict(_pairs(frame.pairs))
    ours = shelf.digest.entries(frame.bucket)
    yield from _records(shelf, (slot for slot, entry in ours.items() if theirs.get(slot) != entry))
    want = b"".join(slot for slot, entry in theirs.items() if ours.get(slot) != entry)
    if want:
        yield Want(frame.shelf, want)


def answer_want(frame: Want, shelf: Shelf) -> Iterator[Frame]:
    """The records asked for, as far as we still hold them, each once however often it is asked for."""
    at = range(0, len(frame.slots), DIGEST_B)
    yield from _records(shelf, dict.fromkeys(frame.slots[start : start + DIGEST_B] for start in at))


def _records(shelf: Shelf, slots: Iterable[bytes]) -> Iterator[Frame]:
    return batches(record.raw for slot in slots if (record := shelf.at(slot)) is not None)


def _pairs(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    for start in range(0, len(packed), PAIR_B):
        yield packed[start : start + 8], packed[start + 8 : start + PAIR_B]
