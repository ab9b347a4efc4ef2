"""The load generator: a lean HTTP/1.1 client on kept-alive connections, and three ways to use it.

It runs in a process of its own (`python -P -m tests.bench.load --json ...`), since a loop shared with
what it measures would count its own work as latency. It never retries: what a client would have seen counts.
"""

import argparse
import asyncio
import gc
import select
import selectors
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random
from time import perf_counter, process_time
from typing import Final, Literal, cast

import httptools
import msgspec
import uvloop

from tests.bench.stats import Sample, arrivals, summarise

CONNECT: Final = "cannot connect"
CLOSED: Final = "closed before the answer"
RESET: Final = "reset"
TRUNCATED: Final = "truncated"  # the framing says that more was to come
UNFINISHED: Final = "ended without [DONE]"  # framed well, and yet not the whole stream
ERROR_EVENT: Final = "error event"
NOT_JSON: Final = "body is no JSON"
NOT_HTTP: Final = "answer is no HTTP"
TIMED_OUT: Final = "timed out"

_BROKEN: Final = object()  # what is no JSON
# Refused connections would otherwise turn a closed loop into a busy one.
_PAUSE_AFTER_REFUSAL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is asked, and where."""

    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""  # empty: a GET
    stream: bool = False  # the answer is events and ends with `data: [DONE]`
    patience_s: float = 60.0  # from the send to the end of the answer

    def request(self) -> bytes:
        """Return the request as it goes on the wire."""
        body = self.body.encode()
        lines = [f"{'POST' if body else 'GET'} {self.path} HTTP/1.1", f"host: {self.host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class _Answer:
    """What has arrived for one request; its wire fills it."""

    __slots__ = ("events", "first_s", "has_done", "has_error", "is_sse", "size_b", "status", "tail")

    def __init__(self) -> None:
        self.status = 0
        self.size_b = 0
        self.events = 0
        self.first_s: float | None = None
        self.is_sse = False
        self.has_done = False
        self.has_error = False
        self.tail = b""  # of a stream: the line not yet ended; else: the body

    def take(self, data: bytes, at_s: float) -> None:
        self.size_b += len(data)
        if self.is_sse:
            self._take_lines(self.tail + data, at_s)
            return
        self.tail = self.tail + data if self.tail else data
        if self.first_s is None:
            self.first_s = at_s

    def _take_lines(self, data: bytes, at_s: float) -> None:
        *lines, self.tail = data.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take_event(line[5:].strip(), at_s)
            elif line.startswith(b"event:") and line[6:].strip() == b"error":
                self.has_error = True

    def _take_event(self, event: bytes, at_s: float) -> None:
        if event == b"[DONE]":
            self.has_done = True
            return
        self.events += 1
        if self.first_s is None:
            self.first_s = at_s
        if b'"error"' in event and _is_error(event):
            self.has_error = True

    def judge(self, *, wants_stream: bool) -> str | None:
        """Return what is wrong with an answer that was framed well."""
        if self.has_error:
            return ERROR_EVENT
        if self.is_sse or (wants_stream and 200 <= self.status < 300):
            return None if self.has_done else UNFINISHED
        return NOT_JSON if self.tail and _decoded(self.tail) is _BROKEN else None  # /health sends nothing


def _decoded(data: bytes) -> object:
    try:
        return cast("object", msgspec.json.decode(data))
    except msgspec.DecodeError:
        return _BROKEN


def _is_error(event: bytes) -> bool:
    """Say whether an event is an error: an answer may quote the word."""
    decoded = _decoded(event)
    return isinstance(decoded, dict) and (decoded.get("error") is not None or decoded.get("type") == "error")


class Wire(asyncio.Protocol):
    """One kept-alive connection that carries one request at a time.

    Both loops set TCP_NODELAY. `is_open` falls when the connection can carry no further request.
    """

    _transport: asyncio.Transport  # from connection_made on

    def __init__(self, target: Target, request: bytes, now: Callable[[], float]) -> None:
        self.is_open = False
        self._target = target
        self._request = request
        self._now = now
        self._parser = httptools.HttpResponseParser(self)
        self._answer = _Answer()
        self._asked: asyncio.Future[Sample] | None = None  # None: nothing is asked
        self._scheduled_s = self._sent_s = self._now_s = 0.0

    async def ask(self, scheduled_s: float) -> Sample:
        """Send the request and return what became of it."""
        loop = asyncio.get_running_loop()
        asked = self._asked = loop.create_future()
        self._answer = _Answer()
        self._scheduled_s = scheduled_s
        timer = loop.call_later(self._target.patience_s, self._break_off, TIMED_OUT)
        self._sent_s = self._now()
        self._transport.write(self._request)
        try:
            return await asked
        finally:
            timer.cancel()

    def close(self) -> None:
        """Drop the connection."""
        self.is_open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._asked is None:
            self.close()  # an answer to nothing
            return
        self._now_s = self._now()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._break_off(NOT_HTTP)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._now_s = self._now()
        self._settle(RESET if exc is not None else TRUNCATED if self._answer.status else CLOSED)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream"):
            self._answer.is_sse = True

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._answer.take(body, self._now_s)

    def on_message_complete(self) -> None:
        if self._answer.status < 200:
            return  # 1xx: the answer is still to come
        if not self._parser.should_keep_alive():
            self.close()
        self._settle(self._answer.judge(wants_stream=self._target.stream), is_whole=True)

    def _break_off(self, reason: str) -> None:
        self._now_s = self._now()
        self.close()
        self._settle(reason)

    def _settle(self, error: str | None, *, is_whole: bool = False) -> None:
        asked, self._asked = self._asked, None
        if asked is None or asked.done():
            return
        answer = self._answer
        asked.set_result(
            Sample(
                scheduled_s=self._scheduled_s,
                sent_s=self._sent_s,
                first_s=answer.first_s,
                end_s=self._now_s,
                status=answer.status,
                bytes=answer.size_b,
                events=answer.events,
                is_complete=is_whole and error is None,
                error=ERROR_EVENT if answer.has_error else error,  # what the client was told says most
            )
        )


class _Wires:
    """The connections of one run. The one used last goes first; a new one is made when all are busy."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._request = target.request()
        self.made: set[Wire] = set()
        self._idle: list[Wire] = []
        self._began_s = perf_counter()

    def now(self) -> float:
        """Return the seconds since the run began. A loop's own clock may tick in milliseconds."""
        return perf_counter() - self._began_s

    async def ask(self, due_s: float) -> Sample:
        """Send one request on a free connection and return what became of it."""
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                break
            self.made.discard(wire)
        else:
            try:
                wire = await self._connect()
            except OSError:
                now_s = self.now()
                return Sample(scheduled_s=due_s, sent_s=now_s, end_s=now_s, error=CONNECT)
        sample = await wire.ask(due_s)
        self._idle.append(wire)
        return sample

    async def _connect(self) -> Wire:
        target = self._target
        _, wire = await asyncio.get_running_loop().create_connection(
            lambda: Wire(target, self._request, self.now), target.host, target.port
        )
        self.made.add(wire)
        return wire

    async def begin(self, connections: int) -> None:
        """Connect, so that no request pays for it, and set the clock to zero."""
        with suppress(OSError):  # each request will say so
            self._idle = [await self._connect() for _ in range(connections)]
        self._began_s = perf_counter()


@asynccontextmanager
async def _connected(target: Target, connections: int) -> AsyncIterator[_Wires]:
    wires = _Wires(target)
    try:
        await wires.begin(connections)
        yield wires
    finally:
        for wire in wires.made:
            wire.close()
        await asyncio.sleep(0)  # lets the transports finish closing


async def open_loop(
    target: Target, *, rate_per_s: float, seconds: float, connections: int, rng: Random | None
) -> list[Sample]:
    """Send requests when they are due, whatever became of those before; return all, as scheduled.

    `connections` are made beforehand. Without `rng` the pace is even.
    """
    async with _connected(target, connections) as wires:
        asked: list[asyncio.Task[Sample]] = []
        async with asyncio.TaskGroup() as asking:
            for due_s in arrivals(rate_per_s, seconds, rng):
                while (left_s := due_s - wires.now()) > 0:
                    await asyncio.sleep(left_s)
                asked.append(asking.create_task(wires.ask(due_s)))
    return [task.result() for task in asked]


async def closed_loop(target: Target, *, connections: int, seconds: float) -> list[Sample]:
    """Keep every connection busy; return the requests in the order of their ends.

    Those under way after `seconds` are waited for and returned too.
    """
    samples: list[Sample] = []

    async def keep_asking(wires: _Wires) -> None:
        while (now_s := wires.now()) < seconds:
            samples.append(await wires.ask(now_s))
            if samples[-1].error == CONNECT:
                await asyncio.sleep(_PAUSE_AFTER_REFUSAL_S)

    async with _connected(target, connections) as wires, asyncio.TaskGroup() as asking:
        for _ in range(connections):
            asking.create_task(keep_asking(wires))
    return samples


async def sequential(target: Target, *, count: int) -> list[Sample]:
    """Send `count` requests, one after the other, on one connection for as long as it lasts."""
    async with _connected(target, 1) as wires:
        return [await wires.ask(wires.now()) for _ in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How a target is loaded. Each mode reads the fields it needs."""

    mode: Literal["open", "closed", "sequential"]
    rate_per_s: float = 16.0  # open
    seconds: float = 10.0  # open, closed
    connections: int = 16  # open, closed
    count: int = 200  # sequential
    seed: int | None = None  # open: of a Poisson process; None: an even pace
    warm_up: int = 30  # requests before, which count nowhere


async def run(target: Target, load: Load) -> tuple[list[Sample], float]:
    """Load a target; return the requests and how long the run was to last, in seconds."""
    if load.mode == "sequential":
        samples = await sequential(target, count=load.count)
        return samples, samples[-1].end_s if samples else 0.0
    if load.mode == "closed":
        return await closed_loop(target, connections=load.connections, seconds=load.seconds), load.seconds
    rng = None if load.seed is None else Random(load.seed)
    pace = {"rate_per_s": load.rate_per_s, "seconds": load.seconds}
    return await open_loop(target, **pace, connections=load.connections, rng=rng), load.seconds


class _FineSelector(selectors.EpollSelector):
    """Epoll that wakes to the microsecond: epoll_wait alone rounds up to the next millisecond."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait on the epoll descriptor itself, then fetch without waiting."""
        if timeout is not None and timeout > 0:
            select.select([self], (), (), timeout)
            timeout = 0
        return super().select(timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a load process is told to do."""

    target: Target
    load: Load
    with_values: bool = False  # print every latency too
    is_gated: bool = False  # print a line when warm, wait for one, and print another when done


def main(argv: list[str]) -> int:
    """Carry out one order and print its summary as one line of JSON."""
    parser = argparse.ArgumentParser(prog="load", description=main.__doc__)
    parser.add_argument("--json", required=True, metavar="ORDER", help='{"target": {...}, "load": {...}}')
    order = msgspec.json.decode(parser.parse_args(argv).json, type=Order)
    # uvloop costs less, but its timers are in milliseconds, which a schedule would show.
    loops = _fine_loop if order.load.mode == "open" else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(sequential(order.target, count=order.load.warm_up))
        gc.freeze()
        gc.disable()
        if order.is_gated:
            print('{"warm": true}', flush=True)
            sys.stdin.readline()
        before_s = process_time()
        samples, seconds = runner.run(run(order.target, order.load))
        cpu_s = process_time() - before_s
    if order.is_gated:
        print('{"done": true}', flush=True)
    summary = summarise(samples, seconds=seconds, generator_cpu_s=cpu_s, with_values=order.with_values)
    print(msgspec.json.encode(summary).decode())
    return 0


def _fine_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(_FineSelector())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
