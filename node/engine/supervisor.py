"""One engine slot: it starts the engine, learns when it serves, sees it die, and starts it again.

Each start is a new replica run, which only moves forward; a run that went DOWN stays there. It publishes
states and knows nothing of records, requests or other slots.
"""

import asyncio
import enum
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random

import aiohttp

from node.engine.backoff import Backoff
from node.engine.child import KILL_S
from node.engine.fetch import Target
from node.engine.launch import Launched, launch
from node.engine.readiness import probe
from node.engine.spec import EngineSpec
from node.engine.state import EngineState
from node.engine.watch import Fall, Watch
from registry.errors import TelaError
from registry.kinds import Cause
from registry.lifecycle import Rank, may_move

log = logging.getLogger(f"tela.{__name__}")

DOWN_GRACE_S = 1.0
HEARD_S = 0.3  # until every ingress has heard that it drains
_MARGIN_S = 2.0  # of drain_and_stop above the deadlines inside it


class _Order(enum.Enum):
    """What was last asked of the slot."""

    STAY = "stay"
    AGAIN = "again"  # end this run and begin another one
    LEAVE = "leave"


class Supervisor:
    """Keeps one slot's engine alive while `run` runs. Mutable: its state, which only its own methods change.

    Args:
        spec: what to run.
        session: the client to the engine; no proxies, no redirects.
        publish: told each new state, never the same twice; called in the loop, must not wait.
        rng: jitter of the backoff, and the engine's API key: a `SystemRandom` outside tests.
        now: monotonic seconds.
        run: the next run number; each call gives a greater one.
        idle: waits until no request is under way at the engine; None: nobody knows.
        environ: what a started engine may see, less what is tela's own.
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
        idle: Callable[[], Awaitable[None]] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.spec = spec
        self.state = EngineState(slot=spec.slot, run=0)
        self._session = session
        self._publish = publish
        self._rng = rng
        self._now = now
        self._next_run = run
        self._idle = idle
        self._environ = environ
        self._target = Target("")  # of the current run, ready or not
        self._watch: Watch | None = None  # of the current run; None: it did not start
        self._engine: Launched | None = None  # of the current run; None: it did not start, or is gone
        self._is_running = False
        self._is_last = False  # no run follows this one
        self._is_drained = False  # somebody wants no new work here, whatever the run
        self._is_restarting = False
        self._is_hurried = False  # nobody wants to wait for the engine's end
        self._order = _Order.STAY
        self._ordered = asyncio.Event()  # `_order` is not STAY
        self._moved = asyncio.Event()  # the state is another one
        self._left = asyncio.Event()  # `run` is over

    @property
    def is_serving(self) -> bool:
        """Whether requests may be sent to it; a draining engine still answers those under way."""
        return self.state.rank is Rank.SERVING

    @property
    def url(self) -> str | None:
        """The base URL of the engine while it serves."""
        return self._target.url if self.is_serving else None

    @property
    def api_key(self) -> str | None:
        """What the engine of this run takes for permission; None: it asks for none."""
        return self._target.api_key

    @property
    def names(self) -> Mapping[str, str]:
        """The engine's own name of each model that is offered by another."""
        return self._watch.names if self._watch else {}

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
        if self._watch is not None:
            self._watch.report()

    # --- orders

    def drain(self) -> None:
        """Publish that no new work should come, to this run and the next; the engine goes on with what it has."""
        self._is_drained = True
        if self.state.rank < Rank.LEFT:
            self._say(draining=True)

    def begin_no_more(self) -> None:
        """Start no other run: when this one ends, by itself or by what ends everything here, the slot is left."""
        self._is_last = True

    def undrain(self) -> None:
        """Take work again, unless the engine is about to end."""
        if self._order is _Order.LEAVE:
            return
        self._is_drained = False
        if not self._is_restarting and self.state.rank < Rank.LEFT:
            self._say(draining=False)

    async def restart(self, reason: str) -> None:
        """Drain, let what is under way end within the grace, and begin another run; return when it has begun.

        Cancelled while it drains, it takes that back.

        Raises:
            TelaError: the engine is not ours to start, or is leaving.
        """
        if self.spec.url is not None:
            hint = "restart it where it runs; its new start is noticed here"
            raise self._refused("this node did not start its engine", hint)
        run = self.current_run
        while self.current_run == run and not self._is_over:
            if self._is_free:
                log.info("engine restart", extra={"slot": self.spec.slot, "run": run, "reason": reason})
                await self._end_run(run)
            else:
                await self._until(lambda: self.current_run != run or self._is_over or self._is_free)
        if self.current_run == run:
            raise self._refused("it is leaving")

    async def drain_and_stop(self, *, now: bool = False) -> None:
        """Publish draining, stop the engine, publish LEFT, end `run`. What is under way is cut: see `drain`.

        Args:
            now: kill it instead of asking it to end; also while another call of this waits for its end.

        Raises:
            TimeoutError: `run` did not end although every deadline inside it has passed.
        """
        self.drain()
        self._give(_Order.LEAVE)
        if now:
            self._is_hurried = True
            if self._engine is not None:
                self._engine.kill()
        if self._is_running:
            async with asyncio.timeout(self.spec.stop_grace_s + KILL_S + _MARGIN_S):
                await self._left.wait()

    def _give(self, order: _Order) -> None:
        self._order = order
        self._ordered.set()

    @property
    def _is_over(self) -> bool:
        return self._order is _Order.LEAVE or not self._is_running

    @property
    def _is_free(self) -> bool:
        """Whether nobody else restarts it just now."""
        return self._order is _Order.STAY and not self._is_restarting

    async def _end_run(self, run: int) -> None:
        self._is_restarting = True
        try:
            await self._quiet(run)
        except asyncio.CancelledError:
            if self.state.rank < Rank.DOWN and self._order is _Order.STAY:
                self._say(draining=self._is_drained)
            raise
        finally:
            self._is_restarting = False
            self._moved.set()
        if self.current_run == run and self._order is _Order.STAY:
            self._give(_Order.AGAIN)

    async def _quiet(self, run: int) -> None:
        """Wait until nothing is under way, no longer than the grace, nor than the run serves."""
        if self.state.rank is not Rank.SERVING:
            return
        self._say(draining=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_S + self.spec.drain_s):
                await _first_of(
                    self._quiet_engine(),
                    self._until(lambda: self.current_run != run or not self.is_serving or self._is_over),
                )

    async def _quiet_engine(self) -> None:
        await asyncio.sleep(HEARD_S)
        if self._idle is not None:
            await self._idle()

    async def _until(self, claim: Callable[[], bool]) -> None:
        while not claim():
            self._moved.clear()
            await _first_of(self._moved.wait(), self._left.wait())

    # --- runs

    async def run(self) -> None:
        """Keep the engine running until cancelled or told to leave; its process is gone when this returns.

        Once per supervisor: after LEFT there is nothing to come back to.
        """
        self._is_running = True
        backoff = Backoff()
        try:
            while self._order is not _Order.LEAVE and not self._is_last:
                await self._one_run()
                if self._order is _Order.STAY:
                    backoff = backoff.after(self._served_s())
                    await self._until_worth_trying(backoff.delay_s(self._rng))
        finally:
            self._is_running = False
            self._say(rank=Rank.LEFT, cause=self.state.cause or Cause(reason="stopped"), phase="", pid=None)
            self._left.set()

    def _served_s(self) -> float:
        since = self._watch.serving_since if self._watch else None
        return 0.0 if since is None else self._now() - since

    async def _one_run(self) -> None:
        """Start the engine and stay with it until it is down or has to end; then no process of it is left."""
        run = self._next_run()
        self._watch = None
        try:
            engine = self._engine = await launch(self.spec, self._environ, self._rng)
        except TelaError as error:
            log.error(error.message, extra={"slot": self.spec.slot, "run": run, "hint": error.hint})
            self._begin(run, None)
            # The code and not the message: a path of this host has no business in a record.
            self._fall(Fall(Cause(reason="not-started"), f"cannot start: {error.code.replace('_', ' ')}"))
            return
        try:
            self._target = engine.target
            self._begin(run, engine.pid)
            self._watch = Watch(self.spec, self._target, session=self._session, say=self._say, now=self._now)
            await self._attend(engine, self._watch)
        finally:
            await self._end(engine)
            self._engine = None

    def _begin(self, run: int, pid: int | None) -> None:
        if self._order is _Order.AGAIN:
            self._order = _Order.STAY
            self._ordered.clear()
        self.state = EngineState(slot=self.spec.slot, run=run, phase="starting", draining=self._is_drained, pid=pid)
        self._moved.set()
        self._publish(self.state)

    async def _attend(self, engine: Launched, watch: Watch) -> None:
        """Watch until the process ends, the probes say it is down, or it is told to end."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run())
            ended = tasks.create_task(engine.ended())
            waits = {watching, ended, tasks.create_task(self._ordered.wait())}
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in waits:
                task.cancel()
        if self._order is _Order.LEAVE:
            return
        if self._order is _Order.AGAIN:
            self._fall(Fall(Cause(reason="restarted"), "restarting"))  # first: what is under way is asked elsewhere
        elif ended in done:
            self._fall(ended.result(), pid=None)
        else:
            self._fall(watching.result())

    async def _end(self, engine: Launched) -> None:
        """Leave no process behind; a run that is not down yet is draining meanwhile."""
        is_down = self.state.rank is Rank.DOWN
        if not is_down:
            self._say(draining=True)
        try:
            await engine.stop(self._grace_s(is_down))
        except TelaError as error:
            log.error(error.message, extra={"slot": self.spec.slot, "hint": error.hint})
            return
        if is_down:
            self._say(pid=None)

    def _grace_s(self, is_down: bool) -> float:
        if self._is_hurried:
            return 0.0
        # An engine that was found down does not answer; what it still holds is lost in any case.
        return DOWN_GRACE_S if is_down and self._order is _Order.STAY else self.spec.stop_grace_s

    async def _until_worth_trying(self, delay_s: float) -> None:
        """Wait before the next run: the backoff of a command, the first sign of life of a foreign engine."""
        await self._pause(delay_s)
        while self.spec.url is not None and self._order is _Order.STAY:
            if (await probe(self._session, self._target, timeout_s=self.spec.probe_timeout_s)).healthy:
                return
            await self._pause(self.spec.watch_s)

    async def _pause(self, delay_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._ordered.wait()

    # --- what is said

    def _fall(self, fall: Fall, **changes: object) -> None:
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
        self._moved.set()
        if state.run > 0:
            self._publish(state)

    def _refused(self, why: str, hint: str = "") -> TelaError:
        return TelaError(f"engine slot {self.spec.slot}: {why}", hint=hint, code="not_restarted")


async def _first_of(*waits: Coroutine[object, object, object]) -> None:
    """Wait for the first of several; the others are given up."""
    async with asyncio.TaskGroup() as tasks:
        pending = [tasks.create_task(wait) for wait in waits]
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
