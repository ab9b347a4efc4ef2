"""What shows that a node may be here."""

import pytest

from node.config import NodeConfig
from node.identity import CERTIFIED_S
from node.proofs import Proofs
from registry.charter import certify
from registry.errors import TelaError
from registry.kinds import Certificate, read_body
from registry.record import Draft, seal
from registry.replica import Replica
from tests.mesh import WALL_S, Guest, WallClock
from tests.people import FABRIC, FOUNDING, MEMBER, OPERATOR, Person, certificate, membership

NODE, HUB = Person(80), Person(81)


def proofs(**changes):
    config = {
        "host": "h", "state": "/s", "seed": NODE.seed, "charter": FOUNDING.charter.raw, "membership": membership().raw,
        "certificate": certificate(NODE).raw, "roles": ("worker",), "member_seed": MEMBER.seed, **changes,
    }  # fmt: skip
    return Proofs(NodeConfig(**config), WallClock())


def test_a_node_knows_its_fabric_and_whose_it_is():
    mine = proofs()
    assert (mine.fabric_id, mine.member) == (FABRIC, MEMBER.key)
    assert mine.charter.name == "testfabric"


def test_what_it_knows_first_makes_it_entitled():
    assert [record.key.kind for record in proofs().first()] == ["charter", "membership", "certificate"]


def test_a_greeting_without_an_invite_carries_two_proofs():
    mine = proofs()
    assert mine.shown(Replica()) == (mine.membership, mine.certificate)


def test_a_greeting_with_an_invite_carries_it_and_the_latest_word_that_it_was_accepted():
    guest = Guest(90)
    mine = proofs(membership=guest.membership.raw, certificate=guest.certificate.raw, invite=guest.invite.raw)
    replica = Replica()
    assert mine.shown(replica) == (guest.membership, guest.certificate, guest.invite)
    other, first, later = Guest(91).accepted(HUB), guest.accepted(HUB), guest.accepted(HUB, renewed=WALL_S + 9, seq=2)
    for record in (other, first):
        replica.apply(record)
    assert mine.shown(replica)[3:] == (first,)
    replica.apply(later)
    assert mine.shown(replica)[3:] == (later,)


def test_a_certificate_is_signed_again_for_longer_and_supersedes_the_old():
    mine = proofs()
    before = mine.certificate
    record = mine.certify_again(Replica())
    body = read_body(record)
    assert isinstance(body, Certificate)
    assert (body.node, body.roles, body.not_after) == (NODE.key, ("worker", "ingress", "relay"), WALL_S + CERTIFIED_S)
    assert record.key == before.key
    assert record.order > before.order
    assert mine.certificate == record


def test_without_the_members_key_nothing_is_signed():
    mine = proofs(member_seed=None)
    before = mine.certificate
    assert mine.certify_again(Replica()) is None
    assert mine.certificate == before


def test_a_first_record_that_is_no_charter_is_said_to_be_none():
    with pytest.raises(TelaError) as caught:
        _ = proofs(charter=membership(by=OPERATOR).raw).charter
    assert caught.value.code == "bad_charter"


@pytest.mark.parametrize(("left_days", "due"), [(7.0, False), (6.5, False), (5.9, True), (-1.0, True), (30.0, True)])
def test_a_certificate_is_signed_again_after_a_day_or_when_the_clock_was_set(left_days, due):
    ends = WALL_S + left_days * 86_400
    assert proofs(certificate=certificate(NODE, not_after=ends).raw).is_due() == due


def test_a_certificate_of_a_clock_that_was_ahead_is_superseded_all_the_same():
    body = Certificate(node=NODE.key, roles=("worker",), not_after=WALL_S)
    ahead = certify(body, MEMBER.key, MEMBER.sign, seq=int((WALL_S + 30 * 86_400) * 1000))
    replica, mine = Replica(), proofs()
    replica.apply(ahead)  # by an earlier run
    assert mine.is_overtaken(replica)
    assert replica.apply(mine.certify_again(replica))
    assert not mine.is_overtaken(replica)


def refused_by_this_release(kind, by):
    return seal(Draft(kind, "x", b'{"no": "field"}', seq=1), by.key, by.sign)


def test_what_others_wrote_and_this_release_refuses_is_left_out():
    replica = Replica()
    proofs(records=(refused_by_this_release("acceptance", HUB).raw,)).teach(replica)
    assert {entry.record.key.kind for entry in replica} == {"charter", "membership", "certificate"}


def test_what_a_node_shows_itself_has_to_be_taken():
    with pytest.raises(TelaError) as caught:
        proofs(membership=refused_by_this_release("membership", MEMBER).raw).teach(Replica())
    assert caught.value.code == "bad_proof"
