"""The demo's script: what is called, what is broken, and what must hold. Each step reports how it went."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from node.client import Answer, Caller
from node.demo import DemoFabric
from registry.errors import TelaError

LOAD_PER_S = 50.0
SERVE_S = 8.0  # from the start of the demo to a model that answers
SEEN_S = 2.0  # until a dead engine is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the script and how it went."""

    name: str
    ok: bool
    detail: str


class Script:
    """Runs the steps on a running fabric. Mutable: collects steps and answers.

    Args:
        fabric: the processes.
        caller: its client.
        rng: mixes streams and whole answers.
        now: monotonic seconds.
        report: called with each step as it ends.
    """

    def __init__(
        self,
        fabric: DemoFabric,
        caller: Caller,
        *,
        rng: Random,
        now: Callable[[], float],
        report: Callable[[Step], None],
    ) -> None:
        self.steps: list[Step] = []
        self.answers: list[tuple[bool, Answer]] = []  # whether it was a stream, and what came
        self._fabric = fabric
        self._caller = caller
        self._rng = rng
        self._now = now
        self._report = report
        self._calls = 0

    async def check(self, started: float) -> bool:
        """Every step in order; True when all held."""
        await self._step("serving", lambda: self._serving(started))
        await self._step("models", self._models)
        await self._step("whole answer", self._whole)
        await self._step("streamed answer", self._streamed)
        await self._step("embedding", self._embedded)
        await self._step("wrong key", self._wrong_key)
        await self._step("unknown model", self._unknown_model)
        await self._step("engine killed under load", self._killed)
        await self._step("engine restarted as a new run", self._restarted)
        await self._step("worker killed under load", self._worker_killed)
        await self._step("one usage row per request", self._accounted)
        return all(step.ok for step in self.steps)

    async def call(self, *, stream: bool) -> Answer:
        """One call of the live traffic, remembered."""
        self._calls += 1
        answer = await self._caller.chat(self._fabric.model, f"Say something about {self._calls}.", stream=stream)
        self.answers.append((stream, answer))
        return answer

    async def _step(self, name: str, run: Callable[[], Awaitable[str]]) -> None:
        try:
            step = Step(name=name, ok=True, detail=await run())
        except (AssertionError, TelaError, TimeoutError, OSError) as error:
            step = Step(name=name, ok=False, detail=str(error) or type(error).__name__)
        self.steps.append(step)
        self._report(step)

    # --- steps

    async def _serving(self, started: float) -> str:
        await self._fabric.serving(len(self._fabric.workers), SERVE_S * 2)
        await until_called(self._caller, self._fabric.model)
        took = self._now() - started
        hold(took <= SERVE_S, f"took {took:.1f} s, at most {SERVE_S:.0f}")
        return f"{len(self._fabric.workers)} replicas after {took:.1f} s"

    async def _models(self) -> str:
        listed = (await self._caller.get("/v1/models"))["data"]
        one = await self._caller.get(f"/v1/models/{self._fabric.model}")
        hold(isinstance(listed, list) and one in listed, f"the list says {listed}, the model itself {one}")
        return f"{one['id']} is listed and described"

    async def _whole(self) -> str:
        answer = await self.call(stream=False)
        hold(answer.trouble is None, answer.trouble or "")
        return f"{answer.total_s * 1000:.0f} ms from {answer.node}"

    async def _streamed(self) -> str:
        answer = await self.call(stream=True)
        hold(answer.trouble is None, answer.trouble or "")
        events = answer.text.count("data: ")
        hold('"usage"' not in answer.text, "it carries usage that the client did not ask for")
        return f"{events} events, the first after {answer.first_s * 1000:.0f} ms, from {answer.node}"

    async def _embedded(self) -> str:
        answer = await self._caller.embed(self._fabric.model, "some words")
        self.answers.append((False, answer))
        hold(answer.trouble is None, answer.trouble or "")
        return f"{len(answer.text)} bytes from {answer.node}"

    async def _wrong_key(self) -> str:
        answer = await self._caller.chat(self._fabric.model, "x", headers={"Authorization": "Bearer tela_sk_wrong"})
        hold(answer.status == 401, f"answered {answer.status}")
        return "401"

    async def _unknown_model(self) -> str:
        answer = await self._caller.chat("tela/demo", "x")
        hold(answer.status == 404, f"answered {answer.status}")
        hold(self._fabric.model in answer.text, "the error does not name the model that is like it")
        return "404, and names the nearest"

    async def _killed(self) -> str:
        victim = self._fabric.workers[0]
        async with self._load() as answers:
            await asyncio.sleep(0.5)
            before, died = victim.engine_run, self._now()
            self._fabric.kill_engine(0)
            async with asyncio.timeout(SEEN_S):
                while victim.engine_state == "SERVING" and victim.engine_run == before:
                    await asyncio.sleep(0.01)
            seen = self._now() - died
            await asyncio.sleep(1.5)
        return f"{self._judge(answers)}; its worker knew after {seen * 1000:.0f} ms"

    async def _restarted(self) -> str:
        await self._fabric.serving(len(self._fabric.workers), 15.0)
        name = self._fabric.workers[0].name
        async with asyncio.timeout(10.0):
            while not (await self.call(stream=False)).node.startswith(name):
                pass
        return f"{name} answers again"

    async def _worker_killed(self) -> str:
        async with self._load() as answers:
            await asyncio.sleep(0.5)
            self._fabric.workers[-1].process.kill()
            await asyncio.sleep(2.0)
        return self._judge(answers)

    async def _accounted(self) -> str:
        wanted = len(self.answers)
        async with asyncio.timeout(5.0):
            while (rows := await asyncio.to_thread(self._rows)) < wanted:
                await asyncio.sleep(0.1)
        hold(rows == wanted, f"{rows} rows for {wanted} requests")
        return f"{rows} rows for {wanted} requests"

    # --- helpers

    @asynccontextmanager
    async def _load(self) -> AsyncGenerator[list[tuple[bool, Answer]], None]:
        """Mixed traffic at a fixed rate while the block runs; what was called is complete when it ends."""
        first = len(self.answers)
        going = True
        async with asyncio.TaskGroup() as tasks:

            async def drive() -> None:
                start, sent = self._now(), 0
                while going:
                    tasks.create_task(self.call(stream=self._rng.random() < 0.5))
                    sent += 1
                    await asyncio.sleep(max(0.0, start + sent / LOAD_PER_S - self._now()))

            tasks.create_task(drive())
            answers: list[tuple[bool, Answer]] = []
            yield answers
            going = False
        answers += self.answers[first:]

    def _judge(self, answers: list[tuple[bool, Answer]]) -> str:
        lost = [answer for stream, answer in answers if not stream and answer.trouble is not None]
        silent = [answer for _, answer in answers if answer.is_silent]
        cut = [answer for stream, answer in answers if stream and answer.trouble is not None]
        hold(not lost, f"{len(lost)} of {len(answers)} failed: {lost[0].trouble if lost else ''}")
        hold(not silent, f"{len(silent)} streams ended without a word")
        return f"{len(answers)} requests, none lost, {len(cut)} streams ended with an error event"

    def _rows(self) -> int:
        with sqlite3.connect(f"file:{self._fabric.ledger}?mode=ro", uri=True) as database:
            (rows,) = database.execute("SELECT COUNT(*) FROM usage").fetchone()
            return int(rows)


def hold(claim: bool, otherwise: str) -> None:
    """A claim of the script.

    Raises:
        AssertionError: when it does not hold; unlike a bare assert it is never optimised away.
    """
    if not claim:
        raise AssertionError(otherwise)


async def until_called(caller: Caller, model: str, within_s: float = 15.0) -> None:
    """Wait until a model is listed."""
    async with asyncio.timeout(within_s):
        while model not in str(await caller.get("/v1/models")):
            await asyncio.sleep(0.05)
