"""The network inside the process; and on it whole meshes at moments that real sockets rarely show."""

import asyncio
import contextlib
from random import Random

import pytest

from gossip.errors import LocalProtocolError
from gossip.frames import CAPABILITY
from gossip.handshake import Initiator, network_key
from gossip.hello import Hello, encode_hello
from gossip.link import Hooks, Link
from gossip.memory import MemoryNetwork
from gossip.session import Session
from gossip.stream import StreamReset
from registry.errors import TelaError
from registry.lifecycle import Rank
from tests.autojump import run
from tests.mesh import MeshNode, started, until
from tests.people import FABRIC, Person, certificate, membership

LATENCY_S = 0.01
HUB, OTHER, LEAF = Person(800), Person(801), Person(802)


class Ear:
    """An endpoint that notes what happens to it and when."""

    def __init__(self, answers=None):
        self.loop = asyncio.get_running_loop()
        self.heard: list = []
        self.ended: list = []
        self.transport = None
        self.answers = answers

    def connected(self, transport):
        self.transport = transport

    def message_received(self, message):
        self.heard.append((round(self.loop.time(), 6), message))
        if self.answers:
            self.transport.send(self.answers(message))

    def pause_writing(self):
        pass

    def resume_writing(self):
        pass

    def closed(self, reason):
        self.ended.append((round(self.loop.time(), 6), reason))

    def messages(self):
        return [message for _, message in self.heard]


async def connection(network=None, *, answers=None):
    """A network and both ends of a connection from host a to host b."""
    network = network or MemoryNetwork(latency_s=LATENCY_S)
    there: list[Ear] = []

    def make():
        there.append(Ear(answers))
        return there[-1]

    listener = await network.host("b").listen("b:0", make)
    here = await network.host("a").dial(listener.urls[0], Ear)
    return network, here, there[0]


def test_a_message_takes_the_latency_each_way():
    async def main():
        _, a, b = await connection(answers=bytes.upper)
        start = a.loop.time()
        a.transport.send(b"hello")
        await asyncio.sleep(1.0)
        assert b.heard == [(round(start + LATENCY_S, 6), b"hello")]
        assert a.heard == [(round(start + 2 * LATENCY_S, 6), b"HELLO")]

    run(main())


def test_messages_stay_whole_in_order_and_unrepeated():
    async def main():
        _, a, b = await connection()
        said = [bytes((n,)) * n for n in range(200)]
        for message in said:
            a.transport.send(message)
        await asyncio.sleep(1.0)
        assert b.messages() == said

    run(main())


def test_what_was_sent_cannot_be_changed_by_its_sender_afterwards():
    async def main():
        _, a, b = await connection()
        message = bytearray(b"before")
        a.transport.send(message)
        message[:] = b"after!"
        await asyncio.sleep(1.0)
        assert b.messages() == [b"before"]

    run(main())


@pytest.mark.parametrize("way", ["close", "abort"])
def test_an_end_is_seen_here_at_once_there_after_the_latency_and_once(way):
    async def main():
        _, a, b = await connection()
        start = a.loop.time()
        a.transport.send(b"last")
        getattr(a.transport, way)()
        getattr(a.transport, way)()
        a.transport.send(b"too late")
        b.transport.send(b"too late")
        await asyncio.sleep(1.0)
        assert a.ended == [(round(start, 6), "closed")]
        assert b.ended == [(round(start + LATENCY_S, 6), "closed by the other end")]
        assert b.messages() == [b"last"]
        assert not a.heard

    run(main())


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_cut_host_loses_what_is_sent_and_nobody_is_told(host):
    async def main():
        network, a, b = await connection()
        network.cut(host)
        a.transport.send(b"lost")
        b.transport.send(b"lost")
        await asyncio.sleep(100.0)
        assert not a.heard
        assert not b.heard
        assert not a.ended
        network.mend(host)
        a.transport.send(b"here again")
        await asyncio.sleep(1.0)
        assert b.messages() == [b"here again"]

    run(main())


def test_the_end_of_a_cut_connection_is_seen_on_its_own_side_alone():
    async def main():
        network, a, b = await connection()
        network.cut("a")
        a.transport.close()
        await asyncio.sleep(1.0)
        assert a.ended
        assert not b.ended

    run(main())


def test_a_crash_ends_every_connection_of_the_host_and_its_listeners():
    async def main():
        network, a, b = await connection()
        url = "ws://b:1"
        network.crash("b")
        await asyncio.sleep(1.0)
        assert a.ended
        assert b.ended
        with pytest.raises(ConnectionRefusedError):
            await network.host("a").dial(url, Ear)

    run(main())


def test_a_dial_to_nowhere_is_refused_and_to_a_cut_host_times_out():
    async def main():
        network = MemoryNetwork()
        listener = await network.host("b").listen("b:0", Ear)
        network.cut("b")
        with pytest.raises(TimeoutError):
            await network.host("a").dial(listener.urls[0], Ear)
        network.mend("b")
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.host("a").dial(listener.urls[0], Ear)

    run(main())


def test_a_fixed_address_is_taken_once_and_free_ones_differ():
    async def main():
        host = MemoryNetwork().host("b")
        first, second = await host.listen("b:0", Ear), await host.listen("b:0", Ear)
        assert first.urls != second.urls
        fixed = await host.listen("b:7000", Ear)
        with pytest.raises(TelaError) as taken:
            await host.listen("b:7000", Ear)
        assert taken.value.code == "address_in_use"
        fixed.close()
        await host.listen("b:7000", Ear)

    run(main())


def test_an_end_names_the_host_at_the_other():
    async def main():
        _, a, b = await connection()
        assert a.transport.peer_address() == "memory:b"
        assert b.transport.peer_address() == "memory:a"

    run(main())


# --- whole meshes


@contextlib.asynccontextmanager
async def no_callback_raises():
    """Fail where an exception escaped a callback, which the loop would only log."""
    escaped: list = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: escaped.append(context))
    yield
    assert not escaped


def two_hubs():
    network, hubs = MemoryNetwork(latency_s=LATENCY_S), []
    one = MeshNode(HUB, network.host("one"), listen="one:0", hubs=hubs)
    two = MeshNode(OTHER, network.host("two"), listen="two:0", hubs=hubs)
    return network, one, two, hubs


def hub_and_leaf(**more):
    network, hubs = MemoryNetwork(latency_s=LATENCY_S), []
    hub = MeshNode(HUB, network.host("hub"), listen="hub:0")
    return network, hub, MeshNode(LEAF, network.host("leaf"), hubs=hubs, **more), hubs


async def linked(hub, leaf, hubs):
    hubs.append(hub.address())
    await until(lambda: bool(hub.mesh.linked() and leaf.mesh.linked()))


def test_two_hubs_that_dial_each_other_at_the_same_moment_agree_on_one_link():
    async def main():
        _, one, two, hubs = two_hubs()
        async with no_callback_raises(), started(one, two):
            hubs += [one.address(), two.address()]
            await until(lambda: bool(one.mesh.linked() and two.mesh.linked()))
            await asyncio.sleep(1.0)
            kept = {node.id: list(node.mesh._links.values()) for node in (one, two)}
            assert [len(links) for links in kept.values()] == [1, 1]
            assert {link.is_initiator for links in kept.values() for link in links} == {True, False}
            assert one.mesh._gate._admitted.keys() == one.mesh._links.keys()
            assert two.mesh._gate._admitted.keys() == two.mesh._links.keys()
            await asyncio.sleep(20.0)  # no half of a link was left to fall silent
            assert {node.id: list(node.mesh._links.values()) for node in (one, two)} == kept

    run(main())


def test_a_node_that_said_farewell_dials_nobody_again():
    async def main():
        _, hub, leaf, hubs = hub_and_leaf()
        async with started(hub, leaf):
            await linked(hub, leaf, hubs)
            await asyncio.sleep(10.0)  # long enough for a lost link to be dialled again at once
            seen: list = []
            await leaf.mesh.farewell()
            for _ in range(300):
                await asyncio.sleep(0.01)
                seen += [*leaf.mesh._links.values(), *leaf.mesh._strangers.values()]
            assert not seen
            assert not leaf.mesh._dialler._under_way
            assert hub.view().nodes[leaf.id].rank is Rank.LEFT

    run(main())


def test_after_a_farewell_no_task_and_no_timer_keeps_a_node():
    async def main():
        _, hub, leaf, hubs = hub_and_leaf()
        async with no_callback_raises():
            async with started(hub, leaf):
                await linked(hub, leaf, hubs)
                await leaf.mesh.farewell()
                await leaf.stop()
                await hub.stop()
                assert hub.mesh._timer is None or hub.mesh._timer.cancelled()
                assert leaf.mesh._timer is None or leaf.mesh._timer.cancelled()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_stream_that_opens_while_a_node_stops_is_refused():
    async def main():
        _, hub, leaf, hubs = hub_and_leaf()
        let_go = asyncio.Event()

        async def slow_to_end(stream):
            try:
                await asyncio.sleep(1e6)
            finally:
                await let_go.wait()

        leaf.mesh.serve(1, slow_to_end)
        async with no_callback_raises(), started(hub, leaf):
            await linked(hub, leaf, hubs)
            hub.mesh.open(leaf.id, 1, b"first")
            await asyncio.sleep(0.1)
            leaf.task.cancel()
            await asyncio.sleep(0.1)
            late = hub.mesh.open(leaf.id, 1, b"late")
            with pytest.raises(StreamReset) as refused:
                await late.reply_head()
            assert refused.value.code == "refused"
            let_go.set()

    run(main())


def test_a_mesh_that_ends_during_a_handshake_ends_the_handshake():
    async def main():
        network, hub, leaf, _hubs = hub_and_leaf()
        async with started(hub, leaf):
            stranger = await network.host("stranger").dial(hub.mesh.urls[0], Ear)
            assert len(hub.mesh._strangers) == 1
            await hub.stop()
            await asyncio.sleep(LATENCY_S * 2)
            assert stranger.ended
            assert not hub.mesh._strangers

    run(main())


def test_strangers_beyond_the_limit_are_turned_away_at_once(monkeypatch):
    monkeypatch.setattr("gossip.mesh.MAX_HALF_OPEN", 3)

    async def main():
        network, hub, _, _ = hub_and_leaf()
        async with started(hub):
            strangers = [await network.host("s").dial(hub.mesh.urls[0], Ear) for _ in range(5)]
            await asyncio.sleep(LATENCY_S * 2)
            assert [bool(stranger.ended) for stranger in strangers] == [False, False, False, True, True]

    run(main())


class Claimant(MeshNode):
    """A member whose greeting claims more than its certificate allows."""

    async def claim(self, network: MemoryNetwork, url: str) -> Link:
        hello = Hello(
            capability=CAPABILITY, release="", hub=True, accounts=True, proofs=tuple(each.raw for each in self.own)
        )
        shake = Initiator(
            seed=self.person.seed,
            network=network_key(FABRIC),
            payload=encode_hello(hello),
            pinned=None,
            ephemeral_seed=Random(1).randbytes(32),
            nonce=bytes(16),
        )
        ignore = lambda *_: None  # noqa: E731
        hooks = Hooks(up=ignore, control=ignore, opened=ignore, heard=ignore, down=ignore)
        made = await network.host("x").dial(url, lambda: Link(Session(shake, ignore), hooks, 1))
        assert isinstance(made, Link)
        assert await made.settled == ""
        return made


@pytest.mark.parametrize(
    ("roles", "is_hub", "accounts"),
    [(("worker",), False, False), (("relay",), True, False), (("ingress",), True, True)],
    ids=["worker", "relay", "ingress"],
)
def test_what_a_greeting_claims_counts_as_far_as_the_certificate_goes(roles, is_hub, accounts):
    async def main():
        network, hub, _, _ = hub_and_leaf()
        proofs = membership(), certificate(LEAF, roles=roles)
        claimant = Claimant(LEAF, network.host("x"), proofs=proofs)
        async with started(hub):
            link = await claimant.claim(network, hub.mesh.urls[0])
            (contact,) = [line.contact for line in hub.peer._lines.values()]
            assert (contact.is_hub, contact.accounts) == (is_hub, accounts)
            link.abort("done")

    run(main())


@pytest.mark.parametrize("frame", [b"", b"\x01junk", b"\x06\x92\xa1x" + b"\x91" * 5_000], ids=["empty", "junk", "deep"])
def test_a_member_that_breaks_the_protocol_loses_its_link_and_harms_nobody(frame):
    async def main():
        _, hub, leaf, hubs = hub_and_leaf()
        async with no_callback_raises(), started(hub, leaf):
            await linked(hub, leaf, hubs)
            (link,) = leaf.mesh._links.values()
            link.control(frame)
            await until(lambda: bool(link.gone.is_set()))
            with pytest.raises(LocalProtocolError):
                link.open(1, b"")
            await until(lambda: bool(hub.mesh.linked() and leaf.mesh.linked()))

    run(main())
