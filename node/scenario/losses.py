"""Steps: engines, workers and hubs are killed while the fabric is called, and what is lost is counted."""

import asyncio

from node.scenario.calls import accounted
from node.scenario.expect import hold, until
from node.scenario.stage import SPREAD_S, Stage, Steps
from node.scenario.traffic import host_of

SEEN_S = 2.0  # until a dead engine is known
BEFORE_S = 0.5  # of load before something is killed
AFTER_S = 1.5


class Losses:
    """What is killed, one after the other; each step leaves less behind.

    Args:
        stage: the fabric.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._fabric = stage.fabric
        self._traffic = stage.traffic

    @property
    def steps(self) -> Steps:
        """In their order."""
        return (
            ("engine killed under load", self._engine_killed),
            ("engine restarted as a new run", self._engine_restarted),
            ("worker killed under load", self._worker_killed),
            ("one usage row per request", lambda: accounted(self._stage)),
            ("hub killed under load", self._hub_killed),
        )

    async def _engine_killed(self) -> str:
        victim = self._fabric.workers[0]
        async with self._traffic.load() as tally:
            await asyncio.sleep(BEFORE_S)
            run, died = victim.engine_run, self._stage.now()
            self._fabric.kill_engine(0)

            async def is_known() -> bool:
                return victim.engine_state != "SERVING" or victim.engine_run != run

            await until(is_known, SEEN_S, f"{victim.name} did not notice")
            seen_ms = (self._stage.now() - died) * 1000
            await asyncio.sleep(AFTER_S)
        return f"{tally.judge()}; its worker knew after {seen_ms:.0f} ms"

    async def _engine_restarted(self) -> str:
        await self._fabric.serving(len(self._fabric.workers))
        name = self._fabric.workers[0].name

        async def answers() -> bool:
            return host_of(await self._traffic.call(stream=False)) == name

        await until(answers, SPREAD_S, f"{name} answered nothing")
        return f"{name} answers again"

    async def _worker_killed(self) -> str:
        async with self._traffic.load() as tally:
            await asyncio.sleep(BEFORE_S)
            self._fabric.workers[-1].kill()
            await asyncio.sleep(AFTER_S)
        return tally.judge()

    async def _hub_killed(self) -> str:
        """The second ingress is all that is left, and must notice nothing."""
        first, second = self._fabric.ingresses
        async with self._traffic.load(1) as tally:
            await asyncio.sleep(BEFORE_S)
            first.kill()
            await until(self._is_missed, SPREAD_S, f"{second.name} did not miss {first.name}")
            await asyncio.sleep(AFTER_S)
            await self._hold_routable()
        said = tally.judge()
        hold(not tally.cut, f"{tally.cut} of {tally.streams} streams were cut: {tally.trouble}")
        await accounted(self._stage, 1)
        return f"{said.partition(',')[0]} at {second.name}, none lost, a row for each; its workers stay routable"

    async def _is_missed(self) -> bool:
        await self._hold_routable()
        view = await self._stage.controls[1].view()
        return any(row.suspect for row in view.nodes if row.id == self._fabric.ingress.id)

    async def _hold_routable(self) -> None:
        view = await self._stage.controls[1].view()
        routable = {row.node for row in view.replicas if row.routable}
        alive = [node for node in self._fabric.workers if not node.is_gone]
        lost = [node.name for node in alive if node.id not in routable]
        hold(not lost, f"{', '.join(lost)} cannot be routed to any more")
