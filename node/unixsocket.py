"""Unix sockets that are taken whole: nobody connects before the mode is right, and one that answers is not taken away."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from registry.errors import TelaError

MAX_PATH_B = 107 - len(".new")  # what the kernel takes, less what is used while it is made


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
    if _is_alive(path):
        raise TelaError(f"another program answers at {path}", hint="if it is a node: tela stop", code="address_in_use")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    aside = path.with_name(f"{path.name}.new")  # nobody may connect before its mode is right
    try:
        aside.unlink(missing_ok=True)
        listening.bind(str(aside))
        aside.chmod(0o600)
        listening.listen(backlog)
        aside.replace(path)
    except OSError as error:
        listening.close()
        remedy = "free some space there" if error.errno == errno.ENOSPC else "check `ls -ld` of its directory"
        raise TelaError(f"no socket at {path}: {error.strerror}", hint=remedy, code="bad_address") from error
    return listening


def _is_alive(path: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full: somebody holds it
            return True
        except OSError:
            return False
    return True
