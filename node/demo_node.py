"""One process of the demo: a node that is started from a specification, listened to, and ended."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from node.config import NodeConfig
from registry.errors import TelaError
from registry.text import clean

MAX_WORDS = 300  # of what a node said last, as it is shown
LOG_TAIL_B = 65_536
READ_LOGS = "its log and its engine's say more"

Event = dict[str, object]
Tell = Callable[[str, Event], None]


class DemoNode:
    """One node's process; made by `spawn`. Mutable: it notes what the node says.

    Attributes:
        name: what it is called.
        process: its process.
        control: its control socket.
        ledger: its usage database, when it has a door.
        log: what it writes to stderr.
        ready: what it said once it was up; None: it is not yet.
        is_gone: it says nothing any more.
        engine_pid: of its engine's process; None: there is none now.
        engine_run: the engine's run.
        engine_state: JOIN, SERVING, DOWN or LEFT; empty without an engine.
        engine_phase: what the engine is about.

    Args:
        process: as `spawn` starts it.
        config: what it runs as.
        directory: where specifications and logs go.
        changed: set after every change of any node.
        tell: called with every event it narrates, and its name.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        config: NodeConfig,
        directory: Path,
        changed: asyncio.Event,
        tell: Tell,
    ) -> None:
        self.name = config.host
        self.process = process
        self.control = Path(config.control or "")
        self.ledger = Path(config.state) / "ledger" / "usage.db"
        self.log = log_of(directory, config.host)
        self.ready: Event | None = None
        self.is_gone = False
        self.engine_pid: int | None = None
        self.engine_run = 0
        self.engine_state = ""
        self.engine_phase = ""
        self._changed = changed
        self._tell = tell

    @classmethod
    async def spawn(cls, config: NodeConfig, directory: Path, changed: asyncio.Event, tell: Tell) -> Self:
        """Start it."""
        spec = directory / f"{config.host}.json"
        spec.touch(mode=0o600)
        spec.write_bytes(msgspec.json.encode(config))
        with log_of(directory, config.host).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", "console", "run-node", str(spec),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return cls(process, config, directory, changed, tell)

    @property
    def pid(self) -> int:
        """The process id of the node."""
        return self.process.pid

    @property
    def id(self) -> str:
        """The node's id; there once it is ready."""
        return self._said("id")

    @property
    def url(self) -> str:
        """Where its door is; there once it is ready, empty without one."""
        return self._said("http")

    @property
    def links(self) -> tuple[str, ...]:
        """Where it takes links; there once it is ready."""
        links = (self.ready or {}).get("links")
        return tuple(map(str, links)) if isinstance(links, list) else ()

    @property
    def engine_said(self) -> str:
        """The engine's state and what it is about, in words."""
        return clean(f"{self.engine_state} {self.engine_phase}".strip() or "has said nothing of its engine")

    def _said(self, field: str) -> str:
        return str((self.ready or {}).get(field, ""))

    # --- listening

    async def listen(self) -> None:
        """Take down what it says, until it is gone."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            event = _event(line)
            if event is not None:
                self._note(event)
                self._changed.set()
                self._tell(self.name, event)
        self.is_gone, self.engine_pid, self.engine_state = True, None, ""
        self._changed.set()

    def _note(self, event: Event) -> None:
        if event.get("event") == "ready":
            self.ready = event
        elif event.get("event") == "engine":
            pid, run = event.get("pid"), event.get("run")
            self.engine_pid = pid if isinstance(pid, int) else None
            self.engine_run = run if isinstance(run, int) else 0
            self.engine_state = str(event.get("state"))
            self.engine_phase = str(event.get("phase", ""))

    async def until_ready(self, within_s: float) -> None:
        """Wait until it is up.

        Raises:
            TelaError: it ended, or time was up; says what its last words were.
        """
        try:
            async with asyncio.timeout(within_s):
                while self.ready is None:
                    if self.is_gone:
                        raise self.failed("did not start")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise self.failed(f"was not ready within {within_s:.0f} s") from None

    def failed(self, how: str) -> TelaError:
        """What is to be said of a node with which something went wrong, with its last words."""
        words, hint = _last_words(self.log)
        return TelaError(f"{self.name} {how}: {words}", hint=hint, code="not_started")

    # --- ending

    def end(self, *, now: bool) -> None:
        """Tell it to end.

        Args:
            now: at once, whatever is under way.
        """
        if self.process.stdin is not None:
            self.process.stdin.close()
        if now and self.process.returncode is None:
            for number in (signal.SIGTERM, signal.SIGINT):  # the second means now; one signal twice may arrive once
                self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it, when it still runs; the kernel ends its engine."""
        if self.process.returncode is None:
            self.process.kill()

    async def ended(self) -> None:
        """Wait until it is gone, and its pipes are closed: what is left of them would complain once the loop is."""
        await self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
            with contextlib.suppress(OSError):
                await self.process.stdin.wait_closed()


def log_of(directory: Path, name: str) -> Path:
    """Where a node's stderr goes."""
    return directory / f"{name}.log"


def _event(line: bytes) -> Event | None:
    """What a node says in a line; None when it is no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _last_words(log: Path) -> tuple[str, str]:
    """What a node said last: the matter and what to do about it."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_TAIL_B))
        lines = file.read().decode(errors="replace").strip().splitlines()
    said = [at for at, line in enumerate(lines) if line.startswith("tela: ")]
    if not said:
        return next(_told(lines), "it said nothing"), READ_LOGS
    hint = lines[said[-1] + 1].strip() if said[-1] + 1 < len(lines) else ""
    return clean(lines[said[-1]].removeprefix("tela: "), MAX_WORDS), clean(hint, MAX_WORDS)


def _told(lines: list[str]) -> Iterator[str]:
    """What the lines of a log say, the last first."""
    for line in reversed(lines):
        try:
            fields = json.loads(line)
            yield clean(f"{fields['event']} {fields.get('why', '')}".strip(), MAX_WORDS)
        except (ValueError, TypeError, KeyError, AttributeError):
            yield clean(line, MAX_WORDS)
