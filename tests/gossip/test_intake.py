from gossip.frames import Records, encode
from gossip.intake import MAX_ABOUT_OTHERS, MAX_OF_INVITE, MAX_OF_OWNER, MAX_OF_STRANGERS, Intake
from gossip.line import Contact
from gossip.peer import Peer
from registry.author import Author
from registry.kinds import Act
from registry.record import Draft, seal
from registry.replica import Replica
from tests.mesh import Guest
from tests.people import (
    FOUNDING,
    MEMBER,
    OPERATOR,
    Person,
    certificate,
    doubt_record,
    membership,
    node_record,
    operator,
    registry_of,
    successor,
)

ME, NODE = Person(80), Person(81)


def future(owner, number=0):
    return seal(Draft("future", f"x{number}", b"{}"), owner.key, owner.sign)


def peer_with(*records, nodes=()):
    replica = registry_of(*records, nodes=(ME, *nodes))
    peer = Peer(replica=replica, author=Author(ME.key, ME.sign, 1), is_hub=True)
    peer.link_up(1, Contact(NODE.key, False, False, NODE.key), 0.0, 0.0)
    return peer


def offer(peer, *records):
    for record in records:
        peer.receive(1, encode(Records((record.raw,))), 0.0, 0.0)
    return peer


def held(peer, owner):
    return sum(entry.record.key.owner == owner.key for entry in peer.replica)


def test_keys_nobody_vouches_for_fill_a_bounded_part():
    peer = offer(peer_with(), *(future(Person(10_000 + n)) for n in range(MAX_OF_STRANGERS + 50)))
    assert sum(1 for _ in peer.replica.of_kind("future")) == MAX_OF_STRANGERS
    assert peer.refused == {"nobody vouches for its owner, and too many such records are held": 50}
    offer(peer, certificate(NODE), node_record(NODE))
    assert held(peer, NODE) == 1


def test_one_key_fills_a_bounded_part_and_its_updates_still_come():
    peer = offer(peer_with(nodes=(NODE,)), node_record(NODE), *(future(NODE, n) for n in range(MAX_OF_OWNER + 50)))
    assert held(peer, NODE) == MAX_OF_OWNER
    offer(peer, node_record(NODE, seq=7))
    assert peer.replica.get(node_record(NODE).key).record.order.seq == 7


def test_a_member_may_certify_far_more_nodes_than_a_key_may_write_other_records():
    nodes = [Person(20_000 + n) for n in range(MAX_OF_OWNER + 50)]
    peer = offer(peer_with(), *(certificate(node) for node in nodes))
    assert held(peer, MEMBER) == len(nodes) + 1


def test_a_hub_may_doubt_far_more_nodes_than_that():
    doubts = [doubt_record(NODE, Person(30_000 + n)) for n in range(MAX_OF_OWNER + 50)]
    peer = offer(peer_with(nodes=(NODE,)), *doubts)
    assert held(peer, NODE) == len(doubts)


def test_own_records_are_never_refused():
    peer = peer_with()
    for number in range(MAX_OF_OWNER + 5):
        peer.publish(future(ME, number))
    assert held(peer, ME) == MAX_OF_OWNER + 5


def strangers(count=MAX_OF_STRANGERS):
    return (future(Person(10_000 + n)) for n in range(count))


def test_records_that_came_before_who_vouches_for_them_make_room_when_that_comes():
    early = [future(NODE, n) for n in range(200)]
    peer = offer(peer_with(), *early, *strangers())
    assert sum(peer.refused.values()) == len(early)
    offer(peer, certificate(NODE), *strangers())
    assert sum(1 for _ in peer.replica.of_kind("future")) == MAX_OF_STRANGERS + len(early)


def test_a_chain_of_vouchers_counts_in_whatever_order_it_came():
    ada = Guest(40_000)
    chain = [ada.certificate, ada.membership, ada.invite]
    for order in (chain, chain[::-1], [chain[1], chain[0], chain[2]]):
        peer = offer(peer_with(), *order, *strangers(), future(ada.node))
        assert held(peer, ada.node) == 1


def test_it_counts_the_same_from_what_was_held_at_the_start():
    ada = Guest(40_000)
    replica = Replica()
    for record in (FOUNDING.charter, future(ada.node), ada.certificate, ada.membership, ada.invite):
        replica.apply(record)
    for record in strangers():
        replica.apply(record)
    intake = Intake(replica)
    assert intake.objection(future(ada.node, 2)) is None
    assert intake.objection(future(Person(55_000))) is not None


def test_only_who_may_vouches():
    names = Person(60_000)
    forged = [
        membership(names, by=NODE),
        certificate(names, by=NODE),
        Guest(60_001, by=MEMBER).invite,
        certificate(names, by=OPERATOR),
    ]
    peer = offer(peer_with(nodes=(NODE,)), *forged, *strangers(), future(names))
    assert held(peer, names) == 0


def test_the_key_of_an_invite_that_leaked_vouches_for_a_few():
    ada = Guest(40_000)
    guests = [Guest(41_000 + n, invite=ada) for n in range(MAX_OF_INVITE + 20)]
    peer = offer(peer_with(), ada.invite, *(guest.membership for guest in guests))
    assert held(peer, ada.token) == MAX_OF_INVITE


def test_operators_may_write_far_more_for_everyone_than_others(monkeypatch):
    monkeypatch.setattr("gossip.intake.MAX_ABOUT_OTHERS", 30)
    monkeypatch.setattr("gossip.intake.MAX_OF_OFFICE", 60)
    assert MAX_ABOUT_OTHERS > 1_000

    def acts(by):
        targets = (Person(70_000 + n).id for n in range(100))
        return (by.write(Act(verb="ack", target=target, at=0.0), f"ack/{target}", seq=1) for target in targets)

    peer = offer(peer_with(), *acts(OPERATOR), *acts(MEMBER))
    assert held(peer, OPERATOR) == 60 + 1  # the charter is none of them, the membership is
    assert held(peer, MEMBER) == 30


# --- the nodes of one member

BO = Person(85)  # another member


def bounded(monkeypatch, *records, most=60):
    """A peer that takes so many records of the nodes of one member, and knows two members."""
    monkeypatch.setattr("gossip.intake.MAX_OF_NODES", most)
    return peer_with(membership(BO), *records)


def test_many_nodes_of_one_member_fill_what_one_may(monkeypatch):
    nodes = [Person(80_000 + n) for n in range(10)]
    peer = offer(bounded(monkeypatch), *(certificate(node) for node in nodes))
    offer(peer, *(future(node, n) for n in range(10) for node in nodes))
    assert sum(held(peer, node) for node in nodes) == 60
    assert peer.refused == {"the nodes of its member hold too many records": 40}
    late = Person(81_000)
    offer(peer, certificate(late), node_record(late), certificate(NODE, by=BO), node_record(NODE))
    assert (held(peer, late), held(peer, NODE)) == (0, 1)


def test_records_that_came_before_the_certificate_count_too(monkeypatch):
    node, other = Person(80_000), Person(80_001)
    peer = offer(bounded(monkeypatch), *(future(node, n) for n in range(60)), certificate(node), certificate(other))
    assert held(offer(peer, node_record(other)), other) == 0


def test_a_certificate_that_came_again_is_counted_once(monkeypatch):
    node = Person(80_000)
    peer = offer(bounded(monkeypatch), certificate(node), *(future(node, n) for n in range(40)))
    offer(peer, certificate(node, seq=2), *(future(node, 100 + n) for n in range(30)))
    assert held(peer, node) == 60


def test_nobody_fills_anothers_part_by_certifying_their_nodes(monkeypatch):
    mine, victim = Person(80_000), Person(80_001)
    peer = offer(bounded(monkeypatch), certificate(mine, by=BO), *(future(mine, n) for n in range(60)))
    offer(peer, certificate(victim, by=BO), certificate(victim), node_record(victim))
    assert held(peer, victim) == 1
    assert held(offer(peer, future(mine, 100)), mine) == 60


def test_a_second_member_makes_no_second_part_of_the_first(monkeypatch):
    nodes = [Person(80_000 + n) for n in range(4)]
    peer = offer(bounded(monkeypatch), *(certificate(node, by=by) for node in nodes for by in (MEMBER, BO)))
    offer(peer, *(future(node, n) for n in range(30) for node in nodes))
    assert sum(held(peer, node) for node in nodes) == 60


def test_hubs_of_the_charter_write_for_everyone_and_are_no_charge_of_their_members(monkeypatch):
    hub, node = Person(80_000), Person(80_001)
    charter = successor(FOUNDING.charter, operator(OPERATOR, "owner"), hubs=(hub,))
    early = [future(hub, n) for n in range(50)]
    late = [future(hub, 100 + n) for n in range(50)]
    for order in (
        (charter, certificate(hub), *early, *late),
        (certificate(hub), *early, charter, *late),
        (*early, certificate(hub), charter, *late),
    ):
        peer = offer(bounded(monkeypatch), *order, certificate(node), *(future(node, n) for n in range(70)))
        assert (held(peer, hub), held(peer, node)) == (100, 60)
