"""One engine slot: it starts the engine, learns when it serves, sees it die, and starts it again.

Each start is a new replica run, which only moves forward; a run that went DOWN stays there. It publishes
states and knows nothing of records, requests or other slots.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

from node.engine.backoff import Backoff
from node.engine.child import KILL_S, PORT_MARK, Child, Exit, words_of
from node.engine.readiness import PROBE_TIMEOUT_S, Verdict, judge, probe
from registry.errors import TelaError
from registry.kinds import Cause, Offer
from registry.lifecycle import Rank, may_move
from registry.text import is_id

log = logging.getLogger(f"tela.{__name__}")

DOWN_GRACE_S = 1.0
FAILURES_TO_DOWN = 3
_MARGIN_S = 2.0  # of drain_and_stop above the deadlines inside it


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What runs in a slot: a command that is started here, or the URL of an engine somebody else runs.

    Raises:
        TelaError: not exactly one of the two, or one that cannot work.
    """

    slot: str
    command: str | None = None  # with {port}; None: the engine is at `url`
    url: str | None = None  # http on loopback; None: the engine is started by `command`
    model: str | None = None  # what it has to list; None: whatever it lists
    log: Path
    engine: str = "engine"
    stop_grace_s: float = 10.0
    probe_s: float = 0.2  # between probes until it is ready, and at least between any two
    watch_s: float = 2.0  # between probes afterwards
    probe_timeout_s: float = PROBE_TIMEOUT_S

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise _refused(self.slot, "give either a command or a URL")
        if self.model is not None and not is_id(self.model):
            raise _refused(self.slot, "its model is no usable name", "see --served-model-name of the engine")
        if self.command is not None and not any(PORT_MARK in word for word in words_of(self.command)):
            raise _refused(self.slot, f"its command has no {PORT_MARK}", f"add: --port {PORT_MARK}")
        if self.url is not None and not _is_loopback(self.url):
            raise _refused(self.slot, "its URL is not http on loopback", "like http://127.0.0.1:8000")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What is true of the slot's current run."""

    slot: str
    run: int  # 0: there was none yet; never published
    rank: Rank = Rank.JOIN
    offers: tuple[Offer, ...] = ()
    phase: str = ""
    cause: Cause | None = None  # None: it is neither down nor gone
    draining: bool = False
    pid: int | None = None  # None: no process of ours


class _Fall(NamedTuple):
    """The end of a run that nobody asked for."""

    cause: Cause
    phase: str


class Supervisor:
    """Keeps one slot's engine alive while `run` runs. Mutable: its state, which only its own methods change.

    Args:
        spec: what to run.
        session: the client to the engine; no proxies, no redirects.
        publish: told each new state, never the same twice; called in the loop, must not wait.
        rng: jitter of the backoff.
        now: monotonic seconds.
        run: the next run number; each call gives a greater one.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        session: aiohttp.ClientSession,
        publish: Callable[[EngineState], None],
        rng: Random,
        now: Callable[[], float],
        run: Callable[[], int],
    ) -> None:
        self.spec = spec
        self.state = EngineState(slot=spec.slot, run=0)
        self._session = session
        self._publish = publish
        self._rng = rng
        self._now = now
        self._next_run = run
        self._url: str | None = None  # of the current run, ready or not
        self._serving_since: float | None = None  # None: this run has not served
        self._is_running = False
        self._reported = asyncio.Event()  # the worker saw a failure that no probe has looked into
        self._leaving = asyncio.Event()
        self._left = asyncio.Event()  # `run` is over

    @property
    def is_serving(self) -> bool:
        """Whether requests may be sent to it; a draining engine still answers those under way."""
        return self.state.rank is Rank.SERVING

    @property
    def url(self) -> str | None:
        """The base URL of the engine while it serves."""
        return self._url if self.is_serving else None

    @property
    def pid(self) -> int | None:
        """The process of the current run, if it is ours and alive."""
        return self.state.pid

    @property
    def current_run(self) -> int:
        """The number of the current run; 0 before the first."""
        return self.state.run

    def report_failure(self) -> None:
        """Say that the engine refused or broke a connection: it is probed now instead of at the next tick."""
        self._reported.set()

    def drain(self) -> None:
        """Publish that no new work should come; the engine goes on with what it has."""
        if self.state.rank < Rank.LEFT:
            self._say(draining=True)

    async def drain_and_stop(self) -> None:
        """Publish draining, stop the engine, publish LEFT, end `run`. What is under way is cut: see `drain`.

        Raises:
            TimeoutError: `run` did not end although every deadline inside it has passed.
        """
        self.drain()
        self._leaving.set()
        if self._is_running:
            async with asyncio.timeout(self.spec.stop_grace_s + KILL_S + _MARGIN_S):
                await self._left.wait()

    async def run(self) -> None:
        """Keep the engine running until cancelled or told to leave; its process is gone when this returns.

        Once per supervisor: after LEFT there is nothing to come back to.
        """
        self._is_running = True
        backoff = Backoff()
        try:
            while not self._leaving.is_set():
                await self._one_run()
                since = self._now() if self._serving_since is None else self._serving_since
                backoff = backoff.after(self._now() - since)
                await self._until_worth_trying(backoff.delay_s(self._rng))
        finally:
            self._is_running = False
            self._say(rank=Rank.LEFT, cause=self.state.cause or Cause(reason="stopped"), phase="", pid=None)
            self._left.set()

    async def _one_run(self) -> None:
        """Start the engine and stay with it until it is down or told to leave; then no process of it is left."""
        self._serving_since = None
        self._reported.clear()
        run = self._next_run()
        try:
            child = await self._start()
        except TelaError as error:
            log.error(error.message, extra={"slot": self.spec.slot, "run": run, "hint": error.hint})
            self._begin(run, None)
            # The code and not the message: a path of this host has no business in a record.
            self._fall(_Fall(Cause(reason="not-started"), f"cannot start: {error.code.replace('_', ' ')}"))
            return
        try:
            self._begin(run, child)
            await self._attend(child)
        finally:
            await self._end(child)

    async def _start(self) -> Child | None:
        if self.spec.command is None:
            self._url = (self.spec.url or "").rstrip("/")
            return None
        child = await Child.spawn(self.spec.command, log=self.spec.log)
        self._url = f"http://127.0.0.1:{child.port}"
        return child

    def _begin(self, run: int, child: Child | None) -> None:
        self.state = EngineState(
            slot=self.spec.slot,
            run=run,
            phase="starting",
            draining=self.state.draining,
            pid=child.pid if child else None,
        )
        self._publish(self.state)

    async def _attend(self, child: Child | None) -> None:
        """Watch until the process ends, the probes say it is down, or it is told to leave."""
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch())
            leaving = tasks.create_task(self._leaving.wait())
            exited = tasks.create_task(child.wait()) if child else None
            waits = {task for task in (watch, leaving, exited) if task is not None}
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in waits:
                task.cancel()
            if leaving in done:
                return
            if exited and exited in done:
                self._fall(_fall_of(exited.result()), pid=None)
            else:
                self._fall(watch.result())

    async def _watch(self) -> _Fall:
        """Probe until it is ready, serve, and return when the probes say that it is down."""
        while not (verdict := await self._look()).ready:
            self._say(phase=verdict.phase)
            await asyncio.sleep(self.spec.probe_s)
        self._serving_since = self._now()
        self._say(rank=Rank.SERVING, offers=verdict.offers, phase=verdict.phase)
        failures = 0
        while True:
            was_reported = await self._next_tick()
            verdict = await self._look()
            if verdict.ready:
                failures = 0
                self._say(offers=verdict.offers, phase=verdict.phase)
                continue
            failures += 1
            is_gone = was_reported and self.spec.url is not None  # two witnesses, and no exit to wait for
            if is_gone or failures >= FAILURES_TO_DOWN:
                return _Fall(Cause(reason="unhealthy"), verdict.phase)
            self._say(phase=f"{failures} of {FAILURES_TO_DOWN} probes failed")

    async def _next_tick(self) -> bool:
        """Wait for the next probe; return whether a report is why it comes now."""
        spacing_s = min(self.spec.probe_s, self.spec.watch_s)
        await asyncio.sleep(spacing_s)  # a storm of reports is one probe
        with suppress(TimeoutError):
            async with asyncio.timeout(self.spec.watch_s - spacing_s):
                await self._reported.wait()
        was_reported = self._reported.is_set()
        self._reported.clear()
        return was_reported

    async def _look(self) -> Verdict:
        seen = await probe(self._session, self._url or "", timeout_s=self.spec.probe_timeout_s)
        return judge(seen, self.spec.model, has_served=self._serving_since is not None)

    async def _end(self, child: Child | None) -> None:
        """Leave no process behind; a run that is not down yet is draining meanwhile."""
        is_down = self.state.rank is Rank.DOWN
        if not is_down:
            self.drain()
        if child is None:
            return
        try:
            # An engine that was found down does not answer; what it still holds is lost in any case.
            await child.stop(DOWN_GRACE_S if is_down else self.spec.stop_grace_s)
        except TelaError as error:
            log.error(error.message, extra={"slot": self.spec.slot, "hint": error.hint})
            return
        if is_down:
            self._say(pid=None)

    async def _until_worth_trying(self, delay_s: float) -> None:
        """Wait before the next run: the backoff of a command, the first sign of life of a foreign engine."""
        await self._pause(delay_s)
        while self.spec.url is not None and not self._leaving.is_set():
            if (await probe(self._session, self._url or "", timeout_s=self.spec.probe_timeout_s)).healthy:
                return
            await self._pause(self.spec.watch_s)

    async def _pause(self, delay_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._leaving.wait()

    def _fall(self, fall: _Fall, **changes: object) -> None:
        log.warning("engine down", extra={"slot": self.spec.slot, "run": self.state.run, "phase": fall.phase})
        self._say(rank=Rank.DOWN, cause=fall.cause, phase=fall.phase, **changes)

    def _say(self, **changes: object) -> None:
        """Change the state of the current run and publish it, if that changes anything."""
        state = replace(self.state, **changes)  # type: ignore[arg-type]  # names and types are EngineState's
        if not may_move(self.state.rank, state.rank):
            raise RuntimeError(f"run {state.run} cannot go from {self.state.rank.name} to {state.rank.name}")
        if state == self.state:
            return
        self.state = state
        if state.run > 0:
            self._publish(state)


def _fall_of(end: Exit) -> _Fall:
    if end.signal is not None:
        return _Fall(Cause(reason="killed", signal=end.signal), f"killed by signal {end.signal}")
    return _Fall(Cause(reason="exited", exit_code=end.code), f"exited with {end.code}")


def _refused(slot: str, why: str, hint: str = "") -> TelaError:
    return TelaError(f"engine slot {slot}: {why}", hint=hint, code="bad_engine")


def _is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    is_base = parts.path in {"", "/"} and not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme == "http" and is_local and is_base
