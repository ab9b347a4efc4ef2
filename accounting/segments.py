"""Intents: one line on disk before a request is forwarded, so that no kill makes it unaccounted.

Lines are written, not synced: they survive the death of this process (SIGKILL, the OOM killer), not a
power cut. One process owns a directory; the caller holds the lock that says so.
"""

import contextlib
import errno
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from registry.errors import TelaError

# About 2,000 intents: read back in milliseconds, and rotated (some 50 µs) every few seconds at most.
DEFAULT_SEGMENT_B = 256 * 1024

# A page: what the last block of a segment has room for says nothing about the disk.
_PROBE = bytes(4096)
_NAME = re.compile(r"intents-(\d{8,})\.jsonl(\.corrupt)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A request about to be forwarded. `ts` is unix seconds of fabric time."""

    rid: str
    key_id: str
    model: str
    ts: float


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Intent).decode


class SegmentWriter:
    """The segments of this run. Mutable: one thread writes intents, any thread may settle them."""

    def __init__(self, directory: Path, *, max_b: int = DEFAULT_SEGMENT_B) -> None:
        """Continue after the highest segment there is; the first file appears with the first intent.

        Args:
            directory: exists, and is written by nobody else.
            max_b: a segment that would grow past this is closed and the next one begun.
        """
        self._directory = directory
        self._max_b = max_b
        self._number = max((number for number, _ in _segments(directory)), default=0)
        self._fd: int | None = None  # of the current segment; None = the next intent opens one
        self._size_b = 0
        self._live: dict[int, set[str]] = {}  # unsettled rids of each segment that has a file
        self._lock = threading.Lock()  # guards _live, and _fd and _number where they decide with it

    def intent(self, rid: str, key_id: str, model: str, ts: float) -> int:
        """Write one intent and return the number of its segment. One write call, no sync.

        Raises:
            TelaError: nothing was written (code `ledger_unavailable`: the disk refused; code
                `intent_invalid`: not encodable), so the request must not be forwarded.
        """
        try:
            line = _encode({"rid": rid, "key_id": key_id, "model": model, "ts": ts}) + b"\n"
        except UnicodeEncodeError as error:
            raise TelaError("an id or model name is not text", code="intent_invalid") from error
        try:
            if self._fd is None or self._size_b + len(line) > self._max_b:
                self._rotate()
            self._write(line)
        except OSError as error:
            raise unavailable(f"the intent of a request cannot be written: {error}") from error
        with self._lock:
            self._live[self._number].add(rid)
        return self._number

    def settled(self, rid: str, segment: int) -> None:
        """Take note that the row of this intent is durable; a closed segment left empty is deleted."""
        with self._lock:
            if (live := self._live.get(segment)) is None:
                return
            live.discard(rid)
            dead = self._take_if_dead(segment)
        self._delete(dead)

    def probe(self) -> None:
        """Write a page beside the segments and take it away again.

        Raises:
            TelaError: the disk takes nothing now (`ledger_unavailable`).
        """
        path = self._directory / ".probe"
        try:
            path.write_bytes(_PROBE)
        except OSError as error:
            raise unavailable(f"nothing can be written to {self._directory}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Close the current segment; it stays on disk while one of its intents is unsettled."""
        self._delete(self._close_current())

    def _write(self, line: bytes) -> None:
        assert self._fd is not None
        written_b = os.write(self._fd, line)
        if written_b != len(line):
            self._cut_back(self._fd)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size_b += written_b

    def _cut_back(self, fd: int) -> None:
        # Half a line in the middle would spoil the next one. Where it cannot be cut off, it stays
        # the last of its segment, and a reader forgives a torn end.
        try:
            os.ftruncate(fd, self._size_b)
        except OSError:
            self.close()

    def _rotate(self) -> None:
        self.close()
        fd = os.open(
            self._path(self._number + 1),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600,
        )
        with self._lock:
            self._number += 1
            self._live[self._number] = set()
            self._fd, self._size_b = fd, 0

    def _close_current(self) -> int | None:
        with self._lock:
            if self._fd is None:
                return None
            fd, self._fd = self._fd, None
            os.close(fd)
            return self._take_if_dead(self._number)

    def _take_if_dead(self, segment: int) -> int | None:
        is_current = self._fd is not None and segment == self._number
        if is_current or self._live[segment]:
            return None
        del self._live[segment]
        return segment

    def _delete(self, segment: int | None) -> None:
        if segment is not None:
            # One that cannot be deleted is read again at the next start, and changes nothing.
            with contextlib.suppress(OSError):
                self._path(segment).unlink()

    def _path(self, segment: int) -> Path:
        return self._directory / f"intents-{segment:08d}.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What earlier runs left behind. `clear` it once every intent has a durable row."""

    intents: list[Intent]
    clean: tuple[Path, ...]
    # Segments with lines that are no intent: kept beside the others as *.corrupt.
    spoiled: tuple[Path, ...]
    corrupt_lines: int

    def clear(self) -> None:
        """Delete the clean segments and set the spoiled ones aside."""
        for path in self.clean:
            path.unlink(missing_ok=True)
        for path in self.spoiled:
            path.rename(path.with_name(path.name + ".corrupt"))


def recover(directory: Path) -> Recovery:
    """Read every intent found at start, oldest segment first, before a writer is made.

    The last line of a segment may be torn: its request was never forwarded. Any other line that is
    no intent is counted and skipped.

    Raises:
        TelaError: a segment cannot be read.
    """
    intents: list[Intent] = []
    corrupt: dict[Path, int] = {}
    for _, path in sorted(_segments(directory)):
        if path.suffix == ".jsonl":
            corrupt[path] = _read(path, intents)
    return Recovery(
        intents=intents,
        clean=tuple(path for path, lines in corrupt.items() if not lines),
        spoiled=tuple(path for path, lines in corrupt.items() if lines),
        corrupt_lines=sum(corrupt.values()),
    )


def unavailable(message: str) -> TelaError:
    """Return the error that refuses a request because its usage could not be accounted for."""
    return TelaError(
        message,
        hint="Free space on the disk of the ledger, or retry in a moment.",
        code="ledger_unavailable",
    )


def _read(path: Path, into: list[Intent]) -> int:
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except OSError as error:
        raise unavailable(f"the intents in {path} cannot be read: {error}") from error
    corrupt = 0
    for line in lines:
        try:
            into.append(_decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            corrupt += 1
    return corrupt


def _segments(directory: Path) -> list[tuple[int, Path]]:
    named = ((_NAME.match(path.name), path) for path in directory.iterdir())
    return [(int(match[1]), path) for match, path in named if match]
