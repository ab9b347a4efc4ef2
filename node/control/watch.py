"""Conflation: what changed since a version, however much happened in between. Pure.

Each row carries the version of its last change. A reader names the version it has seen and gets one merged answer: a
slow one costs no memory and misses nothing but what was overtaken.
"""

from collections.abc import Mapping
from typing import NamedTuple

MAX_GONE = 10_000  # rows that went and are remembered per table, so that a reader from before hears of it

Tables = Mapping[str, Mapping[str, object]]


class Changes(NamedTuple):
    """Rows by table and id; None for one that went."""

    epoch: str
    version: int
    is_reset: bool  # these are all rows there are: forget others
    tables: dict[str, dict[str, object | None]]

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not self.is_reset and not any(self.tables.values())


class _Versioned(NamedTuple):
    version: int
    row: object | None  # None: it went


class Conflator:
    """The rows as they are now, and when each changed last. Mutable: `update` changes it.

    Args:
        epoch: a word that no other conflator uses, so that versions of another are recognised.
        tables: the names of the tables.
        max_gone: how many rows that went are remembered per table.
    """

    def __init__(self, epoch: str, tables: tuple[str, ...], *, max_gone: int = MAX_GONE) -> None:
        self.epoch = epoch
        self.version = 1  # a reader who has seen nothing says 0
        self._tables: dict[str, dict[str, _Versioned]] = {name: {} for name in tables}  # oldest change first
        self._gone = dict.fromkeys(tables, 0)
        self._floor = 0  # readers from before this version may have missed that a row went
        self._max_gone = max_gone

    def update(self, tables: Tables) -> bool:
        """Take the rows of this moment; tables that are not named stay. True when anything changed."""
        version = self.version + 1
        is_changed = False
        for name, rows in tables.items():
            is_changed |= self._update(name, rows, version)
        if is_changed:
            self.version = version
        return is_changed

    def _update(self, name: str, rows: Mapping[str, object], version: int) -> bool:
        held = self._tables[name]
        changed: list[tuple[str, object | None]] = [
            (key, row) for key, row in rows.items() if (old := held.get(key)) is None or old.row != row
        ]
        changed += [(key, None) for key, old in held.items() if old.row is not None and key not in rows]
        for key, row in changed:
            before = held.pop(key, None)
            held[key] = _Versioned(version, row)
            self._gone[name] += (row is None) - (before is not None and before.row is None)
        self._forget(name)
        return bool(changed)

    def _forget(self, name: str) -> None:
        if self._gone[name] <= self._max_gone:
            return
        held = self._tables[name]
        gone = [(key, old.version) for key, old in held.items() if old.row is None]
        for key, version in gone[: len(gone) - self._max_gone]:
            del held[key]
            self._floor = max(self._floor, version)
        self._gone[name] = self._max_gone

    def since(self, epoch: str, version: int) -> Changes:
        """What a reader who has seen `version` of `epoch` does not know yet; everything when that cannot be told."""
        if epoch != self.epoch or not self._floor <= version <= self.version or version <= 0:
            every = {name: {k: v.row for k, v in rows.items() if v.row is not None} for name, rows in self._held()}
            return Changes(self.epoch, self.version, is_reset=True, tables=every)
        news = {name: _newer(rows, version) for name, rows in self._held()}
        return Changes(self.epoch, self.version, is_reset=False, tables=news)

    def _held(self) -> list[tuple[str, dict[str, _Versioned]]]:
        return list(self._tables.items())


def _newer(rows: dict[str, _Versioned], version: int) -> dict[str, object | None]:
    found: dict[str, object | None] = {}
    for key, held in reversed(rows.items()):
        if held.version <= version:
            break
        found[key] = held.row
    return found
