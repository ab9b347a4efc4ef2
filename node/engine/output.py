"""The log of an engine: what it prints, on this node's disk, ours alone and bounded.

Nothing of it leaves here but its class (`node.engine.causes`) and what its owner asks for.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from registry.errors import TelaError

MAX_LOG_B = 64 * 1024 * 1024
TAIL_B = 16 * 1024  # of a dead engine's log; a Python traceback of the deepest kind is half of it
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def open_log(path: Path) -> int:
    """Return a descriptor that appends; the file is ours alone, whatever the umask or an earlier file said.

    Raises:
        TelaError: it cannot be written, or is a link.
    """
    try:
        return _private(path, os.O_APPEND)
    except OSError as error:
        hint = "its directory must exist and be writable, and the file be ours"
        raise TelaError(f"engine log {path}: {error.strerror}", hint=hint, code="log_not_writable") from error


def size_of(path: Path) -> int:
    """How long a log is, in bytes; 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def cap_log(path: Path, limit_b: int = MAX_LOG_B) -> bool:
    """Move a log that is too long aside to `.1` and go on with an empty one; returns whether that was done.

    The engine holds the file open and appends, so the file itself stays and is emptied: a line written between the
    copy and that is lost. Where there is no room for the copy it is emptied all the same.
    """
    if size_of(path) <= limit_b:
        return False
    aside = path.with_name(f"{path.name}.1")
    try:
        with os.fdopen(_private(aside, os.O_TRUNC), "wb") as copy, path.open("rb") as log:
            shutil.copyfileobj(log, copy, 1 << 20)
    except OSError:
        with suppress(OSError):
            aside.unlink()
    with suppress(OSError):
        os.truncate(path, 0)
    return True


def tail_of(path: Path, since_b: int, limit_b: int = TAIL_B) -> str:
    """The last bytes of a log that were written after `since_b`, as text; empty when it cannot be read."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(since_b if since_b <= size else 0, size - limit_b))
            return log.read(limit_b).decode("utf-8", "replace")
    except OSError:
        return ""


def _private(path: Path, how: int) -> int:
    descriptor = os.open(path, _FLAGS | how, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
