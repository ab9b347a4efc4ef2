"""The two shelves of a node's replica of the registry: apply, drop, and what they hold.

One mutable class, written by one loop. Readers derive everything from it (`registry.validity`,
`registry.views`) and may cache by `version`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from registry.digest import Digest, slot_of
from registry.kinds import Body, Opaque, read_body
from registry.lattice import supersedes
from registry.record import Audience, Key, Record


class Entry(NamedTuple):
    """A record and what its body says."""

    record: Record
    body: Body | Opaque


class Shelf:
    """The records of one audience and their digest."""

    __slots__ = ("_slots", "digest", "entries")

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self._slots: dict[bytes, Key] = {}
        self.digest = Digest()

    def put(self, record: Record, body: Body | Opaque) -> None:
        """Hold a record in its register."""
        slot = slot_of(record.key)
        self.entries[record.key] = Entry(record, body)
        self._slots[slot] = record.key
        self.digest.put(slot, record.order.hash)

    def remove(self, key: Key) -> None:
        """Forget a register."""
        slot = slot_of(key)
        del self.entries[key]
        del self._slots[slot]
        self.digest.remove(slot)

    def at(self, slot: bytes) -> Record | None:
        """The record at an 8-byte digest address, None when nothing lies there."""
        key = self._slots.get(slot)
        return self.entries[key].record if key is not None else None


class Replica:
    """Everything a node knows. Changed only by `apply` and `drop`; `version` grows with each change."""

    __slots__ = ("_by_kind", "shelves", "version")

    def __init__(self) -> None:
        self.shelves = {audience: Shelf() for audience in Audience}
        self._by_kind: dict[str, dict[Key, Entry]] = {}
        self.version = 0

    def apply(self, record: Record) -> bool:
        """Merge a record; True when it was news.

        Raises:
            RecordRefused: when the record's kind is known and its body is not acceptable.
        """
        held = self.get(record.key)
        if not supersedes(record, held.record if held else None):
            return False
        body = read_body(record)
        self.shelves[record.key.audience].put(record, body)
        self._by_kind.setdefault(record.key.kind, {})[record.key] = Entry(record, body)
        self.version += 1
        return True

    def drop(self, condemned: Callable[[Entry], bool]) -> int:
        """Forget what `condemned` says; returns how many records went."""
        keys = [entry.record.key for entry in self if condemned(entry)]
        for key in keys:
            del self._by_kind[key.kind][key]
            self.shelves[key.audience].remove(key)
        self.version += bool(keys)
        return len(keys)

    def get(self, key: Key) -> Entry | None:
        """What a register holds."""
        return self._by_kind.get(key.kind, {}).get(key)

    def of_kind(self, kind: str) -> Iterator[Entry]:
        """Every record of one kind."""
        return iter(self._by_kind.get(kind, {}).values())

    def __iter__(self) -> Iterator[Entry]:
        return (entry for shelf in self.shelves.values() for entry in shelf.entries.values())

    def __len__(self) -> int:
        return sum(len(shelf.entries) for shelf in self.shelves.values())
