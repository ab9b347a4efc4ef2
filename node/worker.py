"""The worker's side of a request: from a stream to the engine on loopback and back, byte for byte."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from types import SimpleNamespace
from typing import NamedTuple, Protocol

import aiohttp

from gossip.muxevents import ResetCode
from gossip.stream import Stream
from node.engine.rename import renamed
from node.ingress.splice import BodyRefused
from node.tunnel import (
    MAX_BODY_B,
    HeadRefused,
    ReplyHead,
    RequestHead,
    encode_head,
    read_request_head,
    to_client,
    to_engine,
)
from registry.errors import TelaError

log = logging.getLogger(f"tela.{__name__}")

CONNECT_S = 5.0
KEEP_ALIVE_S = 3.0  # below the 5 s after which common engines close an idle connection
SLICE_B = 262_144


class Engine(Protocol):
    """What the worker needs to know of a live engine."""

    @property
    def url(self) -> str | None:
        """Its base URL on loopback; None while there is none."""

    @property
    def current_run(self) -> int:
        """The replica run it is."""

    @property
    def api_key(self) -> str | None:
        """What it takes for permission; None: it asks for none."""

    @property
    def names(self) -> Mapping[str, str]:
        """Its own name of each model that is offered by another."""

    def report_failure(self) -> None:
        """It refused or broke a connection: look at it now."""


class Granted(NamedTuple):
    """What a worker may be asked for, and by whom."""

    engine: Callable[[str], Engine | None]  # by slot
    is_ingress: Callable[[str], bool]  # whether a node id holds the ingress role


class Worker:
    """Serves request streams on this node's engines. Mutable: it counts them.

    Args:
        granted: engines and authority; the link proved who asks, its grant says what it may.
        session: the client to engines; made by `engine_session`.

    Attributes:
        in_flight: streams under way.
        served: requests an engine answered to the end, whatever it said.
        is_idle: set while nothing is under way.
    """

    def __init__(self, granted: Granted, session: aiohttp.ClientSession) -> None:
        self.in_flight = 0
        self.served = 0
        self._under_way: dict[Stream, str | None] = {}  # and the slot it is for, once that is known
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._one_ended = asyncio.Event()  # a request ended since somebody last looked
        self._granted = granted
        self._session = session

    def in_flight_of(self, slot: str) -> int:
        """How many requests are under way at the engine of a slot."""
        return sum(under == slot for under in self._under_way.values())

    async def idle(self, slot: str) -> None:
        """Wait until none is under way at the engine of a slot."""
        while self.in_flight_of(slot):
            self._one_ended.clear()
            await self._one_ended.wait()

    async def serve(self, stream: Stream) -> None:
        """Handle one request stream; when the ingress resets it the engine's connection is closed at once."""
        task = asyncio.current_task()
        assert task is not None
        stream.on_lost = task.cancel
        self._under_way[stream] = None
        self.in_flight += 1
        self.is_idle.clear()
        try:
            await self._serve(stream)
        finally:
            self.in_flight -= 1
            del self._under_way[stream]
            self._one_ended.set()
            if not self.in_flight:
                self.is_idle.set()

    def drop(self, slot: str) -> None:
        """An engine is down: what it was asked is broken off now, so that it can be asked elsewhere."""
        for stream in [stream for stream, under in self._under_way.items() if under == slot]:
            stream.reset(ResetCode.ENGINE)
            if stream.on_lost is not None:
                stream.on_lost()

    async def _serve(self, stream: Stream) -> None:
        try:
            head = read_request_head(stream.head)
        except HeadRefused as refusal:
            log.warning("request refused", extra={"peer": stream.peer, "reason": refusal.message})
            stream.reset(ResetCode.REFUSED)
            return
        engine = self._granted.engine(head.slot)
        if engine is None or engine.url is None or engine.current_run != head.run:
            stream.reset(ResetCode.REFUSED)
            return
        if not self._granted.is_ingress(stream.peer):
            log.warning("request refused: not an ingress", extra={"peer": stream.peer})
            stream.reset(ResetCode.REFUSED)
            return
        self._under_way[stream] = head.slot
        body = await _read_body(stream)
        try:
            await self._ask(engine, head, renamed(body, engine.names) if engine.names else body, stream)
            self.served += 1
        except BodyRefused as refusal:
            log.warning("request refused", extra={"peer": stream.peer, "reason": refusal.message})
            stream.reset(ResetCode.REFUSED)
        except (aiohttp.ClientError, OSError) as error:
            log.info("engine failed", extra={"rid": head.rid, "error": repr(error)})
            engine.report_failure()
            stream.reset(ResetCode.ENGINE)

    async def _ask(self, engine: Engine, head: RequestHead, body: bytes, stream: Stream) -> None:
        # Again, since the ingress is another node: framing and credentials are this node's to say.
        allowed = to_engine((name.lower(), value) for name, value in head.headers)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in allowed]
        headers += [
            ("X-Request-Id", head.rid),
            ("Content-Length", str(len(body))),
        ]
        if engine.api_key is not None:
            headers.append(("Authorization", f"Bearer {engine.api_key}"))
        async with await self._post(f"{engine.url}{head.path}", body, headers) as response:
            stream.reply(encode_head(ReplyHead(response.status, to_client(response.raw_headers))))
            async for chunk in response.content.iter_any():
                stream.write(chunk)
                await stream.drain()
        stream.end()

    async def _post(self, url: str, body: bytes, headers: list[tuple[str, str]]) -> aiohttp.ClientResponse:
        wire = _Wire()
        try:
            return await self._session.post(
                url, data=_payload(body), headers=headers, allow_redirects=False, trace_request_ctx=wire
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not wire.is_reused:
                raise
            # A kept-alive connection may close while it is being used again. Nothing was answered, and all
            # that is served here is safe to repeat; a dead engine refuses the second time.
            return await self._session.post(url, data=_payload(body), headers=headers, allow_redirects=False)


class _Wire:
    """What the client says of the connection a request goes out on. Changed by its trace."""

    is_reused = False


async def _note_reuse(_session: aiohttp.ClientSession, context: SimpleNamespace, _about: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.is_reused = True


def _payload(body: bytes) -> bytes | AsyncIterator[bytes]:
    """A large body in slices: written in one piece it would hold the loop, and so the links."""
    return body if len(body) <= SLICE_B else _slices(body)


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), SLICE_B):
        yield body[start : start + SLICE_B]


async def _read_body(stream: Stream) -> bytes:
    first = await stream.read()
    parts = [first or b""]
    size = len(parts[0])
    while (part := await stream.read()) is not None:
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_B:
            raise TelaError(f"a body over {MAX_BODY_B} bytes", code="too_large")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def engine_session() -> aiohttp.ClientSession:
    """A client for engines on loopback: no environment proxies, no cookies, bytes as they come."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        trace_configs=[trace],
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )
