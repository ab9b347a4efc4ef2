"""Sending an answer of the demo engine at its pace, with the faults that were asked for.

The answer is decided before the first byte; this is only waiting, sending and breaking.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable

from node.engine.demo_answers import Answer, Event, Vectors
from node.engine.demo_faults import Ending, Faults, Opening
from node.engine.demo_metrics import ModelMetrics
from node.engine.demo_requests import RequestRefused
from node.engine.demo_wire import DemoProtocol, hang

Header = tuple[bytes, bytes]

MAX_BODY_B: Final = 128 * 1024 * 1024  # twice what an ingress lets through
JSON: Final = b"application/json"
_SSE: Final = b"text/event-stream; charset=utf-8"
_GARBAGE_EVENT: Final = (b'data: {"id":"chatcmpl-\xff","choices":[{"del\n\n', 0, False)
_GARBAGE_BODY: Final = b"<html>\xff this is no JSON"


@dataclass(slots=True)
class Exchange:
    """One request and its answer. `headers` may grow until start(); `faults` is set once known."""

    receive: ASGIReceiveCallable
    send: ASGISendCallable
    wire: DemoProtocol
    headers: list[Header]  # to send beside the content type
    faults: Faults

    async def read(self) -> bytes:
        """Return the body of the request.

        Raises:
            RequestRefused: it is too large.
        """
        body = b""
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                await hang()  # the client is gone; the cancellation is on its way
            body = body + message["body"] if body else message["body"]
            if len(body) > MAX_BODY_B:
                raise RequestRefused("the body is too large", status=413)
            if not message["more_body"]:
                return body

    async def start(self, status: int, media_type: bytes, size_b: int | None = None) -> None:
        """Send the head; without a size the body is chunked."""
        headers: list[Header] = [(b"content-type", media_type), *self.headers]
        if size_b is not None:
            headers.append((b"content-length", b"%d" % size_b))
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": headers,
                "trailers": False,
            }
        )

    async def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        await self.send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, body: bytes, *, status: int = 200, media_type: bytes = JSON) -> None:
        """Send an answer in one piece."""
        await self.start(status, media_type, len(body))
        await self.end(body)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the engine pretends to be, in seconds."""

    first_s: float = 0.0  # before the first token, beside token_s
    token_s: float = 0.0  # before every token


NO_PACE: Final = Pace()


@dataclass(slots=True)
class Run:
    """One running request in the metrics; the player adds its tokens."""

    metrics: ModelMetrics
    began_s: float  # on the loop's clock
    held_tokens: int  # prompt and output so far

    def generated(self, tokens: int) -> None:
        """Count tokens that were made."""
        self.held_tokens += tokens
        self.metrics.generated(tokens)

    def has_first_token(self, now: float) -> None:
        """Measure the time to the first token."""
        self.metrics.ttft.observe(now - self.began_s)


async def perform(exchange: Exchange, answer: Answer | Vectors, pace: Pace, metrics: ModelMetrics) -> None:
    """Send an answer with its faults, and count it.

    Raises:
        RequestRefused: a scripted HTTP error.
    """
    loop = asyncio.get_running_loop()
    run = Run(metrics, loop.time(), answer.prompt_tokens)
    metrics.admit(answer.prompt_tokens)
    try:
        await _open_badly(exchange)
        if isinstance(answer, Answer) and answer.is_stream:
            is_whole = await _play_stream(exchange, answer, pace, run)
        else:
            is_whole = await _play_body(exchange, answer, pace, run)
        if is_whole:
            metrics.succeeded(answer.reasons(), loop.time() - run.began_s)
    except asyncio.CancelledError:
        if exchange.wire.is_lost and not exchange.wire.is_cut:
            metrics.aborted()
        raise
    finally:
        metrics.release(run.held_tokens)


async def _open_badly(exchange: Exchange) -> None:
    """Do what the faults say about the time before the first byte; return if the answer begins."""
    faults = exchange.faults
    if faults.slow_s:
        await asyncio.sleep(faults.slow_s)
    match faults.opening:
        case Opening.STATUS:
            kind = "InternalServerError" if faults.status >= 500 else "BadRequestError"
            raise RequestRefused("a scripted fault", status=faults.status, kind=kind)
        case Opening.RESET:
            await exchange.wire.reset()
        case Opening.HANG:
            await hang()
        case Opening.CRASH:
            await exchange.wire.crash()
        case None:
            pass


async def _play_stream(exchange: Exchange, answer: Answer, pace: Pace, run: Run) -> bool:
    """Send an answer as events and say whether it was sent whole."""
    faults = exchange.faults
    events = _spoiled(answer.events()) if faults.is_garbage else answer.events()
    gap_s = pace.token_s + faults.slow_token_s
    events_left = -1 if faults.ending is None else faults.ending_after
    has_token = False
    # An engine sends its head when it accepts a request, before there is a token.
    await exchange.start(200, _SSE)
    if pace.first_s:
        await asyncio.sleep(pace.first_s)
    for data, tokens, is_step in events:
        if events_left == 0:
            await _end_badly(exchange, faults.ending)
            return False
        events_left -= 1
        if is_step:
            # Without a pace too: an engine's steps are writes of their own, and others get a turn.
            await asyncio.sleep(gap_s)
            if not has_token:
                run.has_first_token(asyncio.get_running_loop().time())
                has_token = True
        run.generated(tokens)
        await exchange.write(data)
    await exchange.end()
    return True


async def _play_body(exchange: Exchange, answer: Answer | Vectors, pace: Pace, run: Run) -> bool:
    """Send an answer as one JSON body and say whether it was sent whole."""
    faults = exchange.faults
    steps = answer.steps()
    wait_s = (pace.first_s + steps * (pace.token_s + faults.slow_token_s)) if steps else 0.0
    if wait_s:
        await asyncio.sleep(wait_s)
    run.generated(answer.completion_tokens())
    body = _GARBAGE_BODY if faults.is_garbage else answer.body()
    if faults.ending is None:
        await exchange.whole(body)
        return True
    half = body[: len(body) // 2]
    is_framed_well = faults.ending is Ending.EOF
    await exchange.start(200, JSON, len(half) if is_framed_well else len(body))
    await exchange.write(half)
    await _end_badly(exchange, faults.ending)
    return False


async def _end_badly(exchange: Exchange, ending: Ending | None) -> None:
    match ending:
        case Ending.TRUNCATE:
            await exchange.wire.cut()
        case Ending.HANG:
            await hang()
        case Ending.CRASH:
            await exchange.wire.crash()
        case _:
            await exchange.end()


def _spoiled(events: Iterator[Event]) -> Iterator[Event]:
    """Put a broken event after the first one."""
    yield next(events)
    yield _GARBAGE_EVENT
    yield from events
