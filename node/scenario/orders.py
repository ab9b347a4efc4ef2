"""Steps: what operators order is done, and what somebody orders who may not is refused and changes nothing."""

import asyncio

from node.scenario.expect import hold, until
from node.scenario.operator import Given
from node.scenario.stage import ORDER_S, SPREAD_S, Stage, Steps
from node.scenario.traffic import host_of

LOAD_S = 1.0


class Orders:
    """Orders about one worker.

    Args:
        stage: the fabric.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._traffic = stage.traffic
        self._worker = stage.fabric.workers[1]

    @property
    def steps(self) -> Steps:
        """In their order."""
        return (
            ("worker drained", self._drained),
            ("worker undrained", self._undrained),
            ("engine restarted by order", self._restarted),
            ("order out of scope", self._out_of_scope),
        )

    async def _drained(self) -> str:
        worker = self._worker
        given = await self._stage.operator.order("drain", worker.id)
        await self._until_done(given)
        await self._until_draining(True)
        async with self._traffic.load() as tally:
            await asyncio.sleep(LOAD_S)
        said = tally.judge()
        hold(not tally.by_host[worker.name], f"{tally.by_host[worker.name]} requests reached {worker.name}")
        return f"none of {said.partition(',')[0]} reached {worker.name}"

    async def _undrained(self) -> str:
        await self._until_done(await self._stage.operator.order("undrain", self._worker.id))
        await self._until_draining(False)
        await self._until_it_answers()
        return f"{self._worker.name} answers again at every door"

    async def _restarted(self) -> str:
        worker = self._worker
        before = worker.engine_run
        async with self._traffic.load() as tally:
            detail = await self._until_done(await self._stage.operator.order("restart", worker.id))
            await until(
                lambda: _so(worker.engine_run > before and worker.engine_state == "SERVING"),
                ORDER_S,
                f"the engine of {worker.name} did not serve as a new run",
            )
        return f"{tally.judge()}; {worker.name}: {detail}"

    async def _out_of_scope(self) -> str:
        worker, run = self._worker, self._worker.engine_run
        given = await self._stage.stranger.order("drain", worker.id)
        hold(not given.told.counts, "it counts")
        hold(bool(given.told.why), "nobody says why it does not count")
        name = given.record.order.hash.hex()

        async def is_refused_everywhere() -> bool:
            views = [await control.view() for control in self._stage.controls]
            return all(name in {row.hash for row in view.refused} for view in views)

        await until(is_refused_everywhere, SPREAD_S, "it was not shown as refused at every ingress")
        progress = await self._stage.controls[0].progress(given.record)
        hold(progress.state == "REFUSED", f"its state is {progress.state}: {progress.detail}")
        await self._until_it_answers()
        hold(not any(row.draining for row in await self._stage.seen(worker)), f"{worker.name} drains")
        hold((worker.engine_state, worker.engine_run) == ("SERVING", run), f"its engine is {worker.engine_said}")
        return f"refused, and {worker.name} still answers: {given.told.why}"

    # --- what it waits for

    async def _until_done(self, given: Given) -> str:
        """Follow an order to its end; returns what its node says of it."""
        hold(given.told.counts, f"it counts nowhere: {given.told.why}")
        detail = ""

        async def is_done() -> bool:
            nonlocal detail
            progress = await self._stage.controls[0].progress(given.record)
            hold(progress.state != "REFUSED", f"it was refused: {progress.detail}")
            detail = progress.detail
            return progress.state == "DONE"

        await until(is_done, ORDER_S, "it was not done")
        return detail

    async def _until_draining(self, is_wanted: bool) -> None:
        async def is_known() -> bool:
            rows = await self._stage.seen(self._worker)
            return len(rows) == len(self._stage.controls) and all(row.draining is is_wanted for row in rows)

        await until(is_known, SPREAD_S, f"not every ingress knew whether {self._worker.name} drains")

    async def _until_it_answers(self) -> None:
        for at, door in enumerate(self._traffic.doors):
            otherwise = f"{self._worker.name} answered nothing at {door.name}"
            await until(lambda at=at: self._is_answered(at), SPREAD_S, otherwise)  # type: ignore[misc]

    async def _is_answered(self, at: int) -> bool:
        return host_of(await self._traffic.call(stream=False, at=at)) == self._worker.name


async def _so(claim: bool) -> bool:
    return claim
