"""The end of a log file, and what is written to it from then on."""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from registry.errors import TelaError

LOOK_S = 0.5
PART_B = 65_536  # a log that grows faster than 128 KB/s is followed late, not lost

Logs = Callable[[str], Path | None]


class Place(NamedTuple):
    """Up to where a log was read."""

    inode: int
    at: int


def tail(path: Path, lines: int, most_b: int) -> tuple[bytes, Place]:
    """The last whole lines of a file, at most `most_b` bytes of them, and where they end. Blocks.

    Raises:
        TelaError: it cannot be read.
    """
    try:
        with _open(path) as file:
            found = os.fstat(file.fileno())
            start = max(0, found.st_size - most_b)
            file.seek(start)
            text = file.read(found.st_size - start)
    except OSError as error:
        raise _unreadable(error) from error
    end = Place(found.st_ino, start + len(text))
    if start:
        text = text[text.find(b"\n") + 1 :]  # it began inside a line
    return _last(text, lines), end


def _last(text: bytes, lines: int) -> bytes:
    if not lines:
        return b""
    at = len(text) - text.endswith(b"\n")
    for _ in range(lines):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


async def follow(path: Path, place: Place) -> AsyncGenerator[bytes, None]:
    """What is written to a file from a place on, for ever; a file that was begun anew is read from its beginning.

    Raises:
        TelaError: it cannot be read any more.
    """
    while True:
        part, place = await asyncio.to_thread(more, path, place)
        if part:
            yield part
        if len(part) < PART_B:
            await asyncio.sleep(LOOK_S)


def more(path: Path, place: Place) -> tuple[bytes, Place]:
    """What was written to a file since, at most `PART_B` bytes, and up to where that is. Blocks.

    Raises:
        TelaError: it cannot be read.
    """
    try:
        with _open(path) as file:
            found = os.fstat(file.fileno())
            at = place.at if found.st_ino == place.inode and found.st_size >= place.at else 0
            file.seek(at)
            part = file.read(PART_B)
    except FileNotFoundError:
        return b"", place  # between two files
    except OSError as error:
        raise _unreadable(error) from error
    return part, Place(found.st_ino, at + len(part))


def _open(path: Path) -> BinaryIO:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "it is no file")
    return os.fdopen(fd, "rb")


def _unreadable(error: OSError) -> TelaError:
    return TelaError(f"the log cannot be read: {error.strerror}", code="no_log")
