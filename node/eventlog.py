"""The journal of events of one node: one JSON object a line, in two files that take turns.

Losing it costs nobody anything, so it may never stop a node: what is torn is passed over, and a full disk is
remembered. Kept: seven days at least, unless there was more than `MAX_ROWS`.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from node.events import Event
from node.private import blame, open_in_place

MAX_ROWS = 100_000
KEPT_S = 7 * 86_400.0
TAIL_ROWS = 1_000  # kept in memory: what is asked for most
MAX_WAITING = 10_000  # rows not on disk yet; of more, the oldest are forgotten
MAX_LINE_B = 16_384

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class EventLog:
    """Events in the order they were seen. Mutable.

    `add` and `since` belong to the loop; `flush` blocks and belongs to another thread, which `add` never waits for.

    Attributes:
        last_seq: the number of the newest event; 0 when there is none.
        trouble: why the log cannot be written; empty: it can.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there; use `open`."""
        self.last_seq = 0
        self.trouble = ""
        self._path = path
        self._old = path.with_name(f"{path.name}.1")
        self._tail: deque[Event] = deque(maxlen=TAIL_ROWS)
        self._waiting: deque[Event] = deque(maxlen=MAX_WAITING)
        self._queueing = threading.Lock()  # of what waits; never held while a disk is waited for
        self._writing = threading.Lock()  # of the files
        self._rows = 0  # in the current file
        self._begun = 0.0  # the time of its first event
        for event in _events(self._old):
            self._remember(event)
        for event in _events(path):
            self._remember(event)
            self._begun = self._begun if self._rows else event.at
            self._rows += 1

    @classmethod
    def open(cls, path: Path) -> "EventLog":
        """Open or begin the log; what cannot be read is passed over."""
        return cls(path)

    def add(self, event: Event) -> Event:
        """Give an event its number. It is on disk after the next `flush`."""
        numbered = msgspec.structs.replace(event, seq=self.last_seq + 1)
        with self._queueing:
            self._waiting.append(numbered)
        self._remember(numbered)
        return numbered

    def since(self, seq: int, limit: int) -> list[Event]:
        """At most `limit` events numbered above `seq`, oldest first. Reads the files only for what is long ago."""
        tail = list(self._tail)
        if not tail or seq >= tail[0].seq - 1:
            return [event for event in tail if event.seq > seq][:limit]
        found: list[Event] = []
        with self._writing:
            for event in self._stored():
                if event.seq > seq and (not found or event.seq > found[-1].seq):
                    found.append(event)
                    if len(found) >= limit:
                        return found
            waiting = self._queued()
        last = found[-1].seq if found else seq
        return [*found, *(event for event in waiting if event.seq > last)][:limit]

    def flush(self) -> bool:
        """Write what waits; False when that failed, and it goes on waiting. Blocks."""
        with self._writing:
            rows = self._queued()
            if not rows:
                return not self.trouble
            try:
                self._write(rows)
            except OSError as error:
                self.trouble = blame(error, self._path).message
                return False
            with self._queueing:
                while self._waiting and self._waiting[0].seq <= rows[-1].seq:
                    self._waiting.popleft()
            self.trouble = ""
            return True

    def close(self) -> None:
        """Write what waits."""
        self.flush()

    def _remember(self, event: Event) -> None:
        if event.seq > self.last_seq:
            self.last_seq = event.seq
            self._tail.append(event)

    def _stored(self) -> Iterator[Event]:
        yield from _events(self._old)
        yield from _events(self._path)

    def _queued(self) -> list[Event]:
        with self._queueing:
            return list(self._waiting)

    def _write(self, rows: list[Event]) -> None:
        first = rows[0]
        if self._rows >= MAX_ROWS // 2 or (self._rows and first.at - self._begun > KEPT_S):
            self._path.replace(self._old)
            self._rows = 0
        _append(self._path, b"".join(_encode(event) + b"\n" for event in rows))
        self._begun = self._begun if self._rows else first.at
        self._rows += len(rows)


def _append(path: Path, lines: bytes) -> None:
    """Add whole lines or nothing; behind a line that was torn, begin a new one."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        view = memoryview(b"\n" + lines if is_torn else lines)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def _events(path: Path) -> Iterator[Event]:
    """The events of one file; lines that are none are passed over."""
    try:
        with open_in_place(path) as file:
            while line := file.readline(MAX_LINE_B):
                with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                    yield _decode(line)
    except OSError:
        return
