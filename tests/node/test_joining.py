"""Knocking: a hub accepts the invite, and nothing of the node that asked stays in the way."""

from random import Random

from gossip.memory import MemoryNetwork
from node.config import HubAddress
from node.identity import Credentials
from node.joining import knock
from registry.charter import certify
from registry.kinds import Acceptance, Certificate, read_body
from registry.lifecycle import Rank
from tests.autojump import run
from tests.mesh import WALL_S, Guest, MeshNode, WallClock, started, until
from tests.people import FABRIC, FOUNDING, Person, certificate, membership

HUB, REAL = Person(470), Person(471)


def credentials(guest, address):
    body = Certificate(node=guest.node.key, roles=("observer",), not_after=WALL_S + 1.0)
    return Credentials(
        seed=guest.node.seed,
        key=guest.node.key,
        member_seed=guest.member.seed,
        member_key=guest.member.key,
        fabric_id=FABRIC,
        fabric_name="lab",
        charters=(FOUNDING.charter,),
        membership=guest.membership,
        invite=guest.invite,
        acceptance=None,
        certificate=certify(body, guest.member.key, guest.member.sign, seq=1),
        roles=("observer",),
        hubs=(HubAddress(key=HUB.key, urls=address.urls),),
    )


class Fabric:
    """One hub, and somebody with an invite for one node."""

    def __init__(self, **invite):
        self.network, self.clock = MemoryNetwork(), WallClock()
        self.guest = Guest(480, max_nodes=1, **invite)
        self.guest.membership = self.guest.join(max_nodes=1)
        knows = (membership(), certificate(HUB))
        self.hub = MeshNode(HUB, self.network.host("hub"), listen="hub:0", clock=self.clock, knows=knows)

    async def knock(self):
        mine = credentials(self.guest, self.hub.address())
        return await knock(
            mine, "laptop", 0, network=self.network.host("laptop"), clock=self.clock, rng=Random(1), within_s=5.0
        )


def test_a_hub_accepts_and_its_word_comes_back():
    async def main():
        fabric = Fabric()
        async with started(fabric.hub):
            answer = await fabric.knock()
        assert answer.refusal is None
        assert answer.accepted is not None
        body = read_body(answer.accepted)
        assert isinstance(body, Acceptance)
        assert body.member == fabric.guest.member.key

    run(main())


def test_whoever_knocked_has_left_at_once():
    async def main():
        fabric = Fabric()
        async with started(fabric.hub):
            await fabric.knock()
            await until(lambda: fabric.guest.node.id in fabric.hub.view().nodes)
            row = fabric.hub.view().nodes[fabric.guest.node.id]
            assert (row.rank, row.node.host, row.suspect) == (Rank.LEFT, "laptop", False)

    run(main())


def test_the_place_of_the_only_node_is_free_while_the_certificate_lasts():
    async def main():
        fabric = Fabric()
        async with started(fabric.hub):
            await fabric.knock()
            guest = fabric.guest
            real = MeshNode(
                REAL,
                fabric.network.host("gpu"),
                hubs=[fabric.hub.address()],
                clock=fabric.clock,
                proofs=(guest.membership, certificate(REAL, by=guest.member, roles=("worker",)), guest.invite),
                anchors=(HUB,),
            )
            async with started(real):
                await until(lambda: real.mesh.linked() or real.refusal(fabric.hub))
                assert real.refusal(fabric.hub) is None
                await until(lambda: REAL.id in fabric.hub.view().nodes)

    run(main())


def test_a_run_after_it_is_a_node_like_any_other():
    async def main():
        fabric = Fabric()
        async with started(fabric.hub):
            await fabric.knock()
            guest = fabric.guest
            later = certify(
                Certificate(node=guest.node.key, roles=("worker",), not_after=WALL_S + 900.0),
                guest.member.key, guest.member.sign, seq=2,
            )  # fmt: skip
            node = MeshNode(
                guest.node,
                fabric.network.host("laptop2"),
                hubs=[fabric.hub.address()],
                clock=fabric.clock,
                proofs=(guest.membership, later, guest.invite),
                anchors=(HUB,),
            )
            async with started(node):
                rows = fabric.hub.view
                await until(lambda: guest.node.id in rows().nodes and rows().nodes[guest.node.id].rank is Rank.SERVING)

    run(main())


def test_a_refusal_is_its_code():
    async def main():
        fabric = Fabric(accept_by=WALL_S - 86_400.0)
        async with started(fabric.hub):
            answer = await fabric.knock()
        assert (answer.accepted, answer.refusal) == (None, "invite_expired")
        assert fabric.guest.node.id not in fabric.hub.view().nodes

    run(main())
