import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.replica import Replica
from registry.validity import standing
from tests.people import (
    FABRIC,
    FOUNDING,
    MEMBER,
    OPERATOR,
    Person,
    acceptance,
    act_record,
    certificate,
    invite,
    membership,
    node_record,
    operator,
    successor,
)

DAY_S = 86_400.0
HUB, NODE, LATER = Person(20), Person(21), Person(22)  # the charter's hub, a member's node, and another one
INVITE, OTHER = Person(30), Person(31)  # keys of invites
ANN, BOB = Person(40), Person(41)
ALL_VERBS = ("fleet", "keys", "placement", "owner")
CHARTER = successor(FOUNDING.charter, operator(OPERATOR, *ALL_VERBS), hubs=(HUB,))
JOINED = membership(ANN, by=INVITE, not_after=None)
BASE = (FOUNDING.charter, CHARTER, invite(INVITE), JOINED)


def verdict(*records, now=0.0):
    replica = Replica()
    for record in records:
        replica.apply(record)
    return standing(replica, FABRIC, now)


def why(view, record):
    return [reason for refused, reason in view.refused if refused == record]


def test_an_invite_the_charters_hub_accepted_makes_a_member():
    view = verdict(*BASE, acceptance(INVITE, ANN, by=HUB), certificate(NODE, by=ANN))
    admission = view.admissions[ANN.key]
    assert (admission.provider, admission.invite, admission.by) == ("lab", INVITE.id, OPERATOR.key)
    assert view.grants[NODE.id, ANN.key].roles == {"worker", "ingress", "relay"}
    assert view.refused == ()


def test_nobody_is_a_member_before_a_hub_accepted():
    view = verdict(*BASE, certificate(NODE, by=ANN))
    assert view.admissions == {}
    assert why(view, JOINED) == ["no hub has accepted it yet"]


def test_the_word_of_a_node_that_is_no_hub_is_refused():
    worker = (membership(roles=("worker",)), certificate(LATER))
    words = [acceptance(INVITE, ANN, by=each) for each in (LATER, NODE, ANN, MEMBER)]
    view = verdict(*BASE, *worker, *words)
    assert ANN.key not in view.admissions
    assert [why(view, word) for word in words] == [["its signer may not accept members"]] * 4


def test_a_backdated_word_of_no_accepter_does_not_win():
    thief = membership(BOB, by=INVITE, not_after=None)
    view = verdict(*BASE, thief, acceptance(INVITE, ANN, by=HUB, at=9.0), acceptance(INVITE, BOB, by=BOB, at=0.0))
    assert set(view.admissions) == {ANN.key}
    assert why(view, thief) == ["its invite was accepted by another key"]


def test_an_accepted_hub_accepts_others():
    words = (acceptance(INVITE, ANN, by=HUB), acceptance(OTHER, BOB, by=NODE))
    also = (invite(OTHER), membership(BOB, by=OTHER, not_after=None), certificate(NODE, by=ANN))
    view = verdict(*BASE, *words, *also)
    assert set(view.admissions) == {ANN.key, BOB.key}
    assert view.accepters == {HUB.key, NODE.key}


def test_two_hubs_that_accepted_each_other_count_for_nothing():
    also = (invite(OTHER), membership(BOB, by=OTHER, not_after=None))
    nodes = (certificate(NODE, by=ANN), certificate(LATER, by=BOB))
    view = verdict(*BASE, *also, *nodes, acceptance(INVITE, ANN, by=LATER), acceptance(OTHER, BOB, by=NODE))
    assert view.admissions == {}
    assert view.accepters == {HUB.key}


def test_the_charters_hubs_are_heard_before_all_others():
    hub = (membership(), certificate(NODE))
    thief = membership(BOB, by=INVITE, not_after=None)
    words = (acceptance(INVITE, ANN, by=HUB, at=50.0), acceptance(INVITE, BOB, by=NODE, at=1.0))
    view = verdict(*BASE, *hub, thief, *words)
    assert set(view.admissions) == {MEMBER.key, ANN.key}
    assert NODE.key in view.accepters


def test_a_members_hub_cannot_take_over_an_invite_the_charters_hub_gave():
    later = (invite(OTHER), membership(MEMBER, by=OTHER, not_after=None), membership(BOB, by=INVITE, not_after=None))
    view = verdict(
        *BASE, *later, certificate(NODE),
        acceptance(OTHER, MEMBER, by=HUB), acceptance(INVITE, ANN, by=HUB, at=50.0),
        acceptance(INVITE, BOB, by=NODE, at=1.0),
    )  # fmt: skip
    assert NODE.key in view.accepters
    assert ANN.key in view.admissions
    assert BOB.key not in view.admissions


def test_of_two_members_for_one_invite_the_earlier_word_counts():
    both = (membership(BOB, by=INVITE, not_after=None), acceptance(INVITE, BOB, by=HUB, at=5.0))
    hub = (membership(), certificate(NODE), certificate(LATER))
    view = verdict(
        *BASE, *hub, both[0], acceptance(INVITE, BOB, by=NODE, at=5.0), acceptance(INVITE, ANN, by=LATER, at=6.0)
    )
    assert BOB.key in view.admissions
    assert ANN.key not in view.admissions


def test_a_word_after_the_invites_time_does_not_count():
    late = acceptance(INVITE, ANN, by=HUB, at=1_000.0)
    view = verdict(*BASE[:2], invite(INVITE, accept_by=500.0), JOINED, late)
    assert view.admissions == {}
    assert why(view, late) == ["it came after its invite's time"]


def test_a_membership_lasts_for_the_days_of_its_invite_after_it_was_last_renewed():
    base = (*BASE[:2], invite(INVITE, days=10), JOINED)
    hub = (membership(), certificate(NODE))
    assert verdict(*base, acceptance(INVITE, ANN, by=HUB)).admissions[ANN.key].not_after == 10 * DAY_S
    renewed = [acceptance(INVITE, ANN, by=by, renewed=days * DAY_S) for by, days in ((NODE, 4), (LATER, 3))]
    view = verdict(*base, *hub, certificate(LATER), acceptance(INVITE, ANN, by=HUB), *renewed)
    assert view.admissions[ANN.key].not_after == 14 * DAY_S


def test_a_membership_nobody_renewed_ends():
    view = verdict(*BASE, acceptance(INVITE, ANN, by=HUB), now=91 * DAY_S)
    assert view.admissions == {}
    assert why(view, JOINED) == ["membership expired"]


def test_an_expired_invite_is_still_used_up():
    second = (membership(BOB, by=INVITE, not_after=None), certificate(NODE, by=MEMBER), membership())
    words = (acceptance(INVITE, ANN, by=HUB), acceptance(INVITE, BOB, by=NODE, at=1.0, renewed=80 * DAY_S))
    assert BOB.key not in verdict(*BASE, *second, *words, now=91 * DAY_S).admissions


def test_a_hub_cannot_keep_itself_in_by_its_own_word():
    own = acceptance(INVITE, ANN, by=NODE, renewed=80 * DAY_S)
    records = (*BASE, certificate(NODE, by=ANN), acceptance(INVITE, ANN, by=HUB), own)
    while_accepted = verdict(*records, now=1.0)
    assert ANN.key in while_accepted.admissions
    assert ANN.key not in verdict(*records, now=91 * DAY_S).admissions
    assert while_accepted.valid_until < 91 * DAY_S  # so that it is looked at again in time


# --- hubs that are none any more


def test_a_hub_the_charter_dropped_does_not_take_its_members_with_it():
    moved = successor(CHARTER, operator(OPERATOR, *ALL_VERBS), hubs=(NODE,))
    view = verdict(*BASE, moved, acceptance(INVITE, ANN, by=HUB), certificate(NODE, by=ANN))
    assert ANN.key in view.admissions
    assert view.accepters == {NODE.key}


def test_a_former_hub_is_heard_only_where_nobody_else_spoke():
    moved = successor(CHARTER, operator(OPERATOR, *ALL_VERBS), hubs=(NODE,))
    thief = membership(BOB, by=INVITE, not_after=None)
    words = (acceptance(INVITE, BOB, by=HUB, at=1.0), acceptance(INVITE, ANN, by=NODE, at=50.0))
    assert set(verdict(*BASE, moved, thief, *words).admissions) == {ANN.key}


def test_an_evicted_hub_admits_nobody_any_more_but_those_it_let_in_stay():
    hub = (membership(), certificate(NODE))
    others = (invite(OTHER), membership(BOB, by=OTHER, not_after=None))
    before, after = acceptance(INVITE, ANN, by=NODE, at=10.0), acceptance(OTHER, BOB, by=NODE, at=30.0)
    view = verdict(*BASE, *hub, *others, before, after, act_record("evict", NODE, at=20.0))
    assert ANN.key in view.admissions
    assert BOB.key not in view.admissions
    assert NODE.key not in view.accepters
    assert why(view, after) == ["its signer was no hub any more"]


def test_an_evicted_hub_of_the_charter_accepts_nobody_any_more():
    view = verdict(*BASE, acceptance(INVITE, ANN, by=HUB, at=30.0), act_record("evict", HUB, at=20.0))
    assert view.admissions == {}
    assert view.accepters == frozenset()
    before = verdict(*BASE, acceptance(INVITE, ANN, by=HUB, at=10.0), act_record("evict", HUB, at=20.0))
    assert before.admissions.keys() == {ANN.key}


# A hub NODE of BOB's, whom the charter's hub let in, and ANN, whom NODE let in at 10 s.
OF_BOB = (invite(OTHER), membership(BOB, by=OTHER, not_after=None), acceptance(OTHER, BOB, by=HUB))
BY_NODE = (*BASE, *OF_BOB, acceptance(INVITE, ANN, by=NODE, at=10.0))
NO_HUB_ANY_MORE = [
    (certificate(NODE, by=BOB, not_after=20.0),),  # shut down: nobody renews what its node was certified by
    (certificate(NODE, by=BOB, roles=("worker",), not_after=20.0),),
    (certificate(NODE, by=BOB), act_record("revoke", BOB, at=20.0)),
    (certificate(NODE, by=BOB), act_record("revoke", OTHER, at=20.0)),
    (certificate(NODE, by=BOB), act_record("evict", NODE, at=20.0)),
]


@pytest.mark.parametrize("gone", NO_HUB_ANY_MORE, ids=["shut down", "narrowed", "revoked", "invite revoked", "evicted"])
def test_a_hub_that_is_none_any_more_takes_nobody_with_it_whom_it_let_in(gone):
    assert verdict(*BY_NODE, certificate(NODE, by=BOB)).accepters == {HUB.key, NODE.key}
    view = verdict(*BY_NODE, *gone, now=1_000.0)
    assert ANN.key in view.admissions
    assert view.accepters == {HUB.key}
    assert NODE.key in view.former


@pytest.mark.parametrize("gone", NO_HUB_ANY_MORE, ids=["shut down", "narrowed", "revoked", "invite revoked", "evicted"])
def test_what_a_hub_says_once_it_is_none_counts_for_nothing(gone):
    late = acceptance(INVITE, ANN, by=NODE, at=500.0)
    view = verdict(*BASE, *OF_BOB, late, *gone, now=1_000.0)
    assert ANN.key not in view.admissions
    assert why(view, late) == ["its signer was no hub any more"]


@pytest.mark.parametrize("gone", NO_HUB_ANY_MORE, ids=["shut down", "narrowed", "revoked", "invite revoked", "evicted"])
def test_what_a_hub_said_that_is_none_any_more_takes_nothing_from_anybody(gone):
    thief = membership(Person(42), by=INVITE, not_after=None)
    words = (acceptance(INVITE, ANN, by=HUB, at=50.0), acceptance(INVITE, Person(42), by=NODE, at=1.0))
    view = verdict(*BASE, *OF_BOB, thief, *words, *gone, now=1_000.0)
    assert ANN.key in view.admissions
    assert Person(42).key not in view.admissions


def test_a_hub_whose_owner_nobody_accepted_was_never_one():
    view = verdict(*BASE, *OF_BOB[:2], certificate(NODE, by=BOB, not_after=20.0),
                   acceptance(INVITE, ANN, by=NODE, at=10.0), act_record("revoke", BOB, at=20.0))  # fmt: skip
    assert view.admissions == {}
    assert view.former.keys() == set()


def test_a_providers_owner_does_not_say_since_when_a_hubs_word_counts_no_more():
    head = Person(50)
    charter = successor(
        FOUNDING.charter, operator(OPERATOR, *ALL_VERBS), operator(head, "owner", scope="provider:lab"), hubs=(HUB,)
    )
    acts = (act_record("revoke", BOB, at=20.0), act_record("revoke", BOB, by=head, at=0.0))
    held = (FOUNDING.charter, charter, *BY_NODE[2:], certificate(NODE, by=BOB))
    assert ANN.key in verdict(*held, *acts).admissions


def test_a_word_for_a_key_without_a_membership_uses_no_invite_up():
    hubs = (membership(), certificate(NODE), certificate(LATER))
    junk = acceptance(INVITE, Person(42), by=LATER, at=0.0)  # it needs to know nothing but the invite's name
    view = verdict(*BASE, *hubs, acceptance(INVITE, ANN, by=NODE, at=10.0), junk)
    assert ANN.key in view.admissions


def test_a_hub_of_the_charter_that_one_provider_evicted_is_still_heard():
    fleet = Person(50)
    entries = (operator(OPERATOR, *ALL_VERBS), operator(fleet, "fleet", scope="provider:lab"))
    charter = successor(FOUNDING.charter, *entries, hubs=(HUB,))
    word = acceptance(INVITE, ANN, by=HUB, at=30.0)
    as_a_node = (membership(), certificate(HUB), act_record("evict", HUB, by=fleet, at=20.0))
    view = verdict(FOUNDING.charter, charter, invite(INVITE), JOINED, word, *as_a_node)
    assert ANN.key in view.admissions
    assert why(view, word) == []


# --- one key, several memberships


def test_an_owners_word_goes_before_an_invite():
    direct = membership(ANN, roles=("worker",), not_after=1_000.0)
    view = verdict(*BASE, acceptance(INVITE, ANN, by=HUB), direct)
    assert view.admissions[ANN.key].roles == {"worker"}


def test_one_providers_owner_takes_over_nobody_of_anothers():
    greedy = Person(50)
    charter = successor(
        FOUNDING.charter, operator(OPERATOR, *ALL_VERBS), operator(greedy, "owner", scope="provider:b"), hubs=(HUB,)
    )
    grab = membership(ANN, by=greedy, provider="b", roles=())
    base = (FOUNDING.charter, charter, invite(INVITE), JOINED, acceptance(INVITE, ANN, by=HUB))
    assert verdict(*base, grab).admissions[ANN.key].provider == "lab"
    assert verdict(FOUNDING.charter, charter, grab).admissions[ANN.key].provider == "b"


def test_of_two_owners_words_the_longer_one_counts():
    second = Person(50)
    charter = successor(FOUNDING.charter, operator(OPERATOR, *ALL_VERBS), operator(second, "owner"))
    short, long = membership(ANN, not_after=10.0), membership(ANN, by=second, not_after=20.0)
    assert verdict(FOUNDING.charter, charter, short, long).admissions[ANN.key].not_after == 20.0


# --- whatever the order

EVERYTHING = (
    *BASE, membership(BOB, by=INVITE, not_after=None), membership(), certificate(NODE), certificate(LATER, by=ANN),
    acceptance(INVITE, ANN, by=HUB, at=5.0), acceptance(INVITE, BOB, by=NODE, at=1.0),
    invite(OTHER, max_nodes=1), membership(BOB, by=OTHER, not_after=None, max_nodes=1),
    acceptance(OTHER, BOB, by=LATER, at=3.0), certificate(Person(60), by=BOB), certificate(Person(61), by=BOB, seq=2),
    act_record("evict", NODE, at=2.0), act_record("revoke", ANN, by=MEMBER), node_record(LATER, member=ANN),
    acceptance(OTHER, ANN, by=LATER, at=3.0), membership(ANN, by=OTHER, not_after=None, max_nodes=1),
    certificate(Person(62), not_after=2.0), acceptance(INVITE, BOB, by=Person(62), at=0.5),
    act_record("revoke", BOB, at=4.0), acceptance(INVITE, Person(42), by=Person(60), at=0.1),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.permutations(EVERYTHING), st.integers(4, len(EVERYTHING)))
def test_no_order_of_arrival_changes_who_counts(records, many):
    some = records[:many]
    forward, backward = verdict(*some, now=10.0), verdict(*reversed(some), now=10.0)
    assert forward == backward


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_accepted_invite_stays_with_one_member(data):
    """Whoever spoke, and whatever of it is known: never two members by one invite."""
    hubs = (HUB, NODE, LATER)
    people = [Person(70 + number) for number in range(3)]
    claims = [membership(person, by=INVITE, not_after=None) for person in people]
    words = [
        acceptance(INVITE, data.draw(st.sampled_from(people)), by=hub, at=float(data.draw(st.integers(0, 3))))
        for hub in hubs
    ]
    others = (membership(), certificate(NODE), certificate(LATER), *claims, *words)
    held = data.draw(st.lists(st.sampled_from(others), unique=True))
    view = verdict(FOUNDING.charter, CHARTER, invite(INVITE), *held)
    assert sum(admission.invite == INVITE.id for admission in view.admissions.values()) <= 1


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 100), st.integers(0, 100))
def test_a_renewal_never_changes_whose_invite_it_is(first, renewed):
    base = (*BASE, membership(BOB, by=INVITE, not_after=None), membership(), certificate(NODE), certificate(LATER))
    words = (acceptance(INVITE, ANN, by=NODE, at=float(first)), acceptance(INVITE, BOB, by=LATER, at=50.0))
    again = acceptance(INVITE, ANN, by=NODE, at=float(first), renewed=float(first + renewed), seq=2)
    if first != 50:
        assert verdict(*base, *words).admissions.keys() == verdict(*base, *words, again).admissions.keys()
