"""Engine slots for tests: a supervisor with what it published, real demo engines, and one in this process."""

import asyncio
import itertools
import json
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

import aiohttp

from node.engine.spec import EngineSpec
from node.engine.state import EngineState
from node.engine.supervisor import Supervisor
from registry.lifecycle import Rank
from tests.node.demo_client import ASK, CHAT, MODEL

DEMO = f"{shlex.quote(sys.executable)} -m node.engine.demo --port {{port}}"
NEVER_S = 3600.0  # a tick that does not come in a test


class Slot:
    """A supervisor with what it published, and a way to wait for it."""

    def __init__(
        self,
        spec: EngineSpec,
        session: aiohttp.ClientSession,
        *,
        now: Callable[[], float] = time.monotonic,
        idle: Callable[[], Awaitable[None]] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.published: list[EngineState] = []
        self.came = asyncio.Event()
        self.session = session
        self.task: asyncio.Task[None] | None = None
        self.supervisor = Supervisor(
            spec,
            session=session,
            publish=self.hear,
            rng=Random(1),
            run=itertools.count(7).__next__,
            now=now,
            idle=idle,
            environ=environ,
        )

    def hear(self, state: EngineState) -> None:
        self.published.append(state)
        self.came.set()

    async def until(self, claim: Callable[[EngineState], bool]) -> EngineState:
        """The first published state of which a claim is true."""
        while True:
            for state in self.published:
                if claim(state):
                    return state
            self.came.clear()
            await self.came.wait()

    async def serving(self, n: int = 7) -> EngineState:
        return await self.until(lambda s: s.run == n and s.rank is Rank.SERVING)

    async def down(self, n: int = 7) -> EngineState:
        return await self.until(lambda s: s.run == n and s.rank is Rank.DOWN)

    async def ask(self, fault: str = "") -> int:
        return await self.post(CHAT, ASK, **{"x-tela-fault": fault})

    async def post(self, path: str, body: object, **headers: str) -> int:
        """The status of a request to the engine, with its key."""
        key = self.supervisor.api_key
        named = headers if key is None else {**headers, "Authorization": f"Bearer {key}"}
        async with self.session.post(f"{self.supervisor.url}{path}", json=body, headers=named) as response:
            await response.read()
            return response.status


@asynccontextmanager
async def slot(spec: EngineSpec, **more: Any) -> AsyncIterator[Slot]:
    """A supervisor that runs until the block ends."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        one = Slot(spec, session, **more)
        one.task = tasks.create_task(one.supervisor.run())
        yield one
        one.task.cancel()


def demo(path: Path, flags: str = "", **spec: object) -> EngineSpec:
    """A demo engine that is probed once when it serves and then never in a test."""
    return EngineSpec(
        slot="gpu0",
        command=f"{DEMO} {flags}",
        log=path / "log",
        **{"probe_s": 0.02, "watch_s": NEVER_S, "stop_grace_s": 5.0} | spec,  # type: ignore[arg-type]
    )


def at(url: str, path: Path, watch_s: float = 0.01, **spec: object) -> EngineSpec:
    return EngineSpec(
        slot="gpu0",
        url=url,
        log=path / "log",
        probe_s=0.01,
        watch_s=watch_s,
        **spec,  # type: ignore[arg-type]
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Fake:
    """An engine in this process whose health, models and answers a test changes. It serves chats alone."""

    def __init__(self) -> None:
        self.status = 200
        self.models = [MODEL]
        self.port = 0
        self.asked = 0  # times that its health was
        self.chat_status = 200
        self.created = 0  # of its models, as it says
        self.api_key = ""  # empty: everybody may
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if "content-length: " in head:
            await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
        status, body = self._answer(head)
        text = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
        writer.close()

    def _answer(self, head: str) -> tuple[int, object]:
        if head.startswith("get /health "):
            self.asked += 1
            return self.status, {}
        if self.api_key and f"authorization: bearer {self.api_key}" not in head:
            return 401, {"error": "unauthorized"}
        if head.startswith("get "):
            return self.status, {"data": [{"id": model, "created": self.created} for model in self.models]}
        if head.startswith("post /v1/chat/completions "):
            return self.chat_status, {"choices": [{"message": {"role": "assistant", "content": "x"}}]}
        return 404, {"error": "not here"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"
