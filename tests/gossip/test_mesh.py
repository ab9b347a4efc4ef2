import asyncio

import pytest

from gossip.errors import LocalProtocolError
from gossip.memory import MemoryNetwork
from gossip.muxevents import ResetCode
from gossip.session import Refused
from gossip.stream import StreamReset
from registry.lifecycle import Rank
from tests.autojump import run
from tests.mesh import MeshNode, started, until
from tests.people import MEMBER, OPERATOR, Person, certificate, membership

HUB, LEAF, OTHER = Person(60), Person(61), Person(62)


def fabric(leaves=1, *, proofs=()):
    network = MemoryNetwork()
    hub = MeshNode(HUB, network.host("hub"), listen="hub:0")
    hubs: list = []
    nodes = [MeshNode(Person(61 + at), network.host(f"leaf{at}"), hubs=hubs, proofs=proofs) for at in range(leaves)]
    return network, hub, nodes, hubs


async def linked(hub, leaves, hubs):
    hubs.append(hub.address())
    await until(lambda: len(hub.mesh.linked()) == len(leaves))


async def echo(stream):
    stream.reply(b"head of " + stream.head)
    while (data := await stream.read()) is not None:
        stream.write(data)
        await stream.drain()
    stream.end()


async def read_all(stream):
    parts = []
    while (data := await stream.read()) is not None:
        parts.append(data)
    return b"".join(parts)


def test_nodes_that_know_only_the_charter_find_each_other_and_agree():
    async def main():
        _, hub, leaves, hubs = fabric(3)
        async with started(hub, *leaves):
            await linked(hub, leaves, hubs)
            await until(lambda: all(len(node.view().nodes) == 4 for node in (hub, *leaves)))
            assert leaves[0].view().nodes[hub.id].is_hub

    run(main())


def test_a_stream_carries_head_bytes_and_both_ends_across_ten_windows():
    async def main():
        _, hub, (leaf,), hubs = fabric()
        leaf.mesh.serve(1, echo)
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            stream = hub.mesh.open(leaf.id, 1, b"hello")
            body = bytes(range(256)) * 10_240

            async def send():
                for start in range(0, len(body), 50_000):
                    stream.write(body[start : start + 50_000])
                    await stream.drain()
                stream.end()

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send())
                assert await stream.reply_head() == b"head of hello"
                assert await read_all(stream) == body
            stream.close()

    run(main())


def test_a_node_opens_streams_to_itself_and_counts_as_no_other():
    async def main():
        _, hub, _, _ = fabric()
        hub.mesh.serve(1, echo)
        async with started(hub):
            await asyncio.sleep(0.1)
            assert hub.mesh.is_linked(hub.id)
            assert not hub.mesh.linked()
            stream = hub.mesh.open(hub.id, 1, b"mine")
            stream.write(b"body")
            stream.end()
            assert await stream.reply_head() == b"head of mine"
            assert await read_all(stream) == b"body"
            assert stream.peer == hub.id
            with pytest.raises(StreamReset, match="refused"):
                await hub.mesh.open(hub.id, 2, b"").reply_head()
            left = hub.mesh.open(hub.id, 1, b"")
            await left.reply_head()
        with pytest.raises(StreamReset):
            await left.read()
        assert not hub.mesh.is_linked(hub.id)
        with pytest.raises(LocalProtocolError):
            hub.mesh.open(hub.id, 1, b"")

    run(main())


def test_a_kind_nobody_serves_is_refused():
    async def main():
        _, hub, (leaf,), hubs = fabric()
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            stream = hub.mesh.open(leaf.id, 1, b"")
            with pytest.raises(StreamReset) as refused:
                await stream.reply_head()
            assert refused.value.reset_code == ResetCode.REFUSED

    run(main())


def test_cancelling_reaches_the_handler_at_once():
    async def main():
        _, hub, (leaf,), hubs = fabric()
        seen: list = []

        async def hang(stream):
            try:
                await stream.read()
            except StreamReset as reset:
                seen.append((reset.reset_code, asyncio.get_running_loop().time()))
                raise

        leaf.mesh.serve(1, hang)
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            stream = hub.mesh.open(leaf.id, 1, b"")
            await asyncio.sleep(0.1)
            before = asyncio.get_running_loop().time()
            stream.reset()
            await until(lambda: bool(seen))
            assert seen[0][0] == ResetCode.CANCEL
            assert seen[0][1] - before < 0.01

    run(main())


def test_a_handler_that_fails_resets_its_stream_and_nothing_else():
    async def main():
        _, hub, (leaf,), hubs = fabric()

        async def fail(stream):
            raise ValueError("a bug")

        leaf.mesh.serve(1, fail)
        leaf.mesh.serve(2, echo)
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            with pytest.raises(StreamReset, match="internal"):
                await hub.mesh.open(leaf.id, 1, b"").reply_head()
            assert await hub.mesh.open(leaf.id, 2, b"x").reply_head() == b"head of x"

    run(main())


def test_a_lost_link_is_truncation_for_its_streams_never_an_end():
    async def main():
        network, hub, (leaf,), hubs = fabric()
        leaf.mesh.serve(1, echo)
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            stream = hub.mesh.open(leaf.id, 1, b"x")
            await stream.reply_head()
            network.crash("leaf0")
            with pytest.raises(StreamReset) as lost:
                await stream.read()
            assert lost.value.reset_code == ResetCode.TRUNCATED
            with pytest.raises(LocalProtocolError, match="no link"):
                hub.mesh.open(leaf.id, 1, b"")

    run(main())


def test_an_answer_that_is_whole_is_read_to_its_end_though_the_link_is_gone():
    async def main():
        network, hub, (leaf,), hubs = fabric()
        leaf.mesh.serve(1, echo)
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            stream = hub.mesh.open(leaf.id, 1, b"x")
            stream.write(b"whole")
            stream.end()
            await stream.reply_head()
            await asyncio.sleep(0.1)
            network.crash("leaf0")
            await asyncio.sleep(0.1)
            assert await read_all(stream) == b"whole"

    run(main())


def test_a_crashed_leaf_is_suspect_everywhere_and_back_after_it_redials():
    async def main():
        network, hub, leaves, hubs = fabric(2)
        async with started(hub, *leaves):
            await linked(hub, leaves, hubs)
            await until(lambda: leaves[0].id in leaves[1].view().nodes)
            network.cut("leaf0")
            await until(lambda: leaves[1].view().nodes[leaves[0].id].suspect)
            network.mend("leaf0")
            await until(lambda: not leaves[1].view().nodes[leaves[0].id].suspect, within=60.0)

    run(main())


def test_leaving_is_seen_and_raises_no_doubt():
    async def main():
        _, hub, leaves, hubs = fabric(2)
        async with started(hub, *leaves):
            await linked(hub, leaves, hubs)
            await until(lambda: leaves[0].id in leaves[1].view().nodes)
            await leaves[0].mesh.farewell()
            await leaves[0].stop()
            await until(lambda: leaves[1].view().nodes[leaves[0].id].rank is Rank.LEFT)
            await asyncio.sleep(3.0)
            assert not list(hub.replica.of_kind("doubt"))
            assert leaves[0].id not in hub.mesh.linked()

    run(main())


@pytest.mark.parametrize(
    ("proofs", "reason"),
    [
        ((membership(by=MEMBER), certificate(LEAF)), "not_admitted"),
        ((membership(), certificate(OTHER)), "not_certified"),
        ((membership(), certificate(LEAF, by=OPERATOR)), "not_certified"),
        ((membership(not_after=1.0), certificate(LEAF)), "expired"),
    ],
)
def test_a_node_without_a_right_is_refused_and_told_why(proofs, reason, caplog):
    async def main():
        _, hub, (leaf,), hubs = fabric(proofs=proofs)
        async with started(hub, leaf):
            hubs.append(hub.address())
            await asyncio.sleep(3.0)
            assert not hub.mesh.linked()
            assert len(hub.replica) == 4  # its own four records: nothing of the stranger entered

    run(main())
    assert any(reason in str(record.__dict__.get("reason")) for record in caplog.records)


def test_two_hubs_that_dial_each_other_end_with_one_link():
    async def main():
        network = MemoryNetwork()
        hubs: list = []
        one = MeshNode(HUB, network.host("a"), listen="a:0", hubs=hubs)
        two = MeshNode(OTHER, network.host("b"), listen="b:0", hubs=hubs)
        async with started(one, two):
            hubs += [one.address(), two.address()]
            await until(lambda: bool(one.mesh.linked() and two.mesh.linked()))
            await asyncio.sleep(30.0)
            assert len(one.mesh._links) == len(two.mesh._links) == 1
            assert not list(one.replica.of_kind("doubt"))

    run(main())


def test_a_stranger_that_says_nothing_is_dropped_in_time():
    class Silent:
        def __init__(self):
            self.reason = None

        def connected(self, transport):
            pass

        def message_received(self, message):
            pass

        def pause_writing(self):
            pass

        def resume_writing(self):
            pass

        def closed(self, reason):
            self.reason = reason

    async def main():
        network, hub, _, _ = fabric()
        async with started(hub):
            silent = await network.host("stranger").dial(hub.mesh.urls[0], Silent)
            await asyncio.sleep(6.0)
            assert silent.reason is not None
            assert hub.mesh._half_open == 0

    run(main())


def test_a_link_to_the_wrong_key_is_not_made():
    async def main():
        _, hub, (leaf,), hubs = fabric()
        async with started(hub, leaf):
            hubs.append(hub.address()._replace(key=OTHER.key))
            await asyncio.sleep(3.0)
            assert not leaf.mesh.linked()

    run(main())


def test_a_link_that_closes_takes_no_streams_and_is_not_counted():
    async def main():
        _, hub, (leaf,), hubs = fabric()
        async with started(hub, leaf):
            await linked(hub, [leaf], hubs)
            (link,) = hub.mesh._links.values()
            link._transport.close = lambda: None  # the last bytes take their time
            link.close("for a test")
            assert leaf.id in {each.node for each in hub.mesh._links.values()}
            assert not hub.mesh.is_linked(leaf.id)
            assert not hub.mesh.linked()
            with pytest.raises(LocalProtocolError, match="no link"):
                hub.mesh.open(leaf.id, 1, b"")

    run(main())


def test_a_link_that_is_refused_as_a_duplicate_never_stands_for_its_node():
    async def main():
        network = MemoryNetwork()
        small, large = sorted((Person(64), Person(65)), key=lambda person: person.key)
        hub = MeshNode(small, network.host("hub"), listen="hub:0", hubs=[])
        other = MeshNode(large, network.host("other"), listen="other:0", hubs=[])
        async with started(hub, other):
            hub.hubs.append(other.address())
            await until(lambda: hub.mesh.is_linked(other.id) and other.mesh.is_linked(hub.id))
            kept = hub.mesh._by_node[other.id]
            seen: set = set()
            up = hub.mesh._up

            def watch(link, event):
                up(link, event)
                seen.add((link is kept, hub.mesh._by_node[other.id] is kept))

            hub.mesh._up = watch
            await other.mesh._dial(hub.address(), hub.mesh.urls[0])  # a second one, dialled by the greater key
            assert seen == {(False, True)}
            assert hub.mesh.is_linked(other.id)

    run(main())


def test_a_refused_dialler_keeps_the_reason_until_it_is_linked():
    async def main():
        _, hub, (leaf,), hubs = fabric(proofs=(membership(by=MEMBER), certificate(LEAF)))
        async with started(hub, leaf):
            hubs.append(hub.address())
            await until(lambda: hub.id in leaf.mesh.refused)
            assert leaf.mesh.refused[hub.id] == Refused(HUB.key, "not_admitted", by_peer=True)
            leaf.own = (membership(), certificate(LEAF))
            await until(lambda: leaf.mesh.is_linked(hub.id), within=60.0)
            assert not leaf.mesh.refused

    run(main())
