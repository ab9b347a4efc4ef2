"""Steps: the fabric serves, answers what it should, refuses what it should, and counts every request."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from node.scenario.expect import hold, until
from node.scenario.stage import Stage, Steps
from node.scenario.traffic import until_called

ROWS_S = 20.0


class Calls:
    """What a client sees.

    Args:
        stage: the fabric.
        started: when it was started, monotonic seconds.
    """

    def __init__(self, stage: Stage, started: float) -> None:
        self._stage = stage
        self._fabric = stage.fabric
        self._traffic = stage.traffic
        self._caller = stage.traffic.doors[0].caller
        self._started = started

    @property
    def steps(self) -> Steps:
        """In their order."""
        return (
            ("serving", self._serving),
            ("models", self._models),
            ("whole answer", self._whole),
            ("streamed answer", self._streamed),
            ("embedding", self._embedded),
            ("wrong key", self._wrong_key),
            ("unknown model", self._unknown_model),
        )

    async def _serving(self) -> str:
        count = len(self._fabric.workers)
        await self._fabric.serving(count)
        for door in self._traffic.doors:
            await until_called(door.caller, self._fabric.model)
        took_s = self._stage.now() - self._started
        return f"{count} replicas behind {len(self._traffic.doors)} doors after {took_s:.1f} s"

    async def _models(self) -> str:
        listed = (await self._caller.get("/v1/models"))["data"]
        one = await self._caller.get(f"/v1/models/{self._fabric.model}")
        hold(isinstance(listed, list) and one in listed, f"the list says {listed}, the model itself {one}")
        return f"{one['id']} is listed and described"

    async def _whole(self) -> str:
        answer = await self._traffic.call(stream=False)
        hold(answer.trouble is None, answer.trouble or "")
        return f"{answer.total_s * 1000:.0f} ms from {answer.node}"

    async def _streamed(self) -> str:
        answer = await self._traffic.call(stream=True)
        hold(answer.trouble is None, answer.trouble or "")
        events = answer.text.count("data: ")
        hold('"usage"' not in answer.text, "it carries usage that the client did not ask for")
        return f"{events} events, the first after {answer.first_s * 1000:.0f} ms, from {answer.node}"

    async def _embedded(self) -> str:
        answer = await self._traffic.embed()
        hold(answer.trouble is None, answer.trouble or "")
        return f"{len(answer.text)} bytes from {answer.node}"

    async def _wrong_key(self) -> str:
        answer = await self._caller.with_key("tela_sk_wrong").chat(self._fabric.model, "x")
        hold(answer.status == 401, f"answered {answer.status}")
        return "401"

    async def _unknown_model(self) -> str:
        answer = await self._caller.chat("tela/demo", "x")
        hold(answer.status == 404, f"answered {answer.status}")
        hold(self._fabric.model in answer.text, "the error does not name the model that is like it")
        return "404, and names the nearest"


async def accounted(stage: Stage, *at: int) -> str:
    """A step: each request at these doors, or at all, has exactly one usage row at its door."""
    told = []
    for number in at or range(len(stage.traffic.doors)):
        door = stage.traffic.doors[number]
        rows = 0

        async def are_there(ledger: Path = door.ledger, wanted: int = door.requests) -> bool:
            nonlocal rows
            rows = await asyncio.to_thread(_rows, ledger)
            return rows >= wanted

        with contextlib.suppress(AssertionError):
            await until(are_there, ROWS_S, "")
        hold(rows == door.requests, f"{rows} rows for {door.requests} requests at {door.name}")
        told.append(f"{rows} rows for {door.requests} requests at {door.name}")
    return ", ".join(told)


def _rows(ledger: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as database:
        (rows,) = database.execute("SELECT COUNT(*) FROM usage").fetchone()
        return int(rows)
