"""Where things lie on a host: configuration, state, sockets. Makes directories private, and takes nobody else's.

Commands that only look import this: standard library only.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from node.private import blame
from registry.errors import TelaError


class Places(NamedTuple):
    """The three directories of one account. None of them need exist."""

    config: Path  # config.toml, fabrics, credentials
    state: Path  # node keys, runs, journals, ledgers: may be on a network file system
    runtime: Path  # sockets: never on a network file system


def places(env: Mapping[str, str], uid: int, home: Path) -> Places:
    """The directories an environment names. As XDG asks, a path that is not absolute counts as unset.

    So does a runtime directory that is not there: a login's goes into a job's environment and not to its host.
    """
    config = _absolute(env, "XDG_CONFIG_HOME") or home / ".config"
    state = _absolute(env, "XDG_STATE_HOME") or home / ".local" / "state"
    runtime = _absolute(env, "XDG_RUNTIME_DIR")
    return Places(
        config=config / "tela",
        state=_told(env, "TELA_HOME") or state / "tela",
        runtime=runtime / "tela" if runtime and runtime.is_dir() else Path("/tmp") / f"tela-{uid}",  # noqa: S108 - made 0700, owner checked
    )


def _absolute(env: Mapping[str, str], name: str) -> Path | None:
    path = env.get(name, "")
    return Path(path) if path.startswith("/") else None


def _told(env: Mapping[str, str], name: str) -> Path | None:
    path = env.get(name, "")
    if path and not path.startswith("/"):
        raise TelaError(f"{name}={path} is not absolute", hint=f"write the whole path: export {name}=$PWD/{path}")
    return Path(path) if path else None


def make_private(path: Path) -> None:
    """Make a directory that only this account may enter; one that exists must be ours, and is closed to others.

    Missing parents are made private as well. The path itself may not be a symbolic link, because in a directory that
    others may write to anybody could have planted it.

    Raises:
        TelaError: it is a link, not a directory, another account's, or cannot be made.
    """
    try:
        _make(path)
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise _not_ours(path, "is a symbolic link", f"remove it: rm {path}")
        if not stat.S_ISDIR(found.st_mode):
            raise _not_ours(path, "is not a directory", f"move it away: mv {path} {path}.old")
        if found.st_uid != os.geteuid():
            raise _not_ours(
                path,
                f"belongs to user {found.st_uid}",
                "somebody else made it; set TELA_HOME and XDG_RUNTIME_DIR to directories of your own",
            )
        if stat.S_IMODE(found.st_mode) != 0o700:
            path.chmod(0o700)
    except OSError as error:
        raise blame(error, path) from error


def _make(path: Path) -> None:
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except FileExistsError:  # made meanwhile, or there from the start: the caller looks at what it is
            continue


def _not_ours(path: Path, what: str, hint: str) -> TelaError:
    return TelaError(f"{path} {what}", hint=hint, code="not_private")


def control_path(where: Places, fabric: str, host: str, slot: int) -> Path:
    """Where a node's control socket is: off any network file system."""
    return where.runtime / f"{fabric}-{host}-{slot}.sock"
