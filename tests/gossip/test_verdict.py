"""What a membership made of an invite is worth at the door. Without one, see `test_hello`."""

import pytest

from gossip.accepting import RENEW_S, acceptance, renewals
from gossip.frames import CAPABILITY
from gossip.gate import Gate
from gossip.hello import Hello, encode_hello
from gossip.invited import MAX_SKEW_S, Door
from gossip.verdict import judge
from registry.clock import LEEWAY_S
from registry.kinds import Charter, Hub, Membership, Operator
from registry.replica import Replica
from registry.validity import standing
from tests.mesh import DAY_S, WALL_S, Guest, order
from tests.people import FABRIC, FOUNDING, MEMBER, OPERATOR, Person, certificate, operator, registry_of, successor

HUB, OTHER_HUB, WORKER, HEAD = Person(410), Person(411), Person(412), Person(413)
ADA = Guest(420)
NODES = (HUB, OTHER_HUB)


def door(*records, me=HUB, now=WALL_S, anchors=()):
    replica = registry_of(*records, nodes=NODES)
    return Door(me.key, standing(replica, FABRIC, now), replica, now, frozenset(each.key for each in anchors))


def hello(*proofs, wall: float | None = WALL_S) -> bytes:
    raws = tuple(each.raw for each in proofs)
    return encode_hello(Hello(CAPABILITY, "1", hub=False, accounts=False, proofs=raws, wall=wall))


def knock(guest: Guest, at: Door, *words, wall: float | None = WALL_S, membership=None):
    proofs = (membership or guest.membership, guest.certificate, guest.invite, *words)
    return judge(hello(*proofs, wall=wall), guest.node.key, at)


def merged(guest: Guest, *records):
    return (guest.invite, guest.membership, guest.certificate, *records)


def test_a_first_comer_is_admitted_where_an_acceptance_may_be_written():
    found = knock(ADA, door())
    assert found.refusal is None
    assert found.accept == ADA.membership
    assert [proof.key.kind for proof in found.proofs] == ["invite", "membership", "certificate"]
    assert (found.member, found.roles) == (ADA.member.key, {"worker"})


def test_the_first_word_about_a_membership_names_its_invite_and_member():
    subject, body = acceptance(ADA.membership, WALL_S + 5.0)
    assert subject == ADA.token.id
    assert (body.member, body.at, body.renewed) == (ADA.member.key, WALL_S + 5.0, WALL_S + 5.0)


def test_a_node_that_may_not_accept_says_to_ask_a_hub():
    assert knock(ADA, door(me=WORKER)).refusal == "not_accepted"


def test_who_was_accepted_needs_no_further_word():
    found = knock(ADA, door(*merged(ADA), ADA.accepted(HUB)))
    assert (found.refusal, found.accept) == (None, None)


def test_a_word_that_is_shown_is_enough_anywhere_after_the_time_for_accepting():
    late = WALL_S + 10 * DAY_S
    found = knock(ADA, door(me=WORKER, now=late), ADA.accepted(HUB), wall=late)
    assert found.refusal is None
    assert found.accept is None
    assert [proof.key.kind for proof in found.proofs] == ["invite", "membership", "certificate", "acceptance"]


@pytest.mark.parametrize(
    "word",
    [ADA.accepted(WORKER), ADA.accepted(ADA.node), ADA.accepted(OPERATOR), Guest(425).accepted(HUB)],
    ids=["of a worker", "of the node itself", "of an operator", "of another invite"],
)
def test_a_word_of_nobody_who_may_accept_counts_for_nothing_and_is_not_merged(word):
    found = knock(ADA, door(me=WORKER, anchors=[ADA.node]), word)
    assert "acceptance" not in {proof.key.kind for proof in found.proofs}
    assert knock(ADA, door(me=WORKER), word).refusal == "not_accepted"


def test_an_anchor_needs_no_acceptance():
    found = knock(ADA, door(me=WORKER, anchors=[ADA.node]))
    assert (found.refusal, found.accept) == (None, None)


def test_an_anchor_is_accepted_where_that_may_be():
    assert knock(ADA, door(anchors=[ADA.node])).accept == ADA.membership


def test_an_invite_is_for_one_person():
    second = Guest(430, invite=ADA)
    assert knock(second, door(*merged(ADA), ADA.accepted(HUB))).refusal == "exhausted"


def test_the_earlier_of_two_words_decides_whichever_is_held():
    second = Guest(430, invite=ADA)
    held = door(*merged(ADA), ADA.accepted(HUB, at=WALL_S))
    assert knock(second, held, second.accepted(OTHER_HUB, at=WALL_S - 1.0)).refusal is None
    assert knock(second, held, second.accepted(OTHER_HUB, at=WALL_S + 1.0)).refusal == "exhausted"


def test_what_an_earlier_accepter_decided_stays_whatever_a_later_one_says():
    hub, second = Guest(465, roles=("relay",)), Guest(430, invite=ADA)
    hub.membership = hub.join(roles=("relay",))
    of_hub = merged(hub, hub.accepted(HUB))
    held = door(*of_hub, *merged(ADA), *merged(second), ADA.accepted(HUB), second.accepted(hub.node, at=WALL_S - 9.0))
    assert hub.node.key in held.standing.accepters
    assert knock(ADA, held).refusal is None
    assert knock(second, held).refusal == "exhausted"


@pytest.mark.parametrize("shown", [0, 1])
def test_of_two_operators_offers_for_one_key_the_same_counts_as_everywhere(shown):
    everything = ("fleet", "keys", "placement", "owner")
    owners = tuple(Operator(key=each.key, name=f"o{each.number}", verbs=everything) for each in (OPERATOR, MEMBER))
    replica = Replica()
    charter = OPERATOR.write(Charter(name="two", operators=owners, hubs=(Hub(key=HUB.key, urls=()),)), "0")
    guests = [Guest(470, max_nodes=nodes, by=by) for nodes, by in ((2, OPERATOR), (1, MEMBER))]
    for record in (charter, *(guest.invite for guest in guests), guests[0].membership):
        replica.apply(record)
    counts = standing(replica, charter.order.hash, WALL_S)
    at = Door(HUB.key, counts, replica, WALL_S, frozenset())
    smaller = min(guests, key=lambda guest: guest.invite.order.hash)
    found = knock(guests[shown], at)
    assert found.refusal is None
    assert smaller.invite in found.proofs


def test_of_two_that_come_with_one_invite_at_once_the_first_that_is_live_has_it():
    second = Guest(430, invite=ADA)
    held: list = []
    gate = Gate(lambda: door(*held))
    for link, guest in enumerate((ADA, second)):
        proofs = guest.membership, guest.certificate, guest.invite
        assert gate.admit(link, guest.node.key, hello(*proofs)) is None
    assert gate.entered(0).accept == ADA.membership
    held += merged(ADA, ADA.accepted(HUB))
    late = gate.entered(1)
    assert (late.refusal, late.accept, late.proofs) == ("exhausted", None, ())
    assert not gate.lapsed([0])


def test_a_word_that_was_taken_back_by_a_newer_one_of_the_same_hub_counts_no_more():
    second = Guest(430, invite=ADA)
    held = door(*merged(ADA), ADA.accepted(HUB, at=WALL_S, seq=2))
    assert knock(second, held, second.accepted(HUB, at=WALL_S - 1.0, seq=1)).refusal == "exhausted"


def test_an_invite_is_accepted_to_the_end_of_the_leeway():
    last = WALL_S + DAY_S + LEEWAY_S
    assert knock(ADA, door(now=last), wall=last).refusal is None
    assert knock(ADA, door(now=last + 0.1), wall=last).refusal == "invite_expired"


def test_an_accepted_membership_ends_when_nobody_saw_it_for_the_invites_days():
    brief = Guest(440, days=2)
    end = WALL_S + 2 * DAY_S + LEEWAY_S
    assert knock(brief, door(now=end), brief.accepted(HUB), wall=end).refusal is None
    assert knock(brief, door(now=end + 0.1), brief.accepted(HUB), wall=end).refusal == "expired"
    assert knock(brief, door(*merged(brief), brief.accepted(HUB), now=end + 0.1), wall=end).refusal == "expired"


@pytest.mark.parametrize("off", [MAX_SKEW_S + 1.0, -MAX_SKEW_S - 1.0, 900.0])
def test_a_newcomer_whose_clock_is_off_is_told_so(off):
    assert knock(ADA, door(), wall=WALL_S + off).refusal == "clock_off"


@pytest.mark.parametrize("off", [MAX_SKEW_S - 1.0, None])
def test_a_clock_that_is_nearly_right_or_not_told_is_no_reason(off):
    assert knock(ADA, door(), wall=None if off is None else WALL_S + off).refusal is None


def test_who_was_accepted_is_not_asked_for_the_time():
    assert knock(ADA, door(*merged(ADA), ADA.accepted(HUB)), wall=0.0).refusal is None


def test_an_end_that_has_passed_on_one_clock_only_is_a_clock_that_is_off():
    week = WALL_S + 7 * DAY_S
    proofs = ADA.membership, certificate(ADA.node, by=ADA.member, not_after=week), ADA.invite
    months = door(*merged(ADA), ADA.accepted(HUB), now=WALL_S + 60 * DAY_S)
    assert judge(hello(*proofs, wall=WALL_S), ADA.node.key, months).refusal == "clock_off"
    assert judge(hello(*proofs, wall=WALL_S + 60 * DAY_S), ADA.node.key, months).refusal == "expired"


SAID = [{"provider": "other"}, {"roles": ("worker", "relay")}, {"roles": ()}, {"max_nodes": 3}, {"not_after": 1.0}]
SAYS = ["provider", "more roles", "no roles", "nodes", "end"]


@pytest.mark.parametrize("changes", SAID, ids=SAYS)
def test_a_newcomer_has_what_the_invite_says_whatever_its_membership_does(changes):
    found = knock(ADA, door(), membership=ADA.join(**changes))
    assert (found.refusal, found.roles) == (None, {"worker"})


@pytest.mark.parametrize("changes", SAID, ids=SAYS)
def test_what_a_thief_signs_again_with_a_used_token_changes_nothing_at_the_door(changes):
    body = {"member": ADA.member.key, "provider": "guests", "roles": ("worker",), "not_after": None, "max_nodes": 2}
    again = ADA.token.write(Membership(**{**body, **changes}), ADA.member.id, seq=2**64 - 1)
    found = knock(ADA, door(*merged(ADA, ADA.accepted(HUB)), again))
    assert (found.refusal, found.roles) == (None, {"worker"})


def test_a_word_for_a_key_without_a_membership_turns_nobody_away():
    nobody = Guest(431, invite=ADA).accepted(OTHER_HUB, at=0.0)
    assert knock(ADA, door(*merged(ADA), nobody)).refusal is None
    assert knock(ADA, door(nobody, me=WORKER), ADA.accepted(HUB)).refusal is None


def test_who_was_accepted_by_a_hub_that_was_shut_down_is_let_in():
    gone = certificate(OTHER_HUB, not_after=WALL_S - DAY_S, seq=2)
    said = {"at": WALL_S - 2 * DAY_S, "renewed": WALL_S - 2 * DAY_S}
    held = door(gone, me=WORKER)
    assert OTHER_HUB.key not in held.standing.accepters
    assert knock(ADA, held, ADA.accepted(OTHER_HUB, **said)).refusal is None
    assert knock(ADA, held, ADA.accepted(OTHER_HUB, at=WALL_S)).refusal == "not_accepted"


def test_the_word_of_a_hub_that_was_shut_down_is_heard_last():
    gone = certificate(OTHER_HUB, not_after=WALL_S - DAY_S, seq=2)
    second = Guest(430, invite=ADA)
    early = second.accepted(OTHER_HUB, at=WALL_S - 2 * DAY_S)
    assert knock(ADA, door(gone, second.membership, early), ADA.accepted(HUB)).refusal is None
    assert knock(second, door(gone, *merged(ADA), ADA.accepted(HUB)), early).refusal == "exhausted"


def of_provider(*records):
    """A door where the guests' provider has an owner of its own, who may do nothing else."""
    replica = registry_of(*records, nodes=NODES)
    replica.apply(
        successor(FOUNDING.charter, operator(OPERATOR, "owner"), operator(HEAD, "owner", scope="provider:guests"))
    )
    return Door(HUB.key, standing(replica, FABRIC, WALL_S), replica, WALL_S, frozenset())


def test_an_owner_for_one_provider_lets_nobody_in_as_more_than_a_worker():
    every = ("worker", "relay", "ingress", "accounts")
    invited = Guest(480, by=HEAD, roles=every)
    body = Membership(member=invited.member.key, provider="guests", roles=every, not_after=WALL_S + DAY_S, max_nodes=2)
    signed = HEAD.write(body, invited.member.id, seq=1)
    for membership in (invited.membership, signed):
        found = knock(invited, of_provider(), membership=membership)
        assert (found.refusal, found.roles) == (None, {"worker"})


def test_an_invite_no_owner_signed_is_refused():
    forged = Guest(450, by=MEMBER)
    assert knock(forged, door()).refusal == "invite_unknown"


def test_an_invite_that_is_held_need_not_be_shown():
    found = judge(hello(ADA.membership, ADA.certificate), ADA.node.key, door(ADA.invite))
    assert found.refusal is None
    assert judge(hello(ADA.membership, ADA.certificate), ADA.node.key, door()).refusal == "not_admitted"


def test_another_ones_invite_helps_nobody():
    proofs = ADA.membership, ADA.certificate, Guest(460).invite
    assert judge(hello(*proofs), ADA.node.key, door()).refusal == "not_admitted"


@pytest.mark.parametrize("target", [ADA.token.id, ADA.member.id], ids=["invite", "member"])
def test_what_an_owner_took_back_is_refused(target):
    assert knock(ADA, door(*merged(ADA), ADA.accepted(HUB), order("revoke", target))).refusal == "revoked"


def test_who_is_no_owner_takes_nothing_back():
    idle = order("revoke", ADA.token.id, by=MEMBER)
    assert knock(ADA, door(*merged(ADA), ADA.accepted(HUB), idle)).refusal is None


def test_an_evicted_node_is_refused_until_it_is_let_in_again():
    held = (*merged(ADA), ADA.accepted(HUB), order("evict", ADA.node.id))
    assert knock(ADA, door(*held)).refusal == "evicted"
    assert knock(ADA, door(*held, order("readmit", ADA.node.id, seq=2))).refusal is None


def test_renewals_are_due_a_day_after_the_last_word_and_keep_when_it_was_accepted():
    held = (*merged(ADA), ADA.accepted(OTHER_HUB, at=WALL_S - 5.0, renewed=WALL_S))
    assert not renewals([ADA.member.key], door(*held, now=WALL_S + RENEW_S))
    later = WALL_S + RENEW_S + 1.0
    ((subject, body),) = renewals([ADA.member.key], door(*held, now=later))
    assert subject == ADA.token.id
    assert (body.member, body.at, body.renewed) == (ADA.member.key, WALL_S - 5.0, later)


def test_nothing_is_renewed_by_who_may_not_accept_or_for_who_has_no_invite():
    held = (*merged(ADA), ADA.accepted(HUB))
    later = WALL_S + RENEW_S + 1.0
    assert not renewals([ADA.member.key], door(*held, me=WORKER, now=later))
    assert not renewals([MEMBER.key, WORKER.key], door(*held, now=later))
