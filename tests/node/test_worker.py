"""The worker between a stream and a real demo engine; the stream's link is a pair of ends in this process."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

import msgspec
import pytest

from gossip.muxevents import Ended, Received, Replied, ResetCode, ResetReceived
from gossip.stream import Stream, StreamReset
from node.engine.demo import EngineOptions, demo_engine
from node.tunnel import ReplyHead, RequestHead, encode_head, read_reply_head
from node.worker import Granted, Worker, engine_session
from tests.node.demo_client import ASK, CHAT, MODEL, run

INGRESS = "n-ingress"


class End:
    """One end of a link with one stream; what it is told arrives at the other."""

    def __init__(self) -> None:
        self.other: Stream | None = None

    def tell(self, event) -> None:
        assert self.other is not None
        self.other.on(event)

    def reply(self, sid: int, head: bytes) -> None:
        self.tell(Replied(sid, head))

    def write(self, sid: int, data: bytes) -> None:
        self.tell(Received(sid, data))

    def has_room(self, _sid: int) -> bool:
        return True

    def consumed(self, _sid: int, _n: int) -> None:
        pass

    def end(self, sid: int) -> None:
        self.tell(Ended(sid))

    def reset(self, sid: int, code: int) -> None:
        self.tell(ResetReceived(sid, code))

    def forget(self, _sid: int) -> None:
        pass


def pair(head: bytes) -> tuple[Stream, Stream]:
    """A stream as its opener and as its acceptor sees it."""
    ours, theirs = End(), End()
    opened, accepted = Stream(ours, 1, 1, head, "n-worker"), Stream(theirs, 1, 1, head, INGRESS)
    ours.other, theirs.other = accepted, opened
    return opened, accepted


class Wrapped:
    """What a worker knows of an engine, as a test says."""

    def __init__(self, url: str, api_key: str | None = None, names: dict[str, str] | None = None) -> None:
        self.url: str | None = url
        self.current_run = 7
        self.api_key = api_key
        self.names = names or {}
        self.failures = 0

    def report_failure(self) -> None:
        self.failures += 1


class Place:
    """A worker with its engine, and whoever asks it."""

    def __init__(self, worker: Worker, engine: Wrapped) -> None:
        self.worker = worker
        self.engine = engine

    def ask(self, body: object, *headers: tuple[bytes, bytes], run: int = 7) -> tuple[Stream, asyncio.Future[None]]:
        sent = [(b"content-type", b"application/json"), *headers]
        opened, accepted = pair(encode_head(RequestHead("e0", run, CHAT, "rid-1", sent)))
        opened.write(body if isinstance(body, bytes) else msgspec.json.encode(body))
        opened.end()
        return opened, asyncio.ensure_future(self.worker.serve(accepted))

    async def answer(self, body: object, *headers: tuple[bytes, bytes]) -> tuple[ReplyHead, bytes]:
        opened, serving = self.ask(body, *headers)
        head = read_reply_head(await opened.reply_head())
        parts = []
        while (part := await opened.read()) is not None:
            parts.append(part)
        await serving
        return head, b"".join(parts)


@asynccontextmanager
async def place(
    options: EngineOptions | None = None, *, api_key: str | None = None, names: dict[str, str] | None = None
) -> AsyncIterator[Place]:
    async with demo_engine(options or EngineOptions()) as at, engine_session() as session:
        engine = Wrapped(at.url, api_key, names)
        granted = Granted(lambda slot: engine if slot == "e0" else None, lambda node: node == INGRESS)
        yield Place(Worker(granted, session), engine)


def test_a_request_is_answered_and_counted():
    async def live() -> None:
        async with place() as here:
            head, body = await here.answer(ASK)
            assert head.status == 200
            assert json.loads(body)["object"] == "chat.completion"
            assert (here.worker.served, here.worker.in_flight) == (1, 0)

    run(live)


def test_the_engine_gets_its_own_key_and_no_other():
    async def live() -> None:
        async with place(EngineOptions(api_key="k"), api_key="k") as here:
            forged = ((b"authorization", b"Bearer another"), (b"Authorization", b"Bearer other"), (b"x-echo", b"1"))
            head, body = await here.answer(ASK, *forged, (b"x-tela-echo", b"headers"))
            assert head.status == 200
            seen = json.loads(json.loads(body)["choices"][0]["message"]["content"])
            assert [value for name, value in seen if name == "authorization"] == ["Bearer k"]
            assert ["x-echo", "1"] in seen

    run(live)


def test_an_engine_without_a_key_gets_none():
    async def live() -> None:
        async with place() as here:
            _, body = await here.answer(ASK, (b"authorization", b"Bearer x"), (b"x-tela-echo", b"headers"))
            seen = json.loads(json.loads(body)["choices"][0]["message"]["content"])
            assert not [name for name, _ in seen if name == "authorization"]

    run(live)


def test_an_alias_reaches_the_engine_as_its_own_name_and_nothing_else_changes():
    async def live() -> None:
        body = json.dumps(ASK, indent=3).replace(MODEL, "nice").encode()
        expected = body.replace(b'"nice"', b'"%s"' % MODEL.encode())
        async with place(names={"nice": MODEL}) as here:
            head, _ = await here.answer(body, (b"x-tela-echo", b"body"))
            assert head.status == 200
            assert (b"x-echo-sha256", sha256(expected).hexdigest().encode()) in head.headers

    run(live)


def test_a_body_without_an_alias_stays_as_it_is():
    async def live() -> None:
        async with place(names={"nice": MODEL}) as here:
            head, _ = await here.answer(ASK)
            assert head.status == 200

    run(live)


def test_a_body_that_is_none_is_refused_where_names_change():
    async def live() -> None:
        async with place(names={"nice": MODEL}) as here:
            opened, serving = here.ask(b'{"model":"nice","model":"nice"}')
            with pytest.raises(StreamReset) as reset:
                await opened.reply_head()
            await serving
            assert reset.value.reset_code == ResetCode.REFUSED
            assert here.engine.failures == 0

    run(live)


def test_another_run_than_the_one_picked_is_refused():
    async def live() -> None:
        async with place() as here:
            opened, serving = here.ask(ASK, run=6)
            with pytest.raises(StreamReset):
                await opened.reply_head()
            await serving
            assert here.worker.served == 0

    run(live)


def test_what_is_under_way_is_known_by_slot():
    async def live() -> None:
        async with place() as here:
            _, serving = here.ask(ASK, (b"x-tela-fault", b"hang"))
            await asyncio.sleep(0)
            assert (here.worker.in_flight_of("e0"), here.worker.in_flight_of("e1")) == (1, 0)
            idle = asyncio.ensure_future(here.worker.idle("e0"))
            await here.worker.idle("e1")
            assert not idle.done()
            here.worker.drop("e0")
            await asyncio.wait({serving})
            await idle
            assert here.worker.in_flight_of("e0") == 0
            assert here.worker.served == 0

    run(live)


def test_an_engine_that_breaks_is_reported():
    async def live() -> None:
        async with place() as here:
            opened, serving = here.ask(ASK, (b"x-tela-fault", b"reset"))
            with pytest.raises(StreamReset) as reset:
                await opened.reply_head()
            await serving
            assert (reset.value.reset_code, here.engine.failures) == (ResetCode.ENGINE, 1)

    run(live)
