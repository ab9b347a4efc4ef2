"""The engines of one node: started together, drained together, and asked for by slot."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import aiohttp

from node.agent import Agent
from node.config import EngineConfig
from node.engine.spec import EngineSpec
from node.engine.state import EngineState
from node.engine.supervisor import Supervisor
from node.worker import Engine, Granted, Worker, engine_session
from registry.errors import TelaError
from registry.lifecycle import Rank

HEARD_S = 0.3  # until every ingress has heard that this node drains


class Engines:
    """Supervisors and the worker before them. Mutable; lives inside `running`.

    Args:
        configs: what to wrap.
        state: where their logs go.
        agent: tells the fabric of every change.
        is_ingress: whether a node may send requests here.
        next_run: a number for a slot's next run.
        rng: jitter of restarts.
        now: monotonic seconds.
        drain_s: what requests under way may take when the engines are to end.
    """

    def __init__(
        self,
        configs: Iterable[EngineConfig],
        *,
        state: Path,
        agent: Agent,
        is_ingress: Callable[[str], bool],
        next_run: Callable[[str], int],
        rng: Random,
        now: Callable[[], float],
        drain_s: float,
    ) -> None:
        self.supervisors: dict[str, Supervisor] = {}
        self._configs = tuple(configs)
        self._state = state
        self._agent = agent
        self._is_ingress = is_ingress
        self._next_run = next_run
        self._rng = rng
        self._now = now
        self._drain_s = drain_s
        self._worker: Worker | None = None

    @property
    def worker(self) -> Worker:
        """What serves request streams; there once `start` was called."""
        assert self._worker is not None
        return self._worker

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return self._worker.in_flight if self._worker else 0

    async def start(self, stack: contextlib.AsyncExitStack, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start every engine; returns what has to be cancelled when the node ends."""
        session = await stack.enter_async_context(engine_session())
        self._worker = Worker(Granted(self._engine, self._is_ingress), session)
        for config in self._configs:
            self.supervisors[config.slot] = self._supervisor(config, session)
        return [tasks.create_task(supervisor.run()) for supervisor in self.supervisors.values()]

    def log_of(self, slot: str) -> Path:
        """Where an engine's output goes."""
        return self._state / f"{slot}.log"

    # --- orders

    async def drained(self) -> str:
        """Wait until nothing is under way."""
        count = self.in_flight
        if self._worker is not None:
            await self._worker.is_idle.wait()
        return f"{count} requests ended" if count else "nothing was under way"

    async def restart(self, reason: str) -> str:
        """Start every engine anew, one after the other.

        Raises:
            TelaError: when none of them was started here.
        """
        ours = [each for each in self.supervisors.values() if each.spec.command is not None]
        if not ours:
            raise TelaError("its engine was not started by tela, so tela cannot restart it")
        for supervisor in ours:
            await supervisor.restart(reason)
        return ", ".join(f"{each.spec.slot} is run {each.current_run}" for each in ours)

    async def stop(self, now: asyncio.Event, tell: Callable[[int], None]) -> int:
        """Drain, then end every engine; returns how many requests were cut off.

        Args:
            now: set when nobody wants to wait any longer.
            tell: called with the number of requests that are waited for, when there are any.
        """
        for supervisor in self.supervisors.values():
            supervisor.drain()
            supervisor.begin_no_more()
        if self._worker is not None and not now.is_set():
            await self._until_idle(self._worker, now, tell)
        cut = self.in_flight
        async with asyncio.TaskGroup() as leaving:
            hurry = leaving.create_task(self._hurry(now))
            endings = [leaving.create_task(each.drain_and_stop()) for each in self.supervisors.values()]
            await asyncio.wait(endings)
            hurry.cancel()
        return cut

    async def _hurry(self, now: asyncio.Event) -> None:
        """Once nobody wants to wait, end engines at once, also those that are ending."""
        await now.wait()
        async with asyncio.TaskGroup() as leaving:
            for supervisor in self.supervisors.values():
                leaving.create_task(supervisor.drain_and_stop(now=True))

    async def _until_idle(self, worker: Worker, now: asyncio.Event, tell: Callable[[int], None]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARD_S):  # first the ingresses must hear that no more should come
                await now.wait()
        if worker.in_flight:
            tell(worker.in_flight)
        waits = [asyncio.ensure_future(now.wait()), asyncio.ensure_future(worker.is_idle.wait())]
        try:
            await asyncio.wait(waits, timeout=self._drain_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # --- supervisors

    def _supervisor(self, config: EngineConfig, session: aiohttp.ClientSession) -> Supervisor:
        spec = EngineSpec(
            slot=config.slot,
            command=config.command,
            url=config.url,
            model=config.model,
            log=self.log_of(config.slot),
            aliases=config.aliases,
            port=config.port,
            drain_s=self._drain_s,
            api_key=os.environ.get("TELA_ENGINE_API_KEY") if config.url is not None else None,
            engine=config.engine,
        )
        return Supervisor(
            spec,
            session=session,
            publish=lambda state: self._changed(state, config.engine),
            rng=self._rng,
            now=self._now,
            run=lambda: self._next_run(config.slot),
            idle=lambda: self.worker.idle(config.slot),
        )

    def _changed(self, state: EngineState, engine: str) -> None:
        self._agent.engine_changed(state, engine, self.log_of(state.slot))
        if state.rank is Rank.DOWN and self._worker is not None:
            self._worker.drop(state.slot)

    def _engine(self, slot: str) -> Engine | None:
        return self.supervisors.get(slot)
