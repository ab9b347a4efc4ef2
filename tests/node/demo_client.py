"""Clients of the demo engine for tests: over HTTP, over a bare socket, and of a child process."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp

from node.engine.demo import EngineOptions, demo_engine
from node.engine.demo_wire import Listening

MODEL = "tela/demo"
CHAT = "/v1/chat/completions"
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "what is a warp thread"}]}
DEADLINE_S = 20
DEFAULTS = EngineOptions()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def within_deadline() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    asyncio.run(within_deadline())


@asynccontextmanager
async def client(options: EngineOptions) -> AsyncIterator[aiohttp.ClientSession]:
    async with demo_engine(options) as place, aiohttp.ClientSession(place.url) as session:
        yield session


def answer(path: str, body: object, options: EngineOptions = DEFAULTS, **headers: str) -> bytes:
    """The bytes of the 200 answer to one request."""
    got = b""

    async def ask() -> None:
        nonlocal got
        async with client(options) as session:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            async with session.post(path, json=body, headers=named) as response:
                got = await response.read()
                assert response.status == 200, got

    run(ask)
    return got


def refusal(
    path: str, body: bytes, options: EngineOptions = DEFAULTS, method: str = "POST"
) -> tuple[int, dict[str, object]]:
    """The status and the error object of the answer to one request."""
    status, error = 0, {}

    async def ask() -> None:
        nonlocal status, error
        async with (
            client(options) as session,
            session.request(method, path, data=body) as response,
        ):
            status, error = response.status, (await response.json())["error"]

    run(ask)
    assert error["code"] == status
    return status, error


def request_bytes(body: object, fault: str = "", path: str = CHAT) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: demo\r\ncontent-length: {len(data)}\r\n"
    return (head + f"x-tela-fault: {fault}\r\n\r\n").encode() + data


async def read_to_the_end(place: Listening, fault: str, body: object) -> bytes:
    """What arrives on a socket of our own until the engine closes it."""
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        writer.write(request_bytes(body, fault))
        return await reader.read()
    finally:
        writer.close()


def on_the_wire(fault: str, *, stream: bool) -> bytes:
    got = b""

    async def ask() -> None:
        nonlocal got
        async with demo_engine() as place:
            got = await read_to_the_end(place, fault, {**ASK, "stream": stream})

    run(ask)
    return got


def events_of(stream: bytes) -> list[bytes]:
    assert stream.endswith(b"\n\n")
    return [event.removeprefix(b"data: ") for event in stream[:-2].split(b"\n\n")]


async def gauge(session: aiohttp.ClientSession, name: str) -> float:
    async with session.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return float(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1])


async def until(session: aiohttp.ClientSession, name: str, value: float) -> None:
    while await gauge(session, name) != value:
        pass


@contextmanager
def child(*flags: str) -> Iterator[tuple[subprocess.Popen[bytes], Listening]]:
    command = [sys.executable, "-m", "node.engine.demo", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["ready"] is True
            yield process, Listening(host="127.0.0.1", port=ready["port"])
        finally:
            process.kill()


def post(place: Listening, fault: str, *, stream: bool) -> bytes:
    """What arrives until the child closes the connection."""
    got = b""
    with socket.create_connection((place.host, place.port), timeout=DEADLINE_S) as connection:
        connection.sendall(request_bytes({**ASK, "stream": stream}, fault))
        while data := connection.recv(65536):
            got += data
    return got
