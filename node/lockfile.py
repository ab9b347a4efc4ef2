"""A lock that is a file: who holds a directory, taken by one process at a time, and taken over from a dead one.

Works where byte-range locks do not (NFS without a lock daemon, Lustre without `flock`). Only a process of the same
machine can be known dead; a lock of another machine is never taken. Standard library only.
"""

import contextlib
import errno
import json
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from node.private import open_in_place, write_new

MAX_LOCK_B = 4096
UNFINISHED_S = 10.0  # a lock without content this old was left by a crash, not by somebody who is writing it
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Lock(NamedTuple):
    """Who holds a lock. A pid alone says little: another process gets it later, and after a reboot."""

    host: str  # the name the node goes by
    machine: str  # the name the system goes by: what a process can be looked for on
    pid: int
    boot_id: str
    started: int  # of the process, in clock ticks since the boot


class Attempt(NamedTuple):
    """What became of an attempt to take a lock."""

    is_ours: bool
    holder: Lock | None  # who has it instead; None: nobody, or somebody who is writing it down right now


class Live(NamedTuple):
    """What is true of this machine: decides whether a holder is dead."""

    machine: str
    boot_id: str
    start_of: Callable[[int], int]  # when a process started, 0 when there is none

    def is_dead(self, lock: Lock) -> bool:
        """Whether the process that took a lock is known to have ended."""
        if lock.machine != self.machine:
            return False
        return lock.boot_id != self.boot_id or self.start_of(lock.pid) != lock.started


def encode(lock: Lock) -> bytes:
    """A lock as it is written."""
    return json.dumps(lock._asdict()).encode() + b"\n"


def decode(content: bytes) -> Lock | None:
    """Who wrote a lock; None when that is not what the bytes say."""
    try:
        fields = json.loads(content)
        lock = Lock(**fields)
    except (ValueError, TypeError, RecursionError):
        return None
    words_are_text = all(isinstance(word, str) for word in (lock.host, lock.machine, lock.boot_id))
    return lock if words_are_text and type(lock.pid) is int and type(lock.started) is int else None


def read(path: Path) -> bytes | None:
    """The content of a lock file; None when there is none.

    Raises:
        OSError: among others `ELOOP`, when somebody planted a link there.
    """
    try:
        file = open_in_place(path)
    except FileNotFoundError:
        return None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.ELOOP, "not a file", str(path))
        return file.read(MAX_LOCK_B)


def take(path: Path, mine: Lock, live: Live) -> Attempt:
    """Take the lock, also from a dead holder; of several who try, exactly one has it.

    Raises:
        OSError: the directory cannot be written, or somebody planted a link.
    """
    if _place(path, mine):
        return Attempt(True, mine)
    held = read(path)
    if held is None:
        return take(path, mine, live)  # released at this moment
    holder = decode(held)
    if not (live.is_dead(holder) if holder else _is_abandoned(path)):
        return Attempt(False, holder)
    return _take_over(path, mine, live, held)


def release(path: Path, mine: Lock) -> None:
    """Give the lock back; nothing happens when it is not ours."""
    with contextlib.suppress(OSError):
        if read(path) == encode(mine):
            path.unlink()


def _take_over(path: Path, mine: Lock, live: Live, held: bytes) -> Attempt:
    """Replace a dead holder's lock.

    Whoever wants to must hold a second lock, named after the content to be replaced: without it, the slower of two
    would replace what the faster one just wrote. That second lock is taken over by the same rule when its holder
    dies.
    """
    over = path.with_name(f"{path.name.partition('.over-')[0]}.over-{zlib.crc32(held):08x}")
    attempt = take(over, mine, live)
    if not attempt.is_ours:
        return attempt
    try:
        if read(path) != held:
            return take(path, mine, live)  # somebody was faster, and may hold it or have given it back
        _write(path, mine)
        return Attempt(True, mine)
    finally:
        release(over, mine)


def _place(path: Path, mine: Lock) -> bool:
    """Make the file, with its content in it from the first moment; False when there is one."""
    written = _beside(path)
    try:
        write_new(written, encode(mine))
        try:
            os.link(written, path)
        except FileExistsError:
            return written.stat().st_nlink == 2  # NFS: it was made, and the answer to that was lost
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _place_without_links(path, mine)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            written.unlink()


def _place_without_links(path: Path, mine: Lock) -> bool:
    try:
        write_new(path, encode(mine))
    except FileExistsError:
        return False
    return True


def _write(path: Path, mine: Lock) -> None:
    written = _beside(path)
    try:
        write_new(written, encode(mine))
        written.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            written.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")


def _is_abandoned(path: Path) -> bool:
    """Whether a lock without sense in it is old, by the clock of the file system it lies on."""
    probe = _beside(path)
    try:
        write_new(probe, b"")
        return probe.stat().st_mtime - path.stat().st_mtime > UNFINISHED_S
    except FileNotFoundError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            probe.unlink()
