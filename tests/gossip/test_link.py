"""Links on a wire the test carries by hand, then on real sockets behind a proxy that is slow or swallows all."""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip import peer as peer_constants
from gossip import websocket as websocket_constants
from gossip.errors import LocalProtocolError
from gossip.link import CLOSE_S, HANDSHAKE_S, Hooks, Link
from gossip.muxevents import ResetCode
from gossip.peer import Peer
from gossip.session import Session
from gossip.stream import Stream, StreamReset
from gossip.topology import Address
from gossip.transport import PATH
from gossip.websocket import WebsocketNetwork
from tests.autojump import run
from tests.gossip.test_mesh import echo
from tests.gossip.test_session import DIALLED, DIALLER, anyone, initiator, nobody, responder
from tests.mesh import MeshNode, started, until
from tests.people import Person, replica_record


class Wire:
    """A transport whose messages wait until the test carries them. `takes_end`: whether a close goes through."""

    def __init__(self, link: Link, *, takes_end: bool = True, room: int | None = None) -> None:
        self.link = link
        self.takes_end = takes_end
        self.room = room  # messages until it asks for a pause; None: never
        self.sent: list[bytes] = []
        self.is_open = True
        self.was_aborted = False

    def send(self, message: bytes) -> None:
        if self.is_open:
            self.sent.append(message)
            if self.room is not None and len(self.sent) >= self.room:
                self.link.pause_writing()

    def close(self) -> None:
        if self.takes_end:
            self.end("closed")

    def abort(self) -> None:
        self.was_aborted = True
        self.end("aborted")

    def end(self, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self.link.closed(reason)

    def peer_address(self) -> str:
        return "by hand"


@dataclass
class End:
    """One end: its link, its wire, and what its owner was told."""

    session: Session
    ups: list[str] = field(default_factory=list)
    downs: list[str] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    heard: int = 0
    on_frame: object = None

    def __post_init__(self):
        self.link = Link(self.session, self.hooks(), 1)
        self.wire = Wire(self.link)

    def hooks(self) -> Hooks:
        return Hooks(
            up=lambda link, _: self.ups.append(link.node),
            control=lambda _, frame: self._frame(frame),
            opened=lambda _, stream: self.streams.append(stream),
            heard=lambda _: self._hear(),
            down=lambda _, reason: self.downs.append(reason),
        )

    def _hear(self):
        self.heard += 1

    def _frame(self, frame):
        self.frames.append(frame)
        if callable(self.on_frame):
            self.on_frame(frame)


def carry(*ends: End, most: int | None = None) -> None:
    """Carry what both ends sent, at most so many messages, until neither has anything to say."""
    left = most if most is not None else 10_000
    while left and any(end.wire.sent for end in ends):
        for end, other in zip(ends, ends[::-1], strict=True):
            while left and end.wire.sent:
                left -= 1
                other.link.message_received(end.wire.sent.pop(0))


def ends(*, here=anyone, there=anyone) -> tuple[End, End]:
    return End(initiator(here)), End(responder(there))


def joined(**admits) -> tuple[End, End]:
    """Two ends after their handshake."""
    a, b = ends(**admits)
    b.link.connected(b.wire)
    a.link.connected(a.wire)
    carry(a, b)
    return a, b


async def settle(*both: End) -> None:
    """Let flushes that were put off happen, and carry what came of them."""
    for _ in range(5):
        await asyncio.sleep(0)
        carry(*both)


# --- the beginning


def test_two_ends_are_live_and_know_each_other():
    async def main():
        a, b = joined()
        assert a.link.is_live
        assert b.link.is_live
        assert (a.ups, b.ups) == ([DIALLED.id], [DIALLER.id])
        assert await a.link.settled == await b.link.settled == ""
        assert a.link.is_initiator
        assert not b.link.is_initiator

    run(main())


@pytest.mark.parametrize("turns", range(4))
def test_a_handshake_that_stops_is_given_up_in_time(turns):
    async def main():
        a, b = ends()
        b.link.connected(b.wire)
        a.link.connected(a.wire)
        carry(a, b, most=turns)
        await asyncio.sleep(HANDSHAKE_S - 0.1)
        assert not a.downs
        await asyncio.sleep(0.2)
        for end in (a, b) if turns < 3 else (a,):  # who admitted the other holds the link for live
            assert end.downs == ["no handshake in time"]
            assert end.wire.was_aborted
            assert await end.link.settled == "no handshake in time"

    run(main())


def test_a_live_link_outlasts_the_time_a_handshake_may_take():
    async def main():
        a, b = joined()
        await asyncio.sleep(10 * HANDSHAKE_S)
        assert a.link.is_live
        assert b.link.is_live

    run(main())


@pytest.mark.parametrize(("here", "there"), [(anyone, nobody), (nobody, anyone)])
def test_a_refusal_ends_both_links_and_says_on_each_whose_it_was(here, there):
    async def main():
        a, b = joined(here=here, there=there)
        refuser, refused = (b, a) if there is nobody else (a, b)
        assert refuser.downs == ["refused by us: not_admitted"]
        told = "refused by it: not_admitted" if refuser is b else "cut"
        if refuser is a:
            b.wire.end("cut")  # nothing was said to it
        assert refused.downs == [told]
        assert await refused.link.settled == told
        assert not a.ups
        assert not b.ups

    run(main())


def test_a_connection_lost_during_the_handshake_is_told_once_and_the_link_stays_over():
    async def main():
        a, b = ends()
        a.link.connected(a.wire)
        a.wire.end("connection lost")
        assert await a.link.settled == "connection lost"
        a.link.closed("again")
        a.link.message_received(b"late")
        a.link.resume_writing()
        await asyncio.sleep(HANDSHAKE_S * 2)
        assert a.downs == ["connection lost"]
        assert not a.wire.was_aborted
        b.link.abort("unused")

    run(main())


@pytest.mark.parametrize("way", ["close", "abort", "too slow"])
def test_a_link_ended_before_its_connection_came_does_not_come_alive_with_it(way):
    async def main():
        a, b = ends()
        b.link.abort("unused")
        if way == "too slow":
            await asyncio.sleep(HANDSHAKE_S + 0.1)
        else:
            getattr(a.link, way)("not wanted")
        assert len(a.downs) == 1
        a.link.connected(a.wire)
        assert a.wire.was_aborted
        assert not a.wire.sent
        assert len(a.downs) == 1

    run(main())


# --- the end


def test_a_clean_end_is_told_from_a_loss():
    async def main():
        a, b = joined()
        a.link.close("left")
        carry(a, b)
        assert b.downs == ["ended by the other end"]
        c, d = joined()
        d.wire.end("connection reset")
        assert d.downs == ["connection reset"]
        c.link.abort("unused")

    run(main())


def test_a_peer_that_does_not_read_cannot_keep_a_closed_link():
    async def main():
        a, _ = joined()
        a.wire.takes_end = False
        a.link.close("left")
        await asyncio.sleep(CLOSE_S - 0.1)
        assert not a.downs
        await asyncio.sleep(0.2)
        assert a.downs == ["left"]
        assert a.wire.was_aborted

    run(main())


def test_a_closed_link_leaves_no_timer_behind():
    async def main():
        a, b = joined()
        a.link.close("left")
        carry(a, b)
        assert a.link._deadline.cancelled()
        assert b.link._deadline.cancelled()

    run(main())


def test_a_farewell_leaves_with_the_end_mark_even_when_the_transport_is_full():
    async def main():
        a, b = joined()
        a.link.pause_writing()
        a.link.control(b"LEFT")
        a.link.close("left")
        carry(a, b)
        assert b.frames == [b"LEFT"]
        assert b.downs == ["ended by the other end"]

    run(main())


def test_a_link_that_is_over_sends_nothing_and_opens_nothing():
    async def main():
        a, _ = joined()
        a.link.close("left")
        sent = len(a.wire.sent)
        a.link.control(b"late")
        with pytest.raises(LocalProtocolError):
            a.link.open(1, b"")
        await asyncio.sleep(0.1)
        assert len(a.wire.sent) == sent

    run(main())


def test_what_a_record_says_after_the_frame_that_ended_the_link_reaches_nobody():
    async def main():
        a, b = joined()
        a.link.control(b"goodbye")
        a.link.open(1, b"too late")
        b.on_frame = lambda _: b.link.close("told to")
        await settle(a, b)
        assert b.downs == ["told to"]
        assert not b.streams
        assert not b.link._streams

    run(main())


# --- what a peer may not do


@given(st.lists(st.binary(max_size=200), max_size=4), st.integers(0, 4))
def test_no_message_makes_a_link_raise(messages, turns):
    async def main():
        a, b = ends()
        b.link.connected(b.wire)
        a.link.connected(a.wire)
        carry(a, b, most=turns)
        for end in (a, b):
            for message in messages:
                end.link.message_received(message)
            assert bool(end.downs) is bool(messages)
            end.link.abort("over")

    run(main())


MUX_FRAMES = st.builds(
    lambda kind, flags, sid, payload: struct.pack("!BBHI", kind, flags, len(payload), sid) + payload,
    st.integers(0, 10),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 1, 1, 2, 3, 4, 2**31]),
    st.one_of(st.binary(max_size=12), st.sampled_from([bytes(4), bytes(8), b"\x01head", b"\xff" * 8])),
)


@given(st.lists(MUX_FRAMES | st.binary(min_size=1, max_size=30), max_size=30))
def test_nothing_an_admitted_peer_says_makes_a_link_raise_or_keep_its_streams(records):
    async def main():
        a, b = joined()
        assert a.session._sealer is not None
        b.link.open(1, b"a stream of ours to talk about")
        await settle(a, b)
        for record in records:
            b.link.message_received(a.session._sealer.seal(record))
        await asyncio.sleep(0)
        for stream in list(b.link._streams.values()):
            stream.close()
        await asyncio.sleep(0)
        assert not b.link._streams
        a.link.abort("over")
        b.link.abort("over")
        assert len(b.downs) == 1

    run(main())


def test_a_forged_record_ends_the_link_and_its_streams_and_is_no_sign_of_life():
    async def main():
        a, b = joined()
        stream = a.link.open(1, b"")
        before = a.heard
        a.link.message_received(b"\0" * 100)
        assert "record_forged" in a.downs[0]
        assert a.heard == before
        with pytest.raises(StreamReset):
            await stream.read()
        b.link.abort("unused")

    run(main())


def test_control_frames_beyond_what_may_wait_are_dropped_and_the_link_lives():
    async def main():
        a, b = joined()
        a.link.pause_writing()
        for number in range(3_000):
            a.link.control(number.to_bytes(2, "big") * 1_000)
        a.link.control(b"x" * 100_000)
        a.link.resume_writing()
        carry(a, b)
        assert 500 < len(b.frames) <= 1_024
        assert b.frames[0] == bytes(2_000)
        a.link.control(b"after")
        await settle(a, b)
        assert b.frames[-1] == b"after"
        assert not a.downs

    run(main())


# --- a full transport


def test_a_full_transport_keeps_bulk_in_the_mux_where_urgent_frames_overtake_it():
    async def main():
        a, b = joined()
        stream = a.link.open(1, b"")
        await settle(a, b)
        a.wire.room = 1
        stream.write(b"x" * 200_000)
        await asyncio.sleep(0)
        assert len(a.wire.sent) == 1  # one record left before it was told to pause
        a.link.control(b"urgent")
        await asyncio.sleep(0)
        assert len(a.wire.sent) == 1
        carry(a, b)
        a.link.resume_writing()
        assert not b.frames
        carry(a, b, most=1)
        assert b.frames == [b"urgent"]
        got = await b.streams[0].read()
        assert got is not None
        assert len(got) < 200_000

    run(main())


def test_nothing_is_lost_over_a_transport_that_pauses_after_every_message():
    async def main():
        a, b = joined()
        a.wire.room = b.wire.room = 1
        stream = a.link.open(1, b"")
        await settle(a, b)
        body = bytes(range(256)) * 4_000
        got = bytearray()

        async def read():
            while (data := await b.streams[0].read()) is not None:
                got.extend(data)

        async def write():
            for start in range(0, len(body), 70_000):
                stream.write(body[start : start + 70_000])
                await stream.drain()
            stream.end()

        async def clerk():
            while len(got) < len(body) or a.session.mux.has_output or a.wire.sent:
                a.link.resume_writing()
                b.link.resume_writing()
                carry(a, b)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for job in (read, write, clerk):
                tasks.create_task(job())
        assert bytes(got) == body

    run(main())


# --- streams leave nothing behind


async def both_end(here: Stream, there: Stream) -> None:
    for stream in (here, there):
        stream.write(b"bytes")
        stream.end()


async def opener_resets(here: Stream, there: Stream) -> None:
    here.reset()


async def acceptor_resets(here: Stream, there: Stream) -> None:
    there.reset(ResetCode.REFUSED)


async def nobody_ends(here: Stream, there: Stream) -> None:
    here.write(b"bytes")


@pytest.mark.parametrize("use", [both_end, opener_resets, acceptor_resets, nobody_ends])
def test_streams_that_are_closed_leave_nothing_in_the_link(use):
    async def main():
        a, b = joined()
        for _ in range(20):
            here = a.link.open(1, b"")
            await settle(a, b)
            there = b.streams[-1]
            await use(here, there)
            await settle(a, b)
            here.close()
            there.close()
            await settle(a, b)
        for end in (a, b):
            assert not end.link._streams
            assert end.session.mux.open_streams == 0

    run(main())


def test_a_lost_link_loses_every_stream_and_holds_none():
    async def main():
        a, b = joined()
        here = [a.link.open(1, b"") for _ in range(5)]
        await settle(a, b)
        b.wire.end("cut")
        a.wire.end("cut")
        for stream in (*here, *b.streams):
            assert stream.is_lost
        assert not a.link._streams
        assert not b.link._streams

    run(main())


# --- real sockets: a proxy that is slow, or swallows everything


class Proxy:
    """A TCP proxy on loopback with small buffers. `rate_b` bytes a second each way; `swallows` hides all."""

    def __init__(self, port: int, *, rate_b: float = 1e9) -> None:
        self.port = port
        self.rate_b = rate_b
        self.swallows = False
        self._writers: list[asyncio.StreamWriter] = []
        self._takers: list[asyncio.Task] = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, limit=4_096)
        _shrink(self._server.sockets[0])
        self.url = f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._takers)

    async def _take(self, reader, writer):
        self._takers.append(asyncio.current_task())
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4_096)
        for end in (writer, there_writer):
            _shrink(end.get_extra_info("socket"))
            end.transport.set_write_buffer_limits(high=4_096)
            self._writers.append(end)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._pump(reader, there_writer))
            both.create_task(self._pump(there_reader, writer))

    async def _pump(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4_096):
                await asyncio.sleep(len(data) / self.rate_b)
                if not self.swallows and not writer.transport.is_closing():
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()


def _shrink(sock):
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # what the kernel holds would hide the slow path
        sock.setsockopt(socket.SOL_SOCKET, option, 32_768)


def by_proxy():
    hubs: list[Address] = []
    return (
        MeshNode(Person(70), WebsocketNetwork(), listen="127.0.0.1:0"),
        MeshNode(Person(71), WebsocketNetwork(), hubs=hubs),
        hubs,
    )


@contextlib.asynccontextmanager
async def linked_by_proxy(hub: MeshNode, leaf: MeshNode, hubs: list[Address], **weather):
    async with started(hub), Proxy(port_of(hub), **weather) as proxy:
        hubs.append(hub.address()._replace(urls=(proxy.url,)))
        async with started(leaf):
            await until(lambda: bool(hub.mesh.linked() and leaf.mesh.linked()))
            yield proxy


def port_of(node: MeshNode) -> int:
    return int(node.mesh.urls[0].rsplit(":", 1)[1])


def quicken(monkeypatch, *, silent_s):
    """Links fall silent sooner, so that a test on real sockets need not wait."""
    monkeypatch.setattr(peer_constants, "PING_S", silent_s / 6)
    monkeypatch.setattr(peer_constants, "SILENT_S", silent_s)


async def swallow(stream):
    while await stream.read():
        pass


def holds(replica, record) -> bool:
    entry = replica.get(record.key)
    return entry is not None and entry.record == record


def test_a_slow_path_full_of_bulk_still_carries_pings_and_is_not_taken_for_silent(monkeypatch):
    quicken(monkeypatch, silent_s=0.6)  # a record of 64 KiB takes a third of it on this path

    async def main():
        hub, leaf, hubs = by_proxy()
        leaf.mesh.serve(1, swallow)
        async with linked_by_proxy(hub, leaf, hubs, rate_b=350_000):
            links = list(hub.peer._lines), list(leaf.peer._lines)
            stream = hub.mesh.open(leaf.id, 1, b"h")
            stream.write(b"x" * 2_000_000)  # six seconds of it
            end = asyncio.get_running_loop().time() + 0.7
            for seq in count(1):
                news = replica_record(Person(70), seq=seq)
                hub.mesh.tell(partial(Peer.publish, record=news))
                await until(
                    partial(holds, leaf.replica, news), within=3.0
                )  # behind 200 KB that transport and kernel hold
                if asyncio.get_running_loop().time() > end:
                    break
            assert not hub.mesh._by_node[leaf.id].has_room(stream.sid)  # more is left than may wait
            assert not stream.is_lost
            assert links == (list(hub.peer._lines), list(leaf.peer._lines))
            stream.reset()

    asyncio.run(main())


def test_both_ends_notice_a_path_that_swallows_everything(monkeypatch):
    quicken(monkeypatch, silent_s=0.6)

    async def main():
        hub, leaf, hubs = by_proxy()
        leaf.mesh.serve(1, echo)
        async with linked_by_proxy(hub, leaf, hubs) as proxy:
            streams = [hub.mesh.open(leaf.id, 1, b"h"), leaf.mesh.open(hub.id, 1, b"h")]
            proxy.swallows = True
            await until(lambda: not hub.mesh.linked() and not leaf.mesh.linked(), within=2.0)
            for stream in streams:
                with pytest.raises(StreamReset):
                    await stream.read()
            proxy.swallows = False
            await until(lambda: bool(hub.mesh.linked() and leaf.mesh.linked()), within=3.0)

    asyncio.run(main())


# --- real sockets: addresses and strangers


@pytest.mark.parametrize(
    "url", ["ws://h:99999", "ws://[::zz", "ws://a..b:1", "ws://[]:1", f"ws://{'a' * 70}:1", "ws://:1", "http://h:1"]
)
def test_an_address_no_resolver_would_take_is_a_connection_that_failed(url):
    async def main():
        with pytest.raises(OSError, match="not a link address"):
            await WebsocketNetwork().dial(url, lambda: pytest.fail("nothing was reached"))

    asyncio.run(main())


def test_a_node_that_advertises_nonsense_does_not_stop_those_who_dial_it():
    async def main():
        hub, leaf, hubs = by_proxy()
        async with started(hub):
            hubs += [Address(Person(72).key, ("ws://h:99999", "ws://a..b:1"), True), hub.address()]
            async with started(leaf):
                await until(lambda: bool(leaf.mesh.linked()))
                assert leaf.task is not None
                assert not leaf.task.done()

    asyncio.run(main())


def test_a_stranger_that_hangs_up_is_forgotten_at_once():
    async def main():
        hub, _, _ = by_proxy()
        async with started(hub):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(hub))
            await until(lambda: len(hub.mesh._strangers) == 1)
            writer.close()
            await until(lambda: not hub.mesh._strangers, within=1.0)

    asyncio.run(main())


def test_strangers_beyond_the_limit_are_turned_away_and_members_get_in_when_they_are_gone(monkeypatch):
    monkeypatch.setattr("gossip.mesh.MAX_HALF_OPEN", 3)

    async def main():
        hub, leaf, hubs = by_proxy()
        async with started(hub):
            upgrade = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            upgrade += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            waiting = [await asyncio.open_connection("127.0.0.1", port_of(hub)) for _ in range(3)]
            await until(lambda: len(hub.mesh._strangers) == 3)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(hub))
            writer.write(upgrade.encode())
            await reader.read()  # the answer, then the end
            assert reader.at_eof()
            for _, each in (*waiting, (reader, writer)):
                each.close()
            await until(lambda: not hub.mesh._strangers)
            hubs.append(hub.address())
            async with started(leaf):
                await until(lambda: bool(hub.mesh.linked()))

    asyncio.run(main())


def test_a_dial_that_is_given_up_leaves_no_connection(monkeypatch):
    monkeypatch.setattr(websocket_constants, "DIAL_S", 0.1)

    async def main():
        ended = asyncio.Event()

        async def say_nothing(reader, writer):
            while await reader.read(1_000):
                pass
            ended.set()
            writer.close()

        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        a, b = ends()
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(TimeoutError):
            await WebsocketNetwork().dial(url, lambda: a.link)
        async with asyncio.timeout(1.0):
            await ended.wait()
        assert a.downs
        b.link.abort("unused")
        server.close()

    asyncio.run(main())
