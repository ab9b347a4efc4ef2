"""Who a node is, and that it asks for no more than its membership gives."""

import os

import pytest

from node.fabricdir import FabricDir
from node.identity import CERTIFIED_S, identify
from node.statedir import StateDir, boot_id, process_start
from registry.charter import admit
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Acceptance, Certificate, Invite, Membership, read_body
from registry.record import decode
from tests.people import FABRIC, FOUNDING, MEMBER, OPERATOR, Person, membership

NOW = 1_700_000_000.0
INVITE_KEY = Person(20)
HUB = Person(21)
INVITE = OPERATOR.write(
    Invite(key=INVITE_KEY.key, provider="lab", roles=("worker",), accept_by=NOW + 86_400), INVITE_KEY.id, seq=1
)
INVITED = admit(
    Membership(member=MEMBER.key, provider="lab", roles=("worker",), not_after=None, max_nodes=3),
    INVITE_KEY.key,
    INVITE_KEY.sign,
)


def accepted(hub=HUB, member=MEMBER, renewed=NOW, seq=1):
    return hub.write(Acceptance(member=member.key, at=NOW, renewed=renewed), INVITE_KEY.id, seq=seq)


@pytest.fixture
def state(tmp_path):
    pid = os.getpid()
    return StateDir.claim(
        tmp_path / "state", "lab", "alpha", slot=0, boot_id=boot_id(), pid=pid, start=process_start(pid)
    )


def fabric(tmp_path, *records, member_seed=MEMBER.seed):
    return FabricDir.create(tmp_path / "config", "lab", [FOUNDING.charter, *records], member_seed=member_seed)


def test_a_node_is_certified_by_its_member_for_a_week(tmp_path, state):
    mine = identify(fabric(tmp_path, membership()), state, ["worker"], now=NOW)
    record = decode(mine.certificate.raw)
    body = read_body(record)
    assert isinstance(body, Certificate)
    assert (body.node, body.roles, body.not_after) == (mine.key, ("worker",), NOW + CERTIFIED_S)
    assert (record.key.id, record.key.owner, record.order.seq) == (key_id(mine.key), MEMBER.key, int(NOW * 1000))
    assert (mine.fabric_id, mine.fabric_name, mine.member_key) == (FABRIC, "lab", MEMBER.key)


def test_the_key_is_the_one_of_the_state_directory(tmp_path, state):
    held = fabric(tmp_path, membership())
    first = identify(held, state, ["worker"], now=NOW)
    assert first.seed == state.seed()
    assert identify(held, state, ["worker"], now=NOW + 1).key == first.key


def test_a_certificate_renewed_is_a_later_one_of_the_same_node(tmp_path, state):
    mine = identify(fabric(tmp_path, membership()), state, ["worker"], now=NOW)
    later = mine.renewed(NOW + 86_400)
    body = read_body(later.certificate)
    assert isinstance(body, Certificate)
    assert body.not_after == NOW + 86_400 + CERTIFIED_S
    assert later.certificate.order > mine.certificate.order
    assert (later.key, later.membership) == (mine.key, mine.membership)


def test_a_certificate_ends_with_the_membership(tmp_path, state):
    mine = identify(fabric(tmp_path, membership(not_after=NOW + 60)), state, ["worker"], now=NOW)
    body = read_body(mine.certificate)
    assert isinstance(body, Certificate)
    assert body.not_after == NOW + 60


def test_a_membership_of_an_owner_is_shown_without_an_invite(tmp_path, state):
    mine = identify(fabric(tmp_path, membership()), state, ["worker"], now=NOW)
    assert mine.proofs() == (mine.membership, mine.certificate)


def test_a_membership_of_an_invite_is_shown_with_it_and_the_latest_word_of_a_hub(tmp_path, state):
    latest = accepted(seq=2)
    held = fabric(tmp_path, INVITE, INVITED, accepted(), latest, accepted(member=Person(9), seq=3))
    mine = identify(held, state, ["worker"], now=NOW)
    assert mine.proofs() == (INVITED, mine.certificate, INVITE, latest)


def test_before_a_hub_said_yes_the_invite_is_shown_alone(tmp_path, state):
    mine = identify(fabric(tmp_path, INVITE, INVITED), state, ["worker"], now=NOW)
    assert mine.proofs() == (INVITED, mine.certificate, INVITE)


def test_roles_that_were_not_given_are_refused_naming_both_and_who_can_give_them(tmp_path, state):
    held = fabric(tmp_path, membership(roles=("worker",)))
    with pytest.raises(TelaError) as caught:
        identify(held, state, ["worker", "ingress"], now=NOW)
    assert caught.value.code == "role_not_granted"
    assert "ingress; it gives worker" in caught.value.message
    assert "ask ada" in caught.value.hint
    assert "--roles worker,ingress" in caught.value.hint


def test_looking_needs_no_role(tmp_path, state):
    mine = identify(fabric(tmp_path, membership(roles=("worker",))), state, ["observer"], now=NOW)
    assert mine.roles == ("observer",)


def test_a_membership_that_has_ended_is_refused(tmp_path, state):
    with pytest.raises(TelaError) as caught:
        identify(fabric(tmp_path, membership(not_after=NOW - 1)), state, ["worker"], now=NOW)
    assert caught.value.code == "membership_expired"


@pytest.mark.parametrize("seed", [None, Person(7).seed])
def test_who_is_no_member_is_told_to_join(tmp_path, state, seed):
    with pytest.raises(TelaError) as caught:
        identify(fabric(tmp_path, membership(), member_seed=seed), state, ["worker"], now=NOW)
    assert caught.value.code == "no_member"
    assert "tela join" in caught.value.hint


def test_no_secret_shows_in_its_representation(tmp_path, state):
    mine = identify(fabric(tmp_path, membership()), state, ["worker"], now=NOW)
    assert repr(mine.seed) not in repr(mine)
    assert repr(mine.member_seed) not in repr(mine)
