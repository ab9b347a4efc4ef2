"""What a node writes down for its account: followed charters, its member's latest proofs, hubs with their addresses."""

import pytest

from node.config import HubAddress
from node.fabricdir import FabricDir
from node.remembering import MAX_HUBS, Learnt, learnt, merged, merged_hubs, save
from registry.charter import VERBS
from registry.errors import TelaError
from registry.kinds import Operator
from registry.lifecycle import Rank
from registry.views import Views
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    acceptance,
    act_record,
    certificate,
    invite,
    membership,
    node_record,
    registry_of,
    successor,
)

NOW = 1_800_000_000.0
HUB, OTHER, PASS, GUEST, KIM, EVE = Person(10), Person(11), Person(30), Person(40), Person(5), Person(66)
ADA = Operator(key=OPERATOR.key, name="ada", verbs=VERBS)
NEWER = successor(FOUNDING.charter, ADA, hubs=(HUB,))
MINE = (invite(PASS), membership(GUEST, by=PASS, not_after=None))
HELD = (FOUNDING.charter, *MINE, acceptance(PASS, GUEST, by=HUB, at=NOW - 9e5, renewed=NOW - 9e5))
HUBS = (HubAddress(key=HUB.key, urls=("ws://old:1",)),)


@pytest.fixture
def fabric(tmp_path):
    return FabricDir.create(tmp_path, "lab", HELD, HUBS, member_seed=GUEST.seed)


def known(*records, nodes=(HUB,)):
    replica = registry_of(NEWER, *HELD, *records, nodes=nodes)
    found = learnt(replica, Views(replica, FABRIC).at(NOW), GUEST.key)
    assert found is not None
    return found


def kinds(fabric, kind):
    return [record for record in fabric.records() if record.key.kind == kind]


def test_without_a_charter_nothing_is_known():
    replica = registry_of()
    assert learnt(replica, Views(replica, b"x" * 32).at(NOW), GUEST.key) is None


def test_newer_charters_are_kept_in_their_order_and_strangers_are_not(fabric):
    stranger = successor(FOUNDING.charter, ADA, by=EVE)
    save(fabric, known(stranger))
    assert kinds(fabric, "charter") == [FOUNDING.charter, NEWER]


def test_a_renewed_acceptance_takes_the_place_of_the_old_one(fabric):
    renewed = acceptance(PASS, GUEST, by=HUB, at=NOW - 9e5, renewed=NOW, seq=2)
    save(fabric, known(renewed))
    assert kinds(fabric, "acceptance") == [renewed]
    assert kinds(fabric, "membership") == [MINE[1]]


def test_a_word_that_does_not_count_is_not_kept(fabric):
    save(fabric, known(acceptance(PASS, GUEST, by=EVE, at=0.0, renewed=NOW + 9e9)))
    assert kinds(fabric, "acceptance") == [HELD[-1]]


def test_of_two_hubs_words_the_newest_and_the_newest_of_the_charter_are_kept(fabric):
    first = acceptance(PASS, GUEST, by=HUB, at=NOW - 9e5, renewed=NOW - 5, seq=2)
    later = acceptance(PASS, GUEST, by=OTHER, at=NOW - 9e5, renewed=NOW)
    save(fabric, known(first, later, nodes=(HUB, OTHER)))
    assert set(kinds(fabric, "acceptance")) == {first, later}


def test_an_invite_that_was_taken_over_takes_the_place_of_the_one_that_counts_no_more(fabric):
    theirs = invite(PASS, by=KIM)
    fabric.save_records([FOUNDING.charter, theirs, *HELD[2:]])
    save(fabric, known(theirs))
    assert kinds(fabric, "invite") == [MINE[0]]


def test_hubs_are_those_of_the_charter_and_those_that_take_links(fabric):
    save(fabric, known(node_record(HUB, hub=True), node_record(OTHER, hub=True), nodes=(HUB, OTHER)))
    hubs = {hub.key: hub.urls for hub in fabric.hubs()}
    assert hubs == {HUB.key: ("ws://127.0.0.1:7010", "ws://old:1"), OTHER.key: ("ws://127.0.0.1:7011",)}


def test_a_hub_that_left_or_that_nobody_admits_is_not_learnt():
    gone = node_record(OTHER, hub=True, rank=Rank.LEFT, seq=2)
    found = known(gone, node_record(EVE, hub=True), nodes=(HUB, OTHER))
    assert [hub.key for hub in found.hubs] == [HUB.key]


def test_a_hub_that_was_evicted_is_forgotten(fabric):
    fabric.save_hubs([*HUBS, HubAddress(key=OTHER.key, urls=("ws://other:1",))])
    save(fabric, known(node_record(OTHER, hub=True), act_record("evict", OTHER), nodes=(HUB, OTHER)))
    assert [hub.key for hub in fabric.hubs()] == [HUB.key]


def test_what_is_known_already_is_not_written_again(fabric):
    found = known(node_record(HUB, hub=True), node_record(OTHER, hub=True), nodes=(HUB, OTHER))
    assert save(fabric, found) == ("records", "hubs")
    before = {path.name: path.stat().st_ino for path in fabric.path.iterdir()}
    assert save(fabric, found) == ()
    assert {path.name: path.stat().st_ino for path in fabric.path.iterdir()} == before


def test_an_older_record_takes_no_place():
    newer = invite(PASS, seq=2)
    assert merged((FOUNDING.charter, NEWER), (FOUNDING.charter,)) == (FOUNDING.charter, NEWER)
    assert merged((newer,), (newer,)) == (newer,)


def test_the_list_of_hubs_has_an_end_and_the_charters_are_in_it():
    held = tuple(HubAddress(key=Person(200 + at).key, urls=("ws://a:1",)) for at in range(MAX_HUBS + 5))
    told = HubAddress(key=HUB.key, urls=("ws://b:1",))
    after = merged_hubs(held, Learnt((), (told,), frozenset()))
    assert len(after) == MAX_HUBS
    assert told in after


def test_a_member_whom_an_owner_signed_for_has_no_invite_to_keep(fabric):
    replica = registry_of(NEWER, membership(GUEST), certificate(HUB))
    found = learnt(replica, Views(replica, FABRIC).at(NOW), GUEST.key)
    assert found is not None
    assert [record.key.kind for record in found.records] == ["charter", "charter"]


def test_a_broken_file_is_said_and_left(fabric):
    (fabric.path / "records").write_bytes(b"nonsense")
    with pytest.raises(TelaError) as caught:
        save(fabric, known())
    assert caught.value.code == "bad_fabric"
    assert (fabric.path / "records").read_bytes() == b"nonsense"
