"""Types what a page shows: every line `NAME$ COMMAND` of it, in its order, as that person, in bash.

A person is a home directory of their own and nothing else; all of them are the account that runs the test. What a
reader would put in for themselves is put in (`Walk.fill`), ports and host names are free ones, and nothing else of a
line differs.
"""

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

LINE = re.compile(r"^    (?P<who>[a-z]+)\$ (?P<line>.+)$", re.MULTILINE)
ASKING = ("tela evict", "tela keys revoke")  # on a terminal they ask first; the answer is yes
LIMIT_S = 60.0
KEPT = ("PATH", "LANG", "TERM", "SLURM_CONF")  # of the environment; TELA_*, XDG_* and HOME are a person's own


class Step(NamedTuple):
    """One line of the page."""

    who: str
    line: str


class Said(NamedTuple):
    """What came of a line."""

    code: int
    out: str
    err: str


class Person:
    """Somebody with a home of their own."""

    def __init__(self, name: str, root: Path, path: list[Path], env: dict[str, str]) -> None:
        self.home = root / name
        runtime = self.home / "run"  # what a login session has
        runtime.mkdir(parents=True, mode=0o700)
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        self.env = {
            **kept,
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(runtime),
            "PATH": ":".join([*map(str, path), kept.get("PATH", os.defpath)]),
            **env,
        }

    def type(self, line: str) -> Said:
        """Type a line at a terminal, in the home directory."""
        ours, theirs = pty.openpty()
        try:
            if line.startswith(ASKING):
                os.write(ours, b"y\n")
            done = subprocess.run(
                ["bash", "-c", line],
                stdin=theirs,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
                cwd=self.home,
                env=self.env,
            )
        finally:
            os.close(theirs)
            os.close(ours)
        return Said(done.returncode, done.stdout, done.stderr)

    def rows(self, line: str) -> list[dict[str, Any]]:
        """What a command with `--json` prints, one object a line."""
        said = self.type(line)
        assert said.code == 0, f"{line}\n{said.err}"
        return [json.loads(each) for each in said.out.splitlines()]


class Walk:
    """The lines of a page that are still to be typed, and what came of those that were.

    Mutable: `through` moves it forward, `fill` teaches it.
    """

    def __init__(self, page: str, people: dict[str, Person], instead: dict[str, str]) -> None:
        self.left = [Step(found["who"], found["line"]) for found in LINE.finditer(page)]
        self.typed: list[Step] = []
        self.people = people
        self.transcript: list[str] = []
        self._instead = dict(instead)

    def fill(self, shown: str, real: str) -> None:
        """What a reader puts in where the page shows something else."""
        self._instead[shown] = real

    def through(self, beginning: str) -> Said:
        """Type all lines up to the next that begins so; every one of them has to succeed.

        Returns:
            what came of the last of them.
        """
        while self.left:
            step = self.left.pop(0)
            self.typed.append(step)
            said = self._type(step)
            if step.line.startswith(beginning):
                return said
        raise AssertionError(f"the page shows no {beginning!r} here:\n{self.shown()}")

    def repeat(self, beginning: str, more: str = "") -> Said:
        """Type a line again that was typed before, with `more` behind its first word; it has to succeed again."""
        step = next(step for step in self.typed if step.line.startswith(beginning))
        first, _, rest = step.line.partition(" ")
        return self._type(Step(step.who, f"{first} {more} {rest}" if more else step.line))

    def again(self, who: str, line: str, holds: Callable[[str], bool], within_s: float) -> str:
        """Type a line until what it prints is as it should be, as a reader does who waits for something."""
        deadline = time.monotonic() + within_s
        while True:
            said = self.people[who].type(line)
            if said.code == 0 and holds(said.out):
                return said.out
            assert time.monotonic() < deadline, f"{who}$ {line}\n{said.out}{said.err}\nafter:\n{self.shown()}"
            time.sleep(0.3)

    def shown(self) -> str:
        """What was typed and printed so far."""
        return "\n".join(self.transcript)

    def _type(self, step: Step) -> Said:
        line = step.line
        for shown, real in self._instead.items():
            line = line.replace(shown, real)
        began = time.monotonic()
        said = self.people[step.who].type(line)
        took = f"# {time.monotonic() - began:.1f} s, exit {said.code}"
        self.transcript.append(f"{step.who}$ {line}\n{said.out}{said.err}{took}")
        assert said.code == 0, self.shown()
        return said
