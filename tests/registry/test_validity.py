from registry.replica import Replica
from registry.validity import nothing_known, standing
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
HUB, NODE, INVITE, ANN = Person(20), Person(21), Person(30), Person(40)
CHARTER = successor(FOUNDING.charter, operator(OPERATOR, "fleet", "owner"), hubs=(HUB,))
JOINED = (invite(INVITE, days=10), membership(ANN, by=INVITE, not_after=None), acceptance(INVITE, ANN, by=HUB))


def verdict(*records, now=0.0):
    replica = Replica()
    for record in (FOUNDING.charter, CHARTER, *records):
        replica.apply(record)
    return standing(replica, FABRIC, now)


def test_before_the_charter_is_held_nothing_is_known():
    replica = Replica()
    for record in JOINED:
        replica.apply(record)
    assert standing(replica, FABRIC, 0.0) == nothing_known()


def test_a_grant_ends_with_the_first_of_its_proofs():
    assert verdict(*JOINED, certificate(NODE, by=ANN)).grants[NODE.id, ANN.key].not_after == 10 * DAY_S
    short = certificate(NODE, by=ANN, not_after=5.0)
    assert verdict(*JOINED, short).grants[NODE.id, ANN.key].not_after == 5.0


def test_looking_needs_no_membership_that_names_it():
    roles = ("worker", "observer", "placer")
    grants = verdict(membership(roles=("worker",)), certificate(NODE, roles=roles)).grants
    assert grants[NODE.id, MEMBER.key].roles == {"worker", "observer"}


def test_it_is_valid_until_the_next_end_with_leeway():
    assert verdict(*JOINED).valid_until == 10 * DAY_S + 120.0
    assert verdict(*JOINED, certificate(NODE, by=ANN, not_after=5.0)).valid_until == 125.0
    assert verdict().valid_until == float("inf")


def test_nothing_changes_before_it_says_so():
    records = (*JOINED, certificate(NODE, by=ANN, not_after=300.0), membership(not_after=600.0), certificate(HUB))
    now, view = 0.0, verdict(*records)
    while view.valid_until < float("inf"):
        late = verdict(*records, now=view.valid_until)
        assert (late.admissions, late.grants, late.refused) == (view.admissions, view.grants, view.refused)
        now = view.valid_until + 1e-3
        after = verdict(*records, now=now)
        assert after != late
        view = after
    assert view.grants == {}


def test_all_that_counts_nowhere_is_shown_in_one_order():
    records = (
        certificate(NODE, by=ANN),
        membership(ANN, by=ANN),
        act_record("drain", NODE, by=ANN),
        acceptance(INVITE, ANN, by=ANN),
        invite(INVITE, by=ANN),
    )
    view = verdict(*records)
    assert [record.key.kind for record, _ in view.refused] == [
        "acceptance",
        "act",
        "certificate",
        "invite",
        "membership",
    ]
    assert view == verdict(*reversed(records))


def test_a_member_with_too_many_nodes_keeps_those_that_run():
    small = membership(max_nodes=1)
    nodes = (certificate(NODE, seq=9), certificate(HUB, seq=1), node_record(NODE))
    assert verdict(small, *nodes).grants.keys() == {(NODE.id, MEMBER.key)}
