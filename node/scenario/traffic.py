"""Calls to the doors of a demo and what came of them: every call is counted, so that none is lost unseen."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from node.client import Answer, Caller
from node.scenario.expect import FAILURES, hold
from registry.errors import TelaError

LOAD_PER_S = 50.0
LISTED_S = 60.0
NO_ROW = frozenset({401, 404})  # such a call is refused before it is a request


@dataclass(slots=True)
class Tally:
    """What became of some calls. Changed by whoever makes them."""

    whole: int = 0  # calls for a whole answer
    streams: int = 0
    lost: int = 0  # whole answers that did not come
    cut: int = 0  # streams that ended with an error
    silent: int = 0  # streams that ended without a word
    trouble: str = ""  # of the first call that had one
    by_host: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """All of them."""
        return self.whole + self.streams

    def add(self, answer: Answer, *, stream: bool) -> None:
        """Count one."""
        has_trouble = answer.trouble is not None
        self.whole += not stream
        self.streams += stream
        self.lost += has_trouble and not stream
        self.cut += has_trouble and stream
        self.silent += answer.is_silent
        self.trouble = self.trouble or answer.trouble or ""
        if answer.node:
            self.by_host[host_of(answer)] += 1

    def judge(self) -> str:
        """What is to be said of them.

        Raises:
            AssertionError: a whole answer was lost, or a stream ended in silence.
        """
        hold(not self.lost, f"{self.lost} of {self.calls} failed: {self.trouble}")
        hold(not self.silent, f"{self.silent} streams ended without a word")
        ended = "1 stream" if self.cut == 1 else f"{self.cut or 'no'} streams"
        return f"{self.calls} requests, none lost, {ended} ended with an error event"


@dataclass(slots=True)
class Door:
    """One ingress as its clients see it. Changed by `Traffic`."""

    name: str
    caller: Caller
    ledger: Path
    requests: int = 0  # that must have a usage row


class Traffic:
    """Calls a model at every door in turn. Mutable: it counts.

    Args:
        doors: where to call.
        model: what to call.
        rng: mixes streams and whole answers.
        now: monotonic seconds.
    """

    def __init__(self, doors: Sequence[Door], model: str, *, rng: Random, now: Callable[[], float]) -> None:
        self.doors = doors
        self.model = model
        self._rng = rng
        self._now = now
        self._calls = 0

    async def call(self, *, stream: bool, at: int = 0, key: str | None = None) -> Answer:
        """One call at a door, with its own key or another."""
        door = self.doors[at]
        caller = door.caller if key is None else door.caller.with_key(key)
        self._calls += 1
        answer = await caller.chat(self.model, f"Say something about {self._calls}.", stream=stream)
        door.requests += answer.status not in NO_ROW
        return answer

    async def embed(self, at: int = 0) -> Answer:
        """One embedding."""
        answer = await self.doors[at].caller.embed(self.model, "some words")
        self.doors[at].requests += 1
        return answer

    @asynccontextmanager
    async def load(self, *at: int) -> AsyncGenerator[Tally, None]:
        """Mixed calls at a fixed rate while the block runs; what was called is complete when it ends, however it does.

        Args:
            at: at which doors, in turn; none: at all.
        """
        tally, doors = Tally(), at or tuple(range(len(self.doors)))
        going, failure = True, None

        async def one(door: int) -> None:
            stream = self._rng.random() < 0.5
            tally.add(await self.call(stream=stream, at=door), stream=stream)

        async def drive() -> None:
            start, sent = self._now(), 0
            while going:
                tasks.create_task(one(doors[sent % len(doors)]))
                sent += 1
                await asyncio.sleep(max(0.0, start + sent / LOAD_PER_S - self._now()))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(drive())
            try:
                yield tally
            except FAILURES as error:  # the calls under way would be cancelled, and be lost to the count
                failure = error
            going = False
        if failure is not None:
            raise failure


def host_of(answer: Answer) -> str:
    """The host of the node that answered; empty when none did."""
    return answer.node.partition("@")[0]


async def until_called(caller: Caller, model: str, within_s: float = LISTED_S) -> None:
    """Wait until a model is listed.

    Raises:
        TelaError: it was not in time.
    """
    try:
        async with asyncio.timeout(within_s):
            while True:
                if model in str(await caller.get("/v1/models")):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TelaError(f"the door did not list {model} within {within_s:.0f} s", code="not_listed") from None
