"""The texts that start a node after a boot: a unit of systemd, or a script and a line of a crontab. Pure.

They carry no secret: only the words of the command, and the variables of the environment that are named here.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

MARK = "# made by tela service install"
KEPT = (  # without these an engine that starts in a terminal may not start after a boot
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "HF_HOME",
    "VIRTUAL_ENV",
    "TELA_HOME",
    "TELA_FABRIC",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
)
_LEAVE_S = 60  # beyond the drain: engines end, the fabric hears LEFT
_BAD = re.compile(r"[\x00-\x1f\x7f]")


def kept(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that go along."""
    return {name: env[name] for name in KEPT if env.get(name) and not _BAD.search(env[name])}


def unit(
    name: str, command: Sequence[str], env: Mapping[str, str], *, home: str, machine: str, drain_s: float = 30.0
) -> str:
    """A unit of `systemd --user`.

    Args:
        name: of the service, for people.
        command: the words; the first is a path.
        env: what it needs of the environment.
        home: where it runs.
        machine: the name of the system it is for; where homes are shared, the others see the unit too.
        drain_s: what requests under way may take at the end.

    Raises:
        ValueError: a word or the directory has a control character in it, which a unit cannot carry.
    """
    if _BAD.search(home):
        raise ValueError(f"a control character in {home!r}")
    lines = [f"Environment={_quoted(f'{key}={value}')}" for key, value in env.items()]
    return "\n".join(
        [
            MARK,
            "[Unit]",
            f"Description=tela node {name}",
            host_line(machine),
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "Type=exec",
            f"WorkingDirectory={_specifiers(home)}",
            *lines,
            f"ExecStart={' '.join(map(_quoted_command, command))}",
            "Restart=on-failure",
            "RestartSec=10",
            "RestartPreventExitStatus=2",  # used wrongly: trying again will not help
            "KillMode=mixed",  # only the node hears of the end; it ends its engines when they are drained
            f"TimeoutStopSec={drain_s + _LEAVE_S:.0f}",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def host_line(machine: str) -> str:
    """The line by which a unit does nothing on other hosts that share the home."""
    return f"ConditionHost={_specifiers(machine)}"


def script(command: Sequence[str], env: Mapping[str, str], *, home: str) -> str:
    """A script for cron, whose own lines are short and treat % as their end."""
    exports = [f"export {key}={shlex.quote(value)}" for key, value in env.items()]
    lines = ["#!/bin/sh", MARK, f"cd {shlex.quote(home)} || exit 1", *exports, f"exec {shlex.join(command)}", ""]
    return "\n".join(lines)


def with_line(crontab: str, name: str, path: str) -> str:
    """A crontab that runs a script after each boot; a line of the same name is replaced."""
    kept_lines = without_line(crontab, name)
    return f"{kept_lines}@reboot {shlex.quote(path).replace('%', chr(92) + '%')} {_mark(name)}\n"


def without_line(crontab: str, name: str) -> str:
    """A crontab without our line of that name; every other line stays as it is."""
    lines = [line for line in crontab.splitlines() if not line.endswith(_mark(name))]
    return "".join(f"{line}\n" for line in lines)


def names_in(crontab: str) -> tuple[str, ...]:
    """The services that are in a crontab."""
    lines = (line.rpartition(f"{MARK}: ") for line in crontab.splitlines() if not line.startswith("#"))
    return tuple(name for _, mark, name in lines if mark)


def _mark(name: str) -> str:
    return f"{MARK}: {name}"


def _quoted_command(word: str) -> str:
    return _quoted(word).replace("$", "$$")


def _quoted(word: str) -> str:
    if _BAD.search(word):
        raise ValueError(f"a control character in {word!r}")
    return '"' + _specifiers(word.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")
