"""Unix sockets that are taken whole: nobody connects before the mode is right; only a dead one of ours is replaced."""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from registry.errors import TelaError

_ASIDE = ".new"  # what it is called until it is ready
MAX_PATH_B = 107 - len(_ASIDE)  # what the kernel takes


def bind_unix(path: Path, backlog: int) -> socket.socket:
    """A listening socket at a path, for its owner only; a file left behind by the dead is replaced.

    Raises:
        TelaError: the place cannot be had.
    """
    if len(os.fsencode(path)) > MAX_PATH_B:
        raise TelaError(
            f"{path} is too long for a socket: at most {MAX_PATH_B} bytes",
            hint="choose a shorter directory; for the control socket, set XDG_RUNTIME_DIR",
            code="bad_address",
        )
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    aside = path.with_name(f"{path.name}{_ASIDE}")  # nobody may connect before its mode is right
    try:
        for place in (path, aside):
            _refuse_others(place)
        if is_alive(path):
            raise TelaError(
                f"another program answers at {path}", hint="if it is a node: tela stop", code="address_in_use"
            )
        aside.unlink(missing_ok=True)
        listening.bind(str(aside))
        aside.chmod(0o600)
        listening.listen(backlog)
        aside.replace(path)
    except OSError as error:
        listening.close()
        remedy = "free some space there" if error.errno == errno.ENOSPC else "check `ls -ld` of its directory"
        raise TelaError(f"no socket at {path}: {error.strerror}", hint=remedy, code="bad_address") from error
    except TelaError:
        listening.close()
        raise
    return listening


def path_of(listening: socket.socket) -> Path:
    """Where a socket that `bind_unix` made is; the kernel knows it by its first name."""
    return Path(str(listening.getsockname()).removesuffix(_ASIDE))


def remover(path: Path) -> Callable[[], None]:
    """What removes the socket that lies at a path now, unless another start has taken the place by then."""
    taken = path.lstat()

    def remove() -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(path.lstat(), taken):
                path.unlink()

    return remove


def _refuse_others(path: Path) -> None:
    """Refuse to replace what is no socket, or not ours."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        kind = "a directory" if stat.S_ISDIR(there.st_mode) else "a file of another kind"
        raise TelaError(f"{path} is {kind}, not a socket", hint="name a path that is free", code="bad_address")
    if there.st_uid != os.geteuid():
        raise TelaError(f"{path} is a socket of another user", hint="name a path of your own", code="address_in_use")


def is_alive(path: Path) -> bool:
    """Whether somebody answers at a socket."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except (BlockingIOError, TimeoutError):  # its queue is full: somebody holds it
            return True
        except OSError:
            return False
    return True
