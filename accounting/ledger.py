"""The ledger: exactly one usage row for every request that was begun, through any kill.

It ties intents to rows: an intent is on disk before a request is forwarded; its row follows in a batch
from one writer thread. What never got its row gets a recovered one at the next start.
It never blocks the event loop, and never drops a row: it refuses new requests instead.
"""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from accounting.segments import Intent, SegmentWriter, recover, unavailable
from accounting.store import UsageStore
from accounting.usage import STATUS_UNKNOWN, UsageRow
from registry.errors import TelaError

# One commit of 256 rows costs about 2 ms; larger ones gain nothing.
BATCH_ROWS = 256
# The queue lengths at which the writer is woken: the first row, and a full batch.
_WAKES_WRITER = frozenset({1, BATCH_ROWS})
# How long a row may wait for company.
LINGER_S = 0.1
# Requests begun and not yet durable, in flight or waiting. When full, begin() refuses: every request
# begun has room for its row, so settle() always has. About 1 KB each, and 15 s of stuck disk at
# 1,000 requests a second.
MAX_UNWRITTEN = 16_384
# Waits after a failed write: doubled from the first to the last.
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0

# What is wrong with one row and not with the disk: writing it again would fail for ever.
_ROW_FAULTS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)


class _Settled(NamedTuple):
    row: UsageRow
    segment: int


class Ledger:
    """The ledger of one node. `begin` and `settle` belong to one thread, the event loop's.

    Mutable: the loop adds, the writer thread takes away; what both touch is under `_changed`.
    """

    def __init__(self, store: UsageStore, segments: SegmentWriter, recovered: int) -> None:
        """Start the writer thread; use `open`."""
        self.store = store
        # Rows that this start wrote for requests of an earlier run.
        self.recovered = recovered
        # Rows SQLite refused for their content; their intents stay, to be recovered at the next start.
        self.unstorable = 0
        self._segments = segments
        self._begun: dict[str, int] = {}  # rid -> segment, not yet settled; the loop's own
        self._changed = threading.Condition()
        self._queue: deque[_Settled] = deque()  # a row leaves it when it is durable
        self._settled_n = 0
        self._durable_n = 0  # unstorable ones included: nothing waits for them
        self._wanted_n = 0  # flush() asks the writer not to linger before this many are durable
        self._trouble: str | None = None
        self._retry_s = FIRST_RETRY_S
        self._is_closing = False
        self._writer = threading.Thread(target=self._write, name="ledger", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, directory: Path, *, exclusive: bool = False) -> "Ledger":
        """Open the ledger in a directory that no other process uses, and settle what was left.

        Args:
            directory: made when it is not there.
            exclusive: the directory is on a network file system; nobody else can then read the usage rows meanwhile.

        Raises:
            TelaError: the store or the intents cannot be read or written (`ledger_unavailable`).
        """
        intents = directory / "intents"
        try:
            with contextlib.ExitStack() as on_failure:
                # Who used what is for the owner's eyes; mkdir gives its mode to the last part only.
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                intents.mkdir(mode=0o700, exist_ok=True)
                store = UsageStore(directory / "usage.db", exclusive=exclusive)
                on_failure.callback(store.close)
                store.migrate()
                left = recover(intents)
                recovered = store.put([recovered_row(intent) for intent in left.intents])
                left.clear()
                on_failure.pop_all()
        except (sqlite3.Error, OSError) as error:
            raise unavailable(f"the ledger in {directory} cannot be opened: {error}") from error
        return cls(store, SegmentWriter(intents), recovered)

    @property
    def trouble(self) -> str | None:
        """Say why requests are refused now; None = all is well."""
        if self._trouble is None and self.unwritten >= MAX_UNWRITTEN:
            return f"{self.unwritten} requests wait for their usage rows to be written"
        return self._trouble

    def look(self) -> str | None:
        """Say why requests are refused, or would be: as `trouble`, and try to write. One small write, which blocks."""
        if (trouble := self.trouble) is not None:
            return trouble
        try:
            self._segments.probe()
        except TelaError as error:
            return error.message
        return None

    @property
    def unwritten(self) -> int:
        """Return the number of requests begun whose row is not durable yet."""
        return len(self._begun) + len(self._queue)

    def begin(self, rid: str, key_id: str, model: str, ts: float) -> None:
        """Put the intent of a request on disk; only then may it be forwarded.

        Args:
            rid: new for every request.
            key_id: who pays.
            model: the name that will be accounted.
            ts: unix seconds of fabric time.

        Raises:
            TelaError: the request must not be forwarded (`ledger_unavailable`: the disk or the backlog
                is full; `rid_reused`, `intent_invalid`: the caller's mistake).
        """
        if (trouble := self.trouble) is not None:
            raise unavailable(trouble)
        if rid in self._begun:
            raise TelaError(f"request {rid} was begun twice", code="rid_reused")
        try:
            self._begun[rid] = self._segments.intent(rid, key_id, model, ts)
        except TelaError as error:
            if error.code == "ledger_unavailable":
                self._stumble(error.message)
            raise

    def settle(self, row: UsageRow) -> None:
        """Hand over the row of a request that was begun. Never blocks, never drops.

        Raises:
            TelaError: the request was never begun or is settled already (`rid_unknown`).
        """
        segment = self._begun.pop(row.rid, None)
        if segment is None:
            raise TelaError(f"request {row.rid} is not open", code="rid_unknown")
        with self._changed:
            self._queue.append(_Settled(row, segment))
            self._settled_n += 1
            if len(self._queue) in _WAKES_WRITER:
                self._changed.notify_all()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until every row settled so far is durable; False when that took too long. Blocks."""
        with self._changed:
            wanted = self._wanted_n = self._settled_n
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._durable_n >= wanted or self._is_closing, timeout_s)
            return self._durable_n >= wanted

    def close(self, timeout_s: float = 5.0) -> bool:
        """Flush and stop. Blocks.

        Returns:
            False when rows were not written in time: the next start recovers them without tokens.
        """
        is_durable = self.flush(timeout_s)
        with self._changed:
            self._is_closing = True
            self._trouble = "the ledger is closed"
            self._changed.notify_all()
        self._writer.join(timeout_s)
        self._segments.close()
        if not self._writer.is_alive():
            self.store.close()
        return is_durable

    def _write(self) -> None:
        """Write batch after batch: the body of the writer thread."""
        while (batch := self._next_batch()) is not None:
            try:
                stored = self._put(batch)
            except sqlite3.Error as error:
                self._stumble(f"usage rows cannot be written: {error}")
            else:
                self._retire(batch, stored)

    def _next_batch(self) -> list[_Settled] | None:
        """Wait for rows, or out the trouble there is. An empty batch ends trouble without rows."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._trouble)
            if self._trouble is None:
                self._changed.wait_for(self._is_pressed, LINGER_S)
            elif not self._is_closing:
                self._changed.wait_for(lambda: self._is_closing, self._retry_s)
                self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            return None if self._is_closing else list(islice(self._queue, BATCH_ROWS))

    def _is_pressed(self) -> bool:
        is_wanted = self._durable_n < self._wanted_n
        return is_wanted or len(self._queue) >= BATCH_ROWS or self._is_closing

    def _put(self, batch: Sequence[_Settled]) -> list[_Settled]:
        """Write the batch and return what of it was stored: all, but for rows with a fault."""
        try:
            self.store.put([settled.row for settled in batch])
        except _ROW_FAULTS:
            if len(batch) == 1:
                return []
            return [stored for settled in batch for stored in self._put([settled])]
        return list(batch)

    def _retire(self, batch: Sequence[_Settled], stored: Sequence[_Settled]) -> None:
        for settled in stored:
            self._segments.settled(settled.row.rid, settled.segment)
        with self._changed:
            for _ in batch:
                self._queue.popleft()
            self._durable_n += len(batch)
            self.unstorable += len(batch) - len(stored)
            if not self._is_closing:
                self._trouble = None
            self._retry_s = FIRST_RETRY_S
            self._changed.notify_all()

    def _stumble(self, trouble: str) -> None:
        with self._changed:
            if not self._is_closing:
                self._trouble = trouble
            self._changed.notify_all()


def recovered_row(intent: Intent) -> UsageRow:
    """Return the row of a request whose end nobody saw: it counts, its tokens are unknown."""
    return UsageRow(
        rid=intent.rid,
        ts_start=intent.ts,
        ts_first=None,
        ts_end=intent.ts,
        key_id=intent.key_id,
        model=intent.model,
        family="",
        node="",
        replica="",
        attempts=0,
        stream=False,
        status=STATUS_UNKNOWN,
        outcome="recovered",
        prompt_tokens=None,
        cached_tokens=None,
        completion_tokens=None,
        tokens_source="none",
        bytes_in=0,
        bytes_out=0,
    )
