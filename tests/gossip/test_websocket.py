"""The real transport on loopback: the same links, and strangers that break its rules."""

import asyncio

import pytest
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gossip.topology import Address
from gossip.transport import PATH
from gossip.websocket import WebsocketNetwork
from registry.errors import TelaError
from tests.gossip.test_mesh import echo, read_all
from tests.mesh import MeshNode, started, until
from tests.people import Person

HUB, LEAF = Person(70), Person(71)
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def both_loops(main):
    for factory in LOOPS:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())


def pair():
    hubs: list[Address] = []
    return (
        MeshNode(HUB, WebsocketNetwork(), listen="127.0.0.1:0"),
        MeshNode(LEAF, WebsocketNetwork(), hubs=hubs),
        hubs,
    )


def test_a_link_over_loopback_carries_megabytes_both_ways_on_both_loops():
    async def main():
        hub, leaf, hubs = pair()
        leaf.mesh.serve(1, echo)
        async with started(hub, leaf):
            hubs.append(hub.address())
            await until(lambda: bool(hub.mesh.linked()))
            stream = hub.mesh.open(leaf.id, 1, b"h")
            body = b"\x00\xff" * 2_000_000

            async def send():
                for start in range(0, len(body), 100_000):
                    stream.write(body[start : start + 100_000])
                    await stream.drain()
                stream.end()

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send())
                await stream.reply_head()
                assert await read_all(stream) == body
            stream.close()

    both_loops(main)


def test_a_port_in_use_is_said():
    async def main():
        hub, _, _ = pair()
        async with started(hub):
            address = hub.mesh.urls[0].removeprefix("ws://")
            with pytest.raises(TelaError, match="cannot listen for links at"):
                await WebsocketNetwork().listen(address, lambda: None)

    both_loops(main)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_said(address):
    async def main():
        with pytest.raises(TelaError, match="cannot listen"):
            await WebsocketNetwork().listen(address, lambda: None)

    both_loops(main)


async def dropped(url, send):
    """Whether a listener ends a websocket after `send`."""
    async with connect(url + PATH, compression=None, ping_interval=None, proxy=None) as socket:
        try:
            async with asyncio.timeout(3.0):
                await send(socket)
                while True:
                    await socket.recv()
        except ConnectionClosed:
            return True
        except TimeoutError:
            return False


@pytest.mark.parametrize(
    "send",
    [
        lambda socket: socket.send("text"),
        lambda socket: socket.send([b"a", b"b"]),
        lambda socket: socket.send(b"x" * 65_578),
        lambda socket: socket.send(b""),
        lambda socket: socket.send(b"\0" * 70),
        lambda socket: socket.send(b"TLK1\x01\x00" + b"\0" * 64),
    ],
    ids=["text", "fragments", "oversize", "empty", "garbage", "bogus first message"],
)
def test_a_stranger_that_breaks_the_rules_is_dropped_without_an_answer(send):
    async def main():
        hub, _, _ = pair()
        async with started(hub):
            assert await dropped(hub.mesh.urls[0], send)
            assert not hub.mesh.linked()

    both_loops(main)


def test_compression_is_not_negotiated():
    async def main():
        hub, _, _ = pair()
        async with (
            started(hub),
            connect(hub.mesh.urls[0] + PATH, compression="deflate", proxy=None) as socket,
        ):
            assert not socket.protocol.extensions

    both_loops(main)


def test_plain_http_and_other_paths_are_turned_away():
    async def ask(url, request):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(request)
        answer = await reader.read(200)
        writer.close()
        return answer.split(b"\r\n")[0]

    async def main():
        hub, _, _ = pair()
        async with started(hub):
            url = hub.mesh.urls[0]
            upgrade = (
                b"Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert b"404" in await ask(url, b"GET /other HTTP/1.1\r\n" + upgrade)
            assert b"426" in await ask(url, b"GET /tela/link HTTP/1.1\r\nHost: x\r\n\r\n")

    both_loops(main)
