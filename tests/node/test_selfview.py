"""What nodes say of themselves."""

import asyncio
from random import Random

import msgspec

from gossip.websocket import WebsocketNetwork
from node.clock import SystemClock
from node.process import NodeProcess
from node.selfview import self_view
from registry.acts import write_act
from registry.charter import certify
from registry.kinds import Certificate
from registry.replica import Replica
from tests.node.fabric import MODEL, fabric
from tests.people import FAR_S, Person


def shown(tmp_path, script):
    async def main():
        async with asyncio.timeout(60.0), fabric(tmp_path) as door:
            return await script(door)

    return asyncio.run(main())


def about(node):
    return self_view(node, (), "")


def warned(node):
    return {each.code: each for each in about(node).warnings}


def test_a_worker_shows_its_engines_and_the_hub_it_is_linked_to(tmp_path):
    async def script(door):
        (worker,) = door.workers
        return about(worker), door.ingress.id

    said, hub = shown(tmp_path, script)
    assert (said.node.roles, said.node.rank, said.http) == (("worker",), "SERVING", "")
    assert [(each.slot, each.state, each.models, each.log) for each in said.engines] == [
        ("e0", "SERVING", (MODEL,), "")
    ]
    assert [(each.id, each.hub) for each in said.linked] == [(hub, True)]
    assert (said.hubs.known, said.hubs.linked) == (1, 1)
    assert said.warnings == ()


def test_an_ingress_shows_its_door_and_that_it_holds_the_accounts(tmp_path):
    async def script(door):
        return about(door.ingress), door.url

    said, url = shown(tmp_path, script)
    assert (said.http, said.url, said.accounts) == (url, url, True)
    assert (said.hubs.known, [each.hub for each in said.linked]) == (0, [False])


def test_a_node_that_is_evicted_says_by_whom_and_why_and_how_it_may_come_back(tmp_path):
    async def script(door):
        (worker,) = door.workers
        authority = door.authority
        record = write_act(
            Replica(),
            "evict",
            worker.id,
            owner=authority.operator,
            sign=authority.operator_sign,
            at=0.0,
            reason="it lies",
        )
        door.ingress.mesh.tell(lambda peer: peer.publish(record))
        await door.until(lambda: "evicted" in warned(worker), within=20.0)
        return warned(worker)

    said = shown(tmp_path, script)
    assert set(said) == {"evicted"}
    assert said["evicted"].text.startswith("this node was evicted")
    assert "tela evict --lift" in said["evicted"].remedy


def test_a_node_nobody_entitled_says_so(tmp_path):
    async def script(door):
        stranger = Person(70)
        body = Certificate(node=stranger.key, roles=("worker",), not_after=FAR_S)
        certificate = certify(body, Person(71).key, Person(71).sign, seq=1)
        config = msgspec.structs.replace(
            door.workers[0].config,
            state=str(tmp_path / "x"),
            seed=stranger.seed,
            certificate=certificate.raw,
            engines=(),
        )
        node = NodeProcess(config, clock=SystemClock(), rng=Random(7), network=WebsocketNetwork(), say=lambda _: None)
        try:
            return about(node)
        finally:
            node.keeper.close()

    said = shown(tmp_path, script)
    assert [each.code for each in said.warnings] == ["not_entitled"]
    assert "tela whoami" in said.warnings[0].remedy
    assert said.node.until is None


def test_a_ledger_that_cannot_be_written_is_warned_of_before_anybody_calls(tmp_path):
    async def script(door):
        (tmp_path / "ingress" / "ledger" / "intents" / ".probe").mkdir()
        return warned(door.ingress)

    said = shown(tmp_path, script)["ledger"]
    assert said.severity == "error"
    assert "calls are refused" in said.text
    assert str(tmp_path / "ingress" / "ledger") in said.remedy
