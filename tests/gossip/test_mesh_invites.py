"""Who gets in, who does not, and who has to go: whole nodes over the memory network, in virtual time."""

import asyncio

import pytest

from gossip.memory import MemoryNetwork
from gossip.mesh import LOOK_S, SETTLE_S
from gossip.topology import Address
from registry.kinds import Acceptance
from tests.autojump import run
from tests.mesh import DAY_S, WALL_S, Guest, MeshNode, WallClock, order, started, until
from tests.people import Person, certificate, membership

HUB, OTHER_HUB, LEAF = Person(470), Person(471), Person(472)
GONE_WITHIN_S = 5.0


class Fabric:
    """Two hubs that know of each other, and guests that dial the first unless told otherwise. One clock for all."""

    def __init__(self):
        self.network = MemoryNetwork()
        self.clock = WallClock()
        self.addresses: list = []
        self.hub, self.other = (self.node(who, listen=f"{who.number}:0") for who in (HUB, OTHER_HUB))

    def node(self, person, **options):
        return MeshNode(
            person,
            self.network.host(str(person.number)),
            hubs=options.pop("hubs", self.addresses),
            clock=options.pop("clock", self.clock),
            knows=(membership(), certificate(HUB), certificate(OTHER_HUB)),
            **options,
        )

    def guest(self, guest: Guest, **options):
        return self.node(guest.node, proofs=guest.proofs, anchors=(HUB, OTHER_HUB), **options)

    async def meet(self):
        self.addresses += [self.hub.address(), self.other.address()]
        await until(lambda: self.hub.mesh.is_linked(self.other.id))


def acceptances(node: MeshNode) -> list[tuple[str, bytes, bytes]]:
    found = node.replica.of_kind("acceptance")
    return [(rec.key.id, body.member, rec.key.owner) for rec, body in found if isinstance(body, Acceptance)]


async def refused(guest: MeshNode, hub: MeshNode) -> str | None:
    await until(lambda: guest.refusal(hub) is not None)
    return guest.refusal(hub)


def test_a_guest_is_accepted_by_a_hub_and_everyone_learns_of_it():
    async def main():
        fabric, ada = Fabric(), Guest(480)
        leaf, guest = fabric.node(LEAF), fabric.guest(ada)
        async with started(fabric.hub, fabric.other, leaf, guest):
            await fabric.meet()
            nodes = (fabric.hub, fabric.other, leaf, guest)
            await until(lambda: all(guest.id in node.view().nodes for node in nodes))
            for node in nodes:
                assert node.view().nodes[guest.id].name.endswith("@guests")
                assert node.view().nodes[guest.id].roles == {"worker"}
                assert {member for _, member, _ in acceptances(node)} == {ada.member.key}
            both = {fabric.hub.id, fabric.other.id}  # one had to hear of the other's word first
            await until(lambda: guest.mesh.linked() == both)
            assert not guest.mesh.refused

    run(main())


def test_a_second_person_with_the_same_invite_is_refused_and_told_why():
    async def main():
        fabric, ada = Fabric(), Guest(481)
        first, second = fabric.guest(ada), fabric.guest(Guest(482, invite=ada))
        async with started(fabric.hub, fabric.other, first):
            await fabric.meet()
            await until(lambda: len(acceptances(fabric.other)) > 0)
            async with started(second):
                assert await refused(second, fabric.hub) == "exhausted"
                assert await refused(second, fabric.other) == "exhausted"
                assert not second.mesh.linked()
                assert second.id not in fabric.hub.view().nodes

    run(main())


def test_two_that_come_with_one_invite_at_two_hubs_at_once_end_as_one():
    async def main():
        fabric, ada = Fabric(), Guest(483)
        ways: tuple[list, list] = ([], [])
        guests = [fabric.guest(who, hubs=way) for who, way in zip((ada, Guest(484, invite=ada)), ways, strict=True)]
        async with started(fabric.hub, fabric.other, *guests):
            for way, hub in zip(ways, (fabric.hub, fabric.other), strict=True):
                way.append(hub.address())
            await until(lambda: all(guest.mesh.linked() for guest in guests))
            await fabric.meet()
            await until(lambda: [bool(guest.mesh.linked()) for guest in guests].count(True) == 1)
            loser = next(guest for guest in guests if not guest.mesh.linked())
            await until(lambda: {each.code for each in loser.mesh.refused.values()} == {"exhausted"})
            assert [guest.id in fabric.hub.view().nodes for guest in guests].count(True) == 1

    run(main())


def test_a_hub_that_begins_with_nothing_does_not_give_away_again_what_another_gave():
    async def main():
        fabric, ada = Fabric(), Guest(493)
        second = fabric.guest(Guest(494, invite=ada), hubs=[])
        guest = fabric.guest(ada, hubs=[])
        async with started(fabric.other, guest):
            guest.hubs.append(fabric.other.address())  # the hub of the charter is away
            await until(lambda: guest.id in fabric.other.view().nodes)
            fabric.addresses.append(fabric.other.address())
            fabric.network.cut(str(OTHER_HUB.number))
            async with started(fabric.hub, second):  # it knows of the other, and cannot hear it yet
                second.hubs.append(fabric.hub.address())
                assert await refused(second, fabric.hub) == "not_ready"
                assert not acceptances(fabric.hub)
                fabric.network.mend(str(OTHER_HUB.number))
                await until(lambda: second.refusal(fabric.hub) == "exhausted", within=SETTLE_S)
                assert guest.id in fabric.hub.view().nodes

    run(main())


def test_a_hub_that_hears_no_other_accepts_once_half_a_minute_has_passed():
    async def main():
        fabric, ada = Fabric(), Guest(495)
        guest = fabric.guest(ada, hubs=[])
        loop = asyncio.get_running_loop()
        fabric.addresses.append(Address(OTHER_HUB.key, ("ws://gone:1",), ingress=True))
        async with started(fabric.hub, guest):
            guest.hubs.append(fabric.hub.address())
            since = loop.time()
            assert await refused(guest, fabric.hub) == "not_ready"
            await until(lambda: guest.mesh.is_linked(fabric.hub.id), within=2 * SETTLE_S)
            assert loop.time() - since >= SETTLE_S - 1.0
            assert acceptances(fabric.hub)

    run(main())


def test_a_hub_that_knows_no_other_accepts_at_once():
    async def main():
        fabric, ada = Fabric(), Guest(496)
        guest = fabric.guest(ada, hubs=[])
        async with started(fabric.hub, guest):
            guest.hubs.append(fabric.hub.address())
            await until(lambda: guest.mesh.is_linked(fabric.hub.id), within=LOOK_S * 2)
            assert not guest.mesh.refused

    run(main())


def test_an_invite_that_was_not_used_in_time_is_refused():
    async def main():
        fabric = Fabric()
        guest = fabric.guest(Guest(485, accept_by=WALL_S - DAY_S))
        async with started(fabric.hub, fabric.other, guest):
            await fabric.meet()
            assert await refused(guest, fabric.hub) == "invite_expired"
            assert not acceptances(fabric.hub)

    run(main())


def test_who_was_accepted_in_time_links_later_at_a_hub_that_never_heard_of_it():
    async def main():
        fabric, ada = Fabric(), Guest(486)
        guest = fabric.guest(ada)
        async with started(fabric.hub, guest):
            fabric.addresses.append(fabric.hub.address())
            await until(lambda: bool(acceptances(guest)))
        fabric.clock.wall_s += 20 * DAY_S
        word = next(guest.replica.of_kind("acceptance")).record
        again = fabric.guest(ada, hubs=[], run=2)
        again.replica.apply(word)
        async with started(fabric.other, again):
            assert not acceptances(fabric.other)
            again.hubs.append(fabric.other.address())
            await until(lambda: fabric.other.mesh.is_linked(again.id))
            await until(lambda: again.id in fabric.other.view().nodes)

    run(main())


def test_a_guest_whose_clock_is_a_quarter_of_an_hour_off_is_told_so():
    async def main():
        fabric = Fabric()
        guest = fabric.guest(Guest(487), clock=WallClock(WALL_S + 900.0))
        async with started(fabric.hub, fabric.other, guest):
            await fabric.meet()
            assert await refused(guest, fabric.hub) == "clock_off"
            assert not acceptances(fabric.hub)

    run(main())


def test_hubs_renew_daily_and_what_is_used_does_not_end():
    async def main():
        fabric, ada = Fabric(), Guest(488, days=2)
        guest = fabric.guest(ada)
        async with started(fabric.hub, fabric.other, guest):
            await fabric.meet()
            await until(lambda: guest.id in fabric.other.view().nodes)
            for _ in range(10):
                fabric.clock.wall_s += DAY_S + 1.0
                ends = fabric.clock.wall_s + 2 * DAY_S
                await until(lambda ends=ends: guest.view().nodes[guest.id].grant.not_after >= ends - 60.0, within=90.0)
            assert guest.mesh.linked() == {fabric.hub.id, fabric.other.id}
            words = [body for _, body in guest.replica.of_kind("acceptance") if isinstance(body, Acceptance)]
            assert {body.at for body in words} == {WALL_S}

    run(main())


def test_what_nobody_used_for_its_days_has_ended():
    async def main():
        fabric, ada = Fabric(), Guest(489, days=2)
        guest = fabric.guest(ada)
        async with started(fabric.hub, fabric.other):
            await fabric.meet()
            async with started(guest):
                await until(lambda: guest.id in fabric.other.view().nodes)
            fabric.clock.wall_s += 3 * DAY_S
            late = fabric.guest(ada, run=2)
            async with started(late):
                assert await refused(late, fabric.hub) == "expired"

    run(main())


@pytest.mark.parametrize(
    ("verb", "of", "code"),
    [("evict", "node", "evicted"), ("revoke", "token", "revoked"), ("revoke", "member", "revoked")],
)
def test_whom_an_operator_turns_away_is_off_every_hub_within_five_seconds_and_does_not_return(verb, of, code):
    async def main():
        fabric, ada = Fabric(), Guest(490)
        guest = fabric.guest(ada)
        async with started(fabric.hub, fabric.other, guest):
            await fabric.meet()
            await until(lambda: len(guest.mesh.linked()) == 2)
            await until(lambda: guest.id in fabric.other.view().nodes)
            fabric.hub.tell(order(verb, getattr(ada, of).id, reason="misbehaves"))
            gone = lambda: guest.id not in fabric.hub.mesh.linked() | fabric.other.mesh.linked()  # noqa: E731
            await until(gone, within=GONE_WITHIN_S)
            assert await refused(guest, fabric.hub) == code
            assert await refused(guest, fabric.other) == code
            await asyncio.sleep(30.0)
            assert gone()
            assert not list(fabric.hub.replica.of_kind("doubt"))
            assert not list(guest.replica.of_kind("doubt"))

    run(main())


def test_who_is_let_in_again_returns():
    async def main():
        fabric, ada = Fabric(), Guest(491)
        guest = fabric.guest(ada)
        async with started(fabric.hub, fabric.other, guest):
            await fabric.meet()
            await until(lambda: len(guest.mesh.linked()) == 2)
            fabric.hub.tell(order("evict", guest.id))
            assert await refused(guest, fabric.hub) == "evicted"
            fabric.hub.tell(order("readmit", guest.id, seq=2))
            await until(lambda: len(guest.mesh.linked()) == 2, within=60.0)
            assert not guest.mesh.refused

    run(main())


def test_a_link_ends_with_the_certificate_it_was_made_with():
    async def main():
        fabric = Fabric()
        soon = WALL_S + 3_600.0
        leaf = fabric.node(LEAF, proofs=(membership(), certificate(LEAF, not_after=soon)))
        async with started(fabric.hub, fabric.other, leaf):
            await fabric.meet()
            await until(lambda: len(leaf.mesh.linked()) == 2)
            fabric.clock.wall_s = soon + 121.0
            await until(lambda: not leaf.mesh.linked(), within=LOOK_S * 2)
            assert await refused(leaf, fabric.hub) == "expired"

    run(main())


def test_a_certificate_that_was_renewed_in_time_keeps_the_link():
    async def main():
        fabric = Fabric()
        soon = WALL_S + 3_600.0
        leaf = fabric.node(LEAF, proofs=(membership(), certificate(LEAF, not_after=soon)))
        async with started(fabric.hub, fabric.other, leaf):
            await fabric.meet()
            await until(lambda: len(leaf.mesh.linked()) == 2)
            links = list(leaf.mesh._links.values())
            leaf.tell(certificate(LEAF, seq=2))
            fabric.clock.wall_s = soon + 121.0
            await asyncio.sleep(LOOK_S * 5)
            assert list(leaf.mesh._links.values()) == links
            assert all(link.is_live for link in links)

    run(main())


def test_of_two_live_runs_of_one_key_the_older_is_told_and_the_newer_stays():
    async def main():
        fabric = Fabric()
        old, new = fabric.node(LEAF, run=1), fabric.node(LEAF, run=2)
        async with started(fabric.hub, fabric.other, old):
            await fabric.meet()
            await until(lambda: len(old.mesh.linked()) == 2)
            async with started(new):
                await until(lambda: old.mesh.superseded is not None, within=30.0)
                assert old.mesh.superseded is not None
                assert old.mesh.superseded.order.run == 2
                await old.mesh.farewell()
                await old.stop()
                await until(lambda: len(new.mesh.linked()) == 2, within=60.0)
                assert new.mesh.superseded is None
                row = fabric.hub.view().nodes[LEAF.id]
                assert (row.run, row.rank.name) == (2, "SERVING")

    run(main())


def test_two_copies_of_one_run_are_found_out_too_and_neither_buries_the_other():
    async def main():
        fabric = Fabric()
        one, two = fabric.node(LEAF, run=1), fabric.node(LEAF, run=1)
        async with started(fabric.hub, fabric.other, one):
            await fabric.meet()
            await until(lambda: len(one.mesh.linked()) == 2)
            async with started(two):
                pair = (one, two)
                await until(lambda: any(node.mesh.superseded is not None for node in pair), within=30.0)
                loser = next(node for node in pair if node.mesh.superseded is not None)
                await loser.mesh.farewell()
                await loser.stop()
                await asyncio.sleep(5.0)
                assert fabric.hub.view().nodes[LEAF.id].rank.name == "SERVING"

    run(main())


def test_gauges_reach_hubs_and_who_subscribed():
    async def main():
        fabric = Fabric()
        busy, watcher = fabric.node(LEAF), fabric.node(Person(473))
        async with started(fabric.hub, fabric.other, busy, watcher):
            await fabric.meet()
            await until(lambda: all(len(node.mesh.linked()) == 2 for node in (busy, watcher)))
            watcher.mesh.subscribe()
            busy.mesh.measure({"in_flight": 3})
            await until(lambda: LEAF.id in watcher.mesh.gauges())
            assert watcher.mesh.gauges()[LEAF.id].values == {"in_flight": 3}
            assert fabric.hub.mesh.gauges()[LEAF.id].values == {"in_flight": 3}
            watcher.mesh.subscribe(on=False)
            assert LEAF.id not in watcher.mesh.gauges()

    run(main())


def test_the_accounts_shelf_is_shared_between_those_that_may_hold_it_alone():
    async def main():
        network, hubs = MemoryNetwork(), []
        door = MeshNode(HUB, network.host("a"), listen="a:0", hubs=hubs, accounts=True)
        other = MeshNode(OTHER_HUB, network.host("b"), listen="b:0", hubs=hubs, accounts=True)
        claims = (membership(), certificate(LEAF, roles=("worker",)))
        worker = MeshNode(LEAF, network.host("c"), hubs=hubs, accounts=True, proofs=claims)
        async with started(door, other, worker):
            hubs += [door.address(), other.address()]
            await until(lambda: all(len(node.mesh.linked()) == 2 for node in (door, other, worker)))
            lines = {line.node: line.contact.accounts for line in door.peer._lines.values()}
            assert lines == {other.id: True, worker.id: False}

    run(main())


def test_who_may_not_hold_the_accounts_shelf_any_more_is_not_sent_it_on_the_old_link():
    async def main():
        network, hubs, clock = MemoryNetwork(), [], WallClock()
        door, other = (
            MeshNode(who, network.host(name), listen=f"{name}:0", hubs=hubs, accounts=True, clock=clock)
            for who, name in ((HUB, "a"), (OTHER_HUB, "b"))
        )
        async with started(door, other):
            hubs += [door.address(), other.address()]
            await until(lambda: door.mesh.is_linked(other.id) and other.id in door.view().nodes)
            (line,) = door.peer._lines.values()
            assert line.contact.accounts
            door.tell(certificate(OTHER_HUB, roles=("worker",), seq=2))
            await until(lambda: line not in door.peer._lines.values(), within=GONE_WITHIN_S)
            await until(lambda: door.mesh.is_linked(other.id), within=30.0)
            assert [each.contact.accounts for each in door.peer._lines.values()] == [False]
            kept = list(door.mesh._links.values())
            await asyncio.sleep(10.0)
            assert list(door.mesh._links.values()) == kept

    run(main())
