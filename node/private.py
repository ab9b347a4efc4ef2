"""Files only their owner may read: written whole or not at all, read only when nobody else can.

Every refusal of the file system becomes an error that names the path and what to do. Standard library only.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from registry.errors import TelaError

MAX_FILE_B = 1 << 20  # what is read here in one piece is a key or a short list
_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space, or set TELA_HOME to another file system",
    errno.EDQUOT: "the quota is used up: free some space, or set TELA_HOME to another file system",
    errno.EFBIG: "files may not grow further here: raise the limit (ulimit -f), or set TELA_HOME elsewhere",
    errno.EROFS: "the file system is read-only: set TELA_HOME to one that can be written",
    errno.EACCES: "its permissions do not allow it: check `ls -ld` of it and of the directories above",
    errno.EPERM: "its permissions do not allow it: check `ls -ld` of it and of the directories above",
    errno.ELOOP: "it is a symbolic link, which could be anybody's: remove it",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "something above it is not a directory: check the path",
}


def blame(error: OSError, path: Path) -> TelaError:
    """What to tell a person whose file system refused something."""
    hint = _REMEDIES.get(error.errno or 0, "check the file system")
    return TelaError(f"{path}: {error.strerror or error}", hint=hint, code="state_unusable")


def open_in_place(path: Path) -> BinaryIO:
    """A file for reading, never what a link points to and never waiting for a writer; `OSError` when that cannot be."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    return open(path, "rb", opener=opener)


def read_private(path: Path) -> bytes | None:
    """What a secret file holds; None when there is none.

    Raises:
        TelaError: others may read it (with the command that closes it), it is a link, too long or unreadable.
    """
    try:
        file = open_in_place(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise blame(error, path) from error
    with file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TelaError(f"{path} is not a file", hint="move it away", code="not_private")
        if found.st_uid not in {os.geteuid(), 0}:
            raise TelaError(
                f"{path} belongs to user {found.st_uid}", hint="a secret must be your own file", code="key_exposed"
            )
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise TelaError(
                f"{path} can be read by others (mode {mode:04o})", hint=f"chmod 600 {path}", code="key_exposed"
            )
        content = file.read(MAX_FILE_B + 1)
    if len(content) > MAX_FILE_B:
        raise TelaError(f"{path} is longer than {MAX_FILE_B} bytes", hint="it is not what it should be; move it away")
    return content


def write_private(path: Path, content: bytes) -> None:
    """Put a 0600 file in place of whatever was there. It is on disk when this returns.

    Raises:
        TelaError: it cannot be written; the old one is untouched.
    """
    _place(path, content, lambda written: written.replace(path))


def create_private(path: Path, content: bytes) -> bool:
    """Make a 0600 file unless there is one already; False when there is. It is on disk when this returns.

    Raises:
        TelaError: it cannot be written.
    """
    try:
        _place(path, content, lambda written: os.link(written, path))
    except TelaError as error:
        if isinstance(error.__cause__, FileExistsError):
            return False
        raise
    return True


def _place(path: Path, content: bytes, put: Callable[[Path], object]) -> None:
    written = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        try:
            write_new(written, content)
            put(written)
        finally:
            with contextlib.suppress(FileNotFoundError):
                written.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise blame(error, path) from error


def write_new(path: Path, content: bytes) -> None:
    """Write a new 0600 file and wait until it is on disk; `OSError` when that cannot be."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)


def sync_directory(path: Path) -> None:
    """Wait until a new name in a directory is on disk, where the file system can do that."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot, and need not
            os.fsync(fd)
    finally:
        os.close(fd)
