"""What a node holds of the registry, on disk: read at the next start, so that it begins with what it knew.

Losing it costs a second of repair from the hubs, so it may never stop a node: what is broken is set aside, a full
disk is remembered and tried again. Nothing in it is trusted: every record proves itself when it is read.
"""

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from node.private import blame, open_in_place
from node.recordfile import Found, frame, frames, unframe
from registry.errors import RecordRefused
from registry.record import Record, decode

COMPACT_B = 1 << 20  # below a megabyte, rewriting saves nothing
COMPACT_RATIO = 4  # of records in the file to records that are held
RETRY_S = 5.0  # after a write that failed
MAX_JOURNAL_B = 1 << 30  # 100,000 records of the largest size, three times over; more is not ours

_NOTHING = Found([], 0, False, "")


class Trouble(NamedTuple):
    """Why the journal could not be read or written."""

    text: str
    hint: str


class Journal:
    """Appends records to a file. Mutable; one thread at a time calls it, and it blocks.

    Nothing is forced to disk: a power cut costs the last seconds, which the hubs have. What a kill cuts short, the
    next start cuts off.

    Attributes:
        trouble: why the last write failed; None when it did not.
    """

    def __init__(self, path: Path, fd: int, size_b: int, count: int, now: Callable[[], float]) -> None:
        """Go on behind what was read; use `open`."""
        self.trouble: Trouble | None = None
        self._path = path
        self._fd = fd  # -1: there is no file now
        self._size_b = size_b
        self._count = count
        self._now = now
        self._failed_at = 0.0  # when the trouble was met last
        self._is_behind = fd < 0  # records are missing in the file: only the whole replica makes it right

    @classmethod
    def open(cls, path: Path, *, now: Callable[[], float]) -> "tuple[Journal, list[Record], Trouble | None]":
        """Open or make a journal.

        Args:
            path: the file.
            now: monotonic seconds, for when to try again.

        Returns:
            The journal, the records it held, and what was wrong with it (None: nothing). It always opens: without a
            file, it tries again later.
        """
        found, fault = _read(path)
        trouble = _set_aside(path, fault) if fault else None
        journal = cls(path, -1, 0, 0, now)
        if trouble is not None or not found.good_b:
            journal._rewrite(found.raws)
        else:
            journal._resume(found)
        records = _decoded(found.raws)
        return journal, records, trouble or journal.trouble

    def append(self, records: Iterable[Record]) -> bool:
        """Write records behind the others; False when they could not be, and `is_due` will ask for all of them."""
        if self._is_behind:
            return False
        raws = [record.raw for record in records]
        content = b"".join(map(frame, raws))
        try:
            _write_all(self._fd, content)
        except OSError as error:
            self._fail(error)
            self._is_behind = True
            self._cut_back()
            return False
        self._size_b += len(content)
        self._count += len(raws)
        return True

    def is_due(self, held: int) -> bool:
        """Whether `compact` should be called now, with as many records as are held."""
        if self.trouble is not None and self._now() < self._failed_at + RETRY_S:
            return False
        is_large = self._size_b > COMPACT_B and self._count > COMPACT_RATIO * max(held, 1)
        return self._is_behind or is_large

    def renounce(self) -> None:
        """What the file holds must not stay there: `is_due` asks for another until one is written."""
        self._is_behind = True

    def compact(self, records: Iterable[Record]) -> bool:
        """Write a new file with these records only; False when that failed, and the old one is as it was."""
        return self._rewrite([record.raw for record in records])

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _resume(self, found: Found) -> None:
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.ftruncate(self._fd, found.good_b)
        except OSError as error:
            self._fail(error)
            return
        self._is_behind = False
        self._size_b = found.good_b
        self._count = len(found.raws)

    def _rewrite(self, raws: Sequence[bytes]) -> bool:
        written = self._path.with_name(f".{self._path.name}.new")
        content = frames(raws)
        fd = -1
        try:
            written.unlink(missing_ok=True)  # of a start that was killed here
            fd = os.open(written, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            _write_all(fd, content)
            written.replace(self._path)
        except OSError as error:
            self._fail(error)
            if fd >= 0:
                os.close(fd)
                _forget(written)
            return False
        self.close()
        self._fd, self._size_b, self._count = fd, len(content), len(raws)
        self._is_behind = False
        self.trouble = None
        return True

    def _fail(self, error: OSError) -> None:
        told = blame(error, self._path)
        self.trouble = Trouble(told.message, told.hint)
        self._failed_at = self._now()

    def _cut_back(self) -> None:
        """Take away a record that was half written: what comes after it could not be read."""
        try:
            os.ftruncate(self._fd, self._size_b)
        except OSError:  # only a new file is of use now
            self.close()


def _read(path: Path) -> tuple[Found, str]:
    try:
        with open_in_place(path) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return _NOTHING, "it is not a file"
            if about.st_size > MAX_JOURNAL_B:
                return _NOTHING, f"it is longer than {MAX_JOURNAL_B} bytes"
            found = unframe(file.read())
    except FileNotFoundError:
        return _NOTHING, ""
    except OSError as error:
        return _NOTHING, blame(error, path).message
    return found, found.fault


def _decoded(raws: Iterable[bytes]) -> list[Record]:
    records: list[Record] = []
    for raw in raws:
        try:
            records.append(decode(raw))
        except RecordRefused:  # of a newer release, perhaps; it is no loss
            continue
    return records


def _set_aside(path: Path, fault: str) -> Trouble:
    try:
        aside = path.with_name(f"{path.name}.corrupt-{int(path.lstat().st_mtime)}")
        path.rename(aside)
    except OSError as error:
        told = blame(error, path)
        return Trouble(f"the journal is broken ({fault}) and cannot be set aside: {told.message}", told.hint)
    return Trouble(
        f"the journal is broken ({fault}); it was set aside as {aside}, and what could be read goes on",
        "nothing is lost: the hubs have it all; the file may be removed",
    )


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _forget(path: Path) -> None:
    try:
        path.unlink()
    except OSError:  # the next rewrite removes it
        return
