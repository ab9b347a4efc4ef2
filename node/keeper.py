"""Keeps on disk what the node would not like to lose: its replica of the registry and what it saw happen.

Neither is needed to run: a node without them hears everything again. So nothing here may stop a node.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from node.eventlog import EventLog
from node.events import outcomes, transitions
from node.journal import Journal, Trouble
from registry.errors import RecordRefused
from registry.ids import key_id
from registry.lifecycle import Rank
from registry.record import Audience, Key, Record
from registry.replica import Replica
from registry.views import Snapshot

Say = Callable[[dict[str, object]], None]


class Before(NamedTuple):
    """What the journal says of earlier runs of this node."""

    prev: str  # how the last one ended: left, lost, or nothing when there was none
    ghosts: tuple[Record, ...]  # its engines' runs that nobody ended
    runs: dict[str, int]  # the highest run number by slot; of the node itself under "node"


class Keeper:
    """Writes down changes of the registry. Mutable; its files are written by one thread at a time.

    Args:
        state: the node's directory.
        replica: the registry.
        now: monotonic seconds.
        wall: unix seconds.
        say: narration, told of trouble.
    """

    def __init__(
        self, state: Path, replica: Replica, *, now: Callable[[], float], wall: Callable[[], float], say: Say
    ) -> None:
        self.events = EventLog.open(state / "events")
        self._replica = replica
        self._wall = wall
        self._say = say
        self._kept: dict[Key, bytes] = {}
        self._seen: Snapshot | None = None
        self._journal, self._found, trouble = Journal.open(state / "journal", now=now)
        self._told: Trouble | None = None
        self._lock = threading.Lock()  # of the files
        self._tell(trouble)

    def load(self, owner: bytes, *, accounts: bool = False) -> Before:
        """Take what the journal holds into the replica.

        What this release refuses is left out, since it came from others and a node must start all the same; so are
        names and keys on a node that holds the accounts shelf no more. Neither stays on the disk.

        Args:
            owner: this node's key.
            accounts: whether it holds the accounts shelf.
        """
        unwanted = sum(not self._takes(record, accounts=accounts) for record in self._found)
        self._found = []
        if unwanted:
            self._journal.renounce()  # so that a disk which is full now is no way out
            self._journal.compact([entry.record for entry in self._replica])
            self._tell(self._journal.trouble)
        self._kept = {entry.record.key: entry.record.order.hash for entry in self._replica}
        own = [entry.record for entry in self._replica if entry.record.key.owner == owner]
        node = next((record for record in own if record.key.kind == "node"), None)
        engines = [record for record in own if record.key.kind == "replica"]
        runs = {record.key.id.removeprefix(f"{key_id(owner)}/"): record.order.run for record in engines}
        if node is None:
            return Before("", (), runs)
        prev = "left" if node.order.rank == Rank.LEFT else "lost"
        ghosts = tuple(record for record in engines if record.order.rank != Rank.LEFT)
        return Before(prev, ghosts, runs | {"node": node.order.run})

    def _takes(self, record: Record, *, accounts: bool) -> bool:
        if record.key.audience is Audience.ACCOUNTS and not accounts:
            return False
        try:
            self._replica.apply(record)
        except RecordRefused:
            return False
        return True

    async def look(self, view: Snapshot) -> None:
        """Write down what changed since the last look."""
        at = self._wall()
        news = [entry.record for entry in self._replica if self._kept.get(entry.record.key) != entry.record.order.hash]
        happened = [*transitions(self._seen, view, at), *outcomes(news, view, at)]
        for event in happened:
            self.events.add(event)
        self._seen = view
        self._kept.update((record.key, record.order.hash) for record in news)
        if news or happened or self._journal.trouble is not None:
            due = self._journal.is_due(len(self._replica))
            everything = [entry.record for entry in self._replica] if due else []
            await asyncio.to_thread(self._write, news, everything)
            self._tell(self._journal.trouble)

    @property
    def trouble(self) -> Trouble | None:
        """Why the journal cannot be written now."""
        return self._journal.trouble

    def close(self) -> None:
        """Write what is left, as our own LEFT, and close the files."""
        self._write([each.record for each in self._replica if self._is_news(each.record)], [])
        self._journal.close()
        self.events.close()

    def _is_news(self, record: Record) -> bool:
        return self._kept.get(record.key) != record.order.hash

    def _write(self, news: list[Record], everything: list[Record]) -> None:
        with self._lock:  # the thread of a look that was cancelled may still be at it
            if not (everything and self._journal.compact(everything)):
                self._journal.append(news)
            self.events.flush()

    def _tell(self, trouble: Trouble | None) -> None:
        if trouble is not None and trouble != self._told:
            self._say({"event": "trouble", "code": "journal", "text": trouble.text, "hint": trouble.hint})
        self._told = trouble
