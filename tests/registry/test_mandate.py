import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.acts import subject, write_act
from registry.replica import Replica
from registry.validity import standing
from registry.views import snapshot
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    act_record,
    certificate,
    membership,
    node_record,
    operator,
    successor,
)

ANN, BOB = Person(40), Person(41)  # members of provider a and of provider b
NODE_A, NODE_B, STRANGER = Person(20), Person(21), Person(99)
FLEET_A, FLEET_B, KEYS = Person(50), Person(51), Person(52)
MOST = 2**64 - 1
OPERATORS = (
    operator(OPERATOR, "fleet", "keys", "owner"),
    operator(FLEET_A, "fleet", scope="provider:a"),
    operator(FLEET_B, "fleet", scope="provider:b"),
    operator(KEYS, "keys"),
)
CHARTER = successor(FOUNDING.charter, *OPERATORS)
BASE = (
    FOUNDING.charter, CHARTER, membership(ANN, provider="a"), membership(BOB, provider="b"),
    certificate(NODE_A, by=ANN), certificate(NODE_B, by=BOB),
    node_record(NODE_A, member=ANN), node_record(NODE_B, member=BOB),
)  # fmt: skip


def verdict(*records, base=BASE, now=0.0):
    replica = Replica()
    for record in (*base, *records):
        replica.apply(record)
    return standing(replica, FABRIC, now)


def counts(record, *, base=BASE, now=0.0):
    view = verdict(record, base=base, now=now)
    found = view.acts.get(record.key.id)
    is_refused = any(refused == record for refused, _ in view.refused)
    assert (found is not None) != is_refused  # what does not count is shown as refused, with a reason
    return found is not None


FLEET_ACTS = ("drain", "undrain", "restart", "evict", "readmit", "ack")


@pytest.mark.parametrize("verb", FLEET_ACTS)
def test_a_fleet_operator_acts_within_the_own_scope_only(verb):
    assert counts(act_record(verb, NODE_B, by=OPERATOR))
    assert counts(act_record(verb, NODE_B, by=FLEET_B))
    assert not counts(act_record(verb, NODE_B, by=FLEET_A))
    assert not counts(act_record(verb, NODE_B, by=KEYS))


@pytest.mark.parametrize("verb", FLEET_ACTS)
def test_a_member_acts_on_the_own_nodes_and_never_evicts(verb):
    assert counts(act_record(verb, NODE_A, by=ANN)) == (verb not in {"evict", "readmit"})
    assert not counts(act_record(verb, NODE_B, by=ANN))
    assert not counts(act_record(verb, NODE_A, by=STRANGER))
    assert not counts(act_record(verb, NODE_A, by=NODE_A))


def test_a_refused_act_says_why():
    acts = (
        act_record("evict", NODE_A, by=ANN),
        act_record("drain", NODE_B, by=FLEET_A),
        act_record("drain", NODE_B, by=ANN),
    )
    reasons = {why for record, why in verdict(*acts).refused if record.key.kind == "act"}
    assert reasons == {
        "a member may not evict",
        "its signer may not drain here",
        "its signer is no operator, and the node is not theirs",
    }


def test_a_node_nobody_knows_is_for_the_whole_fabrics_operators():
    assert counts(act_record("evict", STRANGER, by=OPERATOR))
    assert not counts(act_record("evict", STRANGER, by=FLEET_A))


def test_certifying_a_node_of_another_provider_gives_its_operator_nothing():
    grab = certificate(NODE_B, by=ANN)
    view = verdict(grab, act_record("evict", NODE_B, by=FLEET_A), act_record("drain", NODE_B, by=ANN))
    assert not view.acts
    assert (NODE_B.id, BOB.key) in view.grants
    unnamed = tuple(record for record in BASE if record.key.kind != "node")
    assert not verdict(grab, act_record("evict", NODE_B, by=FLEET_A), base=unnamed).evicted


def test_an_evicted_node_has_no_grant_and_is_listed():
    order = act_record("evict", NODE_A, by=FLEET_A)
    view = verdict(order)
    assert view.evicted == {NODE_A.id: order}
    assert view.grants.keys() == {(NODE_B.id, BOB.key)}


def test_a_readmitted_node_is_back():
    orders = (act_record("evict", NODE_A, by=FLEET_A), act_record("readmit", NODE_A, by=OPERATOR, seq=2))
    assert verdict(*orders).grants.keys() == verdict().grants.keys()
    assert verdict(*orders).evicted == {}


def test_a_node_stays_evicted_when_its_certificate_ends():
    short = (*BASE[:4], certificate(NODE_A, by=ANN, not_after=10.0), node_record(NODE_A, member=ANN))
    assert counts(act_record("evict", NODE_A, by=FLEET_A), base=short, now=1_000.0)


def test_an_operator_that_was_removed_has_ordered_nothing():
    without = successor(CHARTER, operator(OPERATOR, "fleet", "owner"))
    assert verdict(act_record("evict", NODE_A, by=FLEET_A), without).evicted == {}


def test_a_stranger_with_the_greatest_number_stops_nobody():
    orders = (act_record("drain", NODE_A, by=FLEET_A), act_record("undrain", NODE_A, by=STRANGER, seq=2**64 - 1))
    assert verdict(*orders).acts[f"drain/{NODE_A.id}"].record == orders[0]


def test_of_acts_with_one_number_the_greater_authority_stands():
    for strict, lax in (("drain", "undrain"), ("evict", "readmit")):
        for one, other in ((strict, lax), (lax, strict)):
            view = verdict(act_record(one, NODE_A, by=OPERATOR), act_record(other, NODE_A, by=FLEET_A))
            assert view.acts[subject(strict, NODE_A.id)].act.verb == one


def test_of_equals_acts_with_one_number_the_restrictive_one_stands():
    second = successor(CHARTER, *OPERATORS, operator(STRANGER, "fleet"))
    for strict, lax in (("drain", "undrain"), ("evict", "readmit")):
        view = verdict(second, act_record(strict, NODE_A, by=OPERATOR), act_record(lax, NODE_A, by=STRANGER))
        assert view.acts[subject(strict, NODE_A.id)].act.verb == strict


@pytest.mark.parametrize(("taken", "given"), [("undrain", "drain"), ("drain", "undrain"), ("restart", "restart")])
def test_a_member_cannot_number_an_act_so_high_that_operators_have_none_left(taken, given):
    for operator_ in (OPERATOR, FLEET_A):
        theirs = act_record(taken, NODE_A, by=ANN, seq=MOST)
        order = write_act(held(theirs), given, NODE_A.id, owner=operator_.key, sign=operator_.sign, at=1.0)
        assert verdict(theirs, order).acts[subject(given, NODE_A.id)].record == order


def test_a_providers_operator_cannot_number_an_act_above_the_whole_fabrics():
    theirs = act_record("evict", NODE_A, by=FLEET_A, seq=MOST)
    order = write_act(held(theirs), "readmit", NODE_A.id, owner=OPERATOR.key, sign=OPERATOR.sign, at=1.0)
    assert verdict(theirs, order).evicted == {}


def test_an_operator_of_another_provider_is_but_a_member_on_the_own_node():
    also = successor(CHARTER, *OPERATORS, operator(ANN, "fleet", scope="provider:b"))
    theirs = act_record("drain", NODE_A, by=ANN, seq=MOST)
    order = act_record("undrain", NODE_A, by=FLEET_A, seq=MOST)
    assert verdict(also, theirs, order).acts[subject("drain", NODE_A.id)].record == order


def held(*records):
    replica = Replica()
    for record in records:
        replica.apply(record)
    return replica


SIGNERS = st.sampled_from([OPERATOR, FLEET_A, FLEET_B, ANN, STRANGER])
ORDERS = st.builds(
    lambda verb, by, seq, at: act_record(verb, NODE_A, by=by, seq=seq, at=float(at)),
    st.sampled_from(FLEET_ACTS), SIGNERS, st.integers(1, 4) | st.just(MOST), st.integers(0, 3),
)  # fmt: skip


@given(st.lists(ORDERS, max_size=8), st.randoms(use_true_random=False))
def test_which_act_stands_does_not_depend_on_the_order_they_come_in(orders, rng):
    shuffled = list(orders)
    rng.shuffle(shuffled)
    assert verdict(*orders) == verdict(*shuffled)


@given(st.lists(ORDERS, max_size=8))
def test_the_act_that_stands_is_the_greatest_of_those_that_count(orders):
    view = verdict(*orders)
    in_scope = {OPERATOR.key, FLEET_A.key}
    for name, (record, _) in view.acts.items():
        signers = in_scope if name.startswith("evict/") else in_scope | {ANN.key}
        rivals = [each for each in orders if each.key.id == name and each.key.owner in signers]
        assert record.order.seq == max(each.order.seq for each in rivals)


def test_a_drain_for_one_run_is_over_with_the_next():
    def is_draining(run, *, meant):
        replica = Replica()
        for record in (*BASE, node_record(NODE_A, member=ANN, run=run), act_record("drain", NODE_A, run=meant)):
            replica.apply(record)
        return snapshot(replica, FABRIC, 0.0).nodes[NODE_A.id].draining

    assert is_draining(2, meant=2)
    assert not is_draining(3, meant=2)
    assert is_draining(3, meant=0)
