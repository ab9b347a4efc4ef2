"""The directory of one node: `STATE/FABRIC/HOST-SLOT`, held by one process, with its key and its run numbers.

It may lie on a home that many hosts share, so nothing here trusts a pid alone or a lock of the kernel. Standard
library only: `tela status` and `tela stop` read who holds what.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from node.fabricdir import checked_name, read_seed, seed_line
from node.lockfile import Live, Lock, decode, read, release, take
from node.places import make_private
from node.private import blame, create_private, read_private, write_private
from registry.errors import TelaError

MAX_SLOTS = 1000  # nodes of one fabric on one host; beyond that something starts nodes in a loop
MAX_RUN = 1 << 53  # milliseconds for 285,000 years; a larger number was not written here
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_SLOT_DIR = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})-([0-9]{1,4})\Z")
_WHAT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_START_FIELD = 19  # of /proc/PID/stat, counted behind the closing parenthesis of the name: field 22 of proc(5)


class Holder(NamedTuple):
    """A node that holds its directory."""

    fabric: str
    host: str
    slot: int
    pid: int
    path: Path
    machine: str
    is_here: bool  # it runs on this machine; False: another machine holds it, whether it lives cannot be seen here


def boot_id() -> str:
    """What names the time since this machine's last boot; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> int:
    """When a process started, in clock ticks since the boot; 0 when there is no such process, or only its corpse."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[_START_FIELD])


def this_machine() -> Live:
    """What is true of this machine."""
    return Live(os.uname().nodename, boot_id(), process_start)


@dataclass(frozen=True, slots=True)
class StateDir:
    """A node's directory, ours until `release`."""

    path: Path
    host: str
    slot: int
    lock: Lock

    @classmethod
    def claim(
        cls, root: Path, fabric: str, host: str, *, slot: int | None, boot_id: str, pid: int, start: int
    ) -> "StateDir":
        """Take a slot of a host.

        Args:
            root: `Places.state`.
            fabric: its name here.
            host: the name the node goes by.
            slot: which one; None: the first that nobody alive holds.
            boot_id: of this machine.
            pid: of the process that will hold it.
            start: when that process started, as `process_start` counts.

        Raises:
            TelaError: somebody alive holds it (`slot_taken`, `no_slot`), or the file system refuses
                (`state_unusable`, `not_private`).
        """
        if _HOST.match(host) is None:
            raise TelaError(
                "a host's name is 1 to 63 letters, digits, dots, dashes and underscores",
                hint="name it otherwise: --host NAME",
                code="bad_name",
            )
        above = root / checked_name(fabric)
        live = Live(os.uname().nodename, boot_id, process_start)
        mine = Lock(host, live.machine, pid, boot_id, start)
        if slot is not None:
            return _claim(above, slot, mine, live)
        for each in range(MAX_SLOTS):
            try:
                return _claim(above, each, mine, live)
            except TelaError as error:
                if error.code != "slot_taken":
                    raise
        raise TelaError(
            f"{MAX_SLOTS} nodes of {fabric} run as {host} already",
            hint="tela stop --all ends those of this host",
            code="no_slot",
        )

    def seed(self) -> bytes:
        """The seed of the node's key; made at the first call, the same ever after.

        Raises:
            TelaError: others may read it, it is broken, or the file system refuses.
        """
        path = self.path / "node.key"
        held = read_seed(path)
        if held is None:
            create_private(path, seed_line(os.urandom(32)))
            held = read_seed(path)
        if held is None:
            raise TelaError(f"{path} went away", hint="something removes files of a running node", code="bad_key")
        return held

    def next_run(self, what: str, known: int, unix_ms: int) -> int:
        """A run number that was never used here; it is on disk before it is used.

        Args:
            what: "node", or an engine's slot.
            known: the highest the fabric holds; 0 when none.
            unix_ms: this host's clock, so that a disk that was rolled back still moves forward.

        Raises:
            TelaError: it cannot be written.
        """
        return next_run_of(self.path, what, known, unix_ms)

    def release(self) -> None:
        """Let go of the slot; the directory stays, for the next start."""
        release(self.path / "lock", self.lock)


def next_run_of(directory: Path, what: str, known: int, unix_ms: int) -> int:
    """As `StateDir.next_run`, in a directory that is held already."""
    from registry.author import next_run  # noqa: PLC0415 - libsodium, which look-commands do without

    if _WHAT.match(what) is None:
        raise TelaError("a slot's name is 1 to 32 letters, digits, dashes and underscores", code="bad_name")
    path = directory / f"{what}.run"
    persisted = 0
    with contextlib.suppress(OSError, ValueError):  # the clock keeps it above what was lost
        persisted = int(path.read_text()[:32])
    if not 0 <= persisted < MAX_RUN:
        persisted = 0
    run = next_run(persisted, known, unix_ms)
    write_private(path, f"{run}\n".encode())
    return run


def keep_to(directory: Path, fabric_id: bytes) -> None:
    """Say whose directory this is, once: two fabrics may bear one name, and must not share keys and journals.

    Raises:
        TelaError: it is another fabric's.
    """
    path = directory / "fabric"
    create_private(path, fabric_id.hex().encode() + b"\n")
    if read_private(path) != fabric_id.hex().encode() + b"\n":
        raise TelaError(
            f"{directory} belongs to another fabric of the same name",
            hint=f"move it away: mv {directory} {directory}.old",
            code="other_fabric",
        )


def _claim(above: Path, slot: int, mine: Lock, live: Live) -> StateDir:
    path = above / f"{mine.host}-{slot}"
    make_private(path)
    try:
        attempt = take(path / "lock", mine, live)
    except OSError as error:
        raise blame(error, path / "lock") from error
    if attempt.is_ours:
        return StateDir(path, mine.host, slot, mine)
    raise _taken(path, attempt.holder, live)


def _taken(path: Path, holder: Lock | None, live: Live) -> TelaError:
    free = "leave --slot out to take the first free one"
    if holder is None:
        return TelaError(f"{path} is being taken by another process", hint=f"try again, or {free}", code="slot_taken")
    if holder.machine == live.machine:
        what = f"{path} is held by process {holder.pid}, which is running"
        return TelaError(what, hint=f"tela stop ends it; or {free}", code="slot_taken")
    what = f"{path} is held by process {holder.pid} on {_shown(holder.machine)}"
    hint = f"two machines are called {holder.host}: name one with --host; if that machine is gone, rm {path / 'lock'}"
    return TelaError(what, hint=hint, code="slot_taken")


def _shown(text: str) -> str:
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:64])


def holders(root: Path, fabric: str | None) -> list[Holder]:
    """Who holds a directory of a fabric (None: of any), by fabric, host and slot. Left by the dead: not listed."""
    live = this_machine()
    found = [_holder(path, live) for path in _slot_dirs(root, fabric)]
    return sorted(each for each in found if each is not None)


def _holder(path: Path, live: Live) -> Holder | None:
    named = _SLOT_DIR.match(path.name)
    try:
        content = read(path / "lock")
    except OSError:
        return None
    lock = decode(content) if content else None
    if named is None or lock is None or live.is_dead(lock):
        return None
    is_here = lock.machine == live.machine
    return Holder(path.parent.name, named[1], int(named[2]), lock.pid, path, lock.machine, is_here)


def _slot_dirs(root: Path, fabric: str | None) -> Iterator[Path]:
    for above in [root / fabric] if fabric is not None else _listed(root):
        yield from _listed(above)


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []
