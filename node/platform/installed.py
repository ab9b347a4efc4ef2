"""The services of this account on this host: puts them where systemd or cron looks, lists them, takes them away.

It touches nothing without our mark in it.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from node.places import make_private
from node.platform.boot import MARK, host_line, kept, names_in, script, unit, with_line, without_line
from node.platform.surroundings import run
from registry.errors import TelaError
from registry.text import clean

DEADLINE_S = 30.0


class Boot(NamedTuple):
    """A node that is to start after a boot."""

    name: str
    command: tuple[str, ...]  # the words, the first of them a path
    home: str  # where it runs
    machine: str  # the name of the system it is for
    drain_s: float


class Spot(NamedTuple):
    """Where services of this account are written."""

    units: Path  # of systemd --user
    scripts: Path  # for cron; ours alone

    def unit(self, name: str) -> Path:
        """The unit of a service."""
        return self.units / f"tela-{name}.service"

    def script(self, name: str) -> Path:
        """What cron runs for a service."""
        return self.scripts / f"{name}.sh"


def texts(spot: Spot, how: str, service: Boot) -> dict[str, str]:
    """What would be written, by path; a line of the crontab under "crontab".

    Raises:
        TelaError: a word cannot be written into a unit.
    """
    env = kept(os.environ)
    if how == "systemd":
        try:
            text = unit(
                service.name,
                service.command,
                env,
                home=service.home,
                machine=service.machine,
                drain_s=service.drain_s,
            )
        except ValueError as error:
            raise TelaError(f"not for a service: {error}", hint="write it on one line", code="usage") from error
        return {str(spot.unit(service.name)): text}
    path = str(spot.script(service.name))
    return {
        path: script((*service.command, "--detach"), env, home=service.home),
        "crontab": with_line("", service.name, path),
    }


def install(spot: Spot, how: str, service: Boot, *, start: bool) -> None:
    """Write a service down, and start it unless told not to.

    Raises:
        TelaError: a file cannot be written, or a program refuses; it says which and why.
    """
    for path, text in texts(spot, how, service).items():
        if path != "crontab":
            _write(Path(path), text, 0o600 if how == "systemd" else 0o700)
    if how == "systemd":
        _do(["systemctl", "--user", "daemon-reload"])
        _do(["systemctl", "--user", "enable", *(["--now"] if start else []), spot.unit(service.name).name])
        return
    path = str(spot.script(service.name))
    _do(["crontab", "-"], with_line(_crontab(), service.name, path))
    if start and subprocess.run([path], check=False).returncode != 0:  # noqa: S603 - just written
        raise TelaError(
            "it is installed, but did not start", hint="tela service remove takes it away", code="not_started"
        )


def remove(spot: Spot, name: str, how: str) -> None:
    """Take a service away; what runs goes on.

    Raises:
        TelaError: as `install`.
    """
    if how == "systemd":
        _do(["systemctl", "--user", "disable", spot.unit(name).name])
        spot.unit(name).unlink(missing_ok=True)
        _do(["systemctl", "--user", "daemon-reload"])
        return
    _do(["crontab", "-"], without_line(_crontab(), name))
    spot.script(name).unlink(missing_ok=True)


def installed(spot: Spot, machine: str) -> dict[str, str]:
    """What is installed for this machine: "systemd" or "cron" by name."""
    units = {
        path.stem.removeprefix("tela-"): "systemd"
        for path in spot.units.glob("tela-*.service")
        if _is_for(path, machine)
    }
    return dict.fromkeys(names_in(_crontab()), "cron") | units


def state(spot: Spot, name: str) -> str:
    """What systemd says of a unit, in a word or two."""
    unit_name = spot.unit(name).name
    said = run(["systemctl", "--user", "show", "--property=ActiveState,UnitFileState", "--value", unit_name])
    return clean(", ".join((said or "unknown").split()))


def _crontab() -> str:
    said = run(["crontab", "-l"])
    return f"{said}\n" if said else ""


def _is_for(path: Path, machine: str) -> bool:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return False
    return text.startswith(MARK) and host_line(machine) in text.splitlines()


def _write(path: Path, text: str, mode: int) -> None:
    try:
        if path.exists() and MARK not in path.read_text(errors="replace"):
            raise TelaError(
                f"{path} is there, and not ours", hint=f"move it away: mv {path} {path}.old", code="not_ours"
            )
        if mode & 0o100:
            make_private(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    except OSError as error:
        raise TelaError(f"cannot write {path}: {error.strerror}", hint="look at its directory", code="boot") from error


def _do(command: Sequence[str], text: str | None = None) -> None:
    shown = " ".join(command)
    try:
        done = subprocess.run(  # noqa: S603 - our own words, and no shell
            command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TelaError(f"`{shown}` did not run: {clean(str(error))}", hint="try it by hand", code="boot") from error
    if done.returncode != 0:
        said = clean(done.stderr.strip()) or f"exit code {done.returncode}"
        raise TelaError(f"`{shown}` refused: {said}", hint="try it by hand", code="boot")
