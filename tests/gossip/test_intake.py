from gossip.frames import Records, encode
from gossip.intake import MAX_OF_OWNER, MAX_OF_STRANGERS
from gossip.peer import Contact, Peer
from registry.author import Author
from registry.record import Draft, seal
from tests.people import MEMBER, Person, certificate, doubt_record, node_record, registry_of

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
