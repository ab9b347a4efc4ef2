"""How far an act has come, and why a record does not count: pure, with registries made from numbers."""

from hypothesis import given
from hypothesis import strategies as st

from node.control.acts import Acts, why_not
from registry.charter import Chartered, succeed
from registry.kinds import Act, Charter, Outcome, read_body
from registry.lifecycle import Rank
from registry.views import Views
from tests.people import FABRIC, FOUNDING, OPERATOR, Person, node_record, registry_of

NOW = 1_800_000_000.0
FIRST, SECOND, THIRD, LEAF = Person(10), Person(11), Person(12), Person(13)
HUBS = (FIRST, SECOND, THIRD)
ASPECT = {"undrain": "drain", "readmit": "evict"}


def act(verb="drain", *, by=OPERATOR, seq=1):
    return by.write(Act(verb=verb, target=LEAF.id, at=NOW), f"{ASPECT.get(verb, verb)}/{LEAF.id}", seq=seq)


def outcome(of, by, state="done"):
    return by.write(Outcome(act=of.order.hash, state=state, at=NOW), of.key.id, seq=1)


def acts(*records, hubs=HUBS):
    registry = registry_of(
        *(node_record(hub, hub=True) for hub in hubs), node_record(LEAF), *records, nodes=(*HUBS, LEAF)
    )
    return Acts(registry, Views(registry, FABRIC).at(NOW), FIRST.id)


def state(order, *records, held=(), hubs=HUBS):
    known = acts(order, *records, hubs=hubs)
    found = known.find(order.order.hash)
    assert found is not None
    return known.progress(*found, {person.id for person in held}).state


def test_an_act_needs_two_hubs_or_the_only_one():
    assert state(act()) == "PENDING"
    assert state(act(), held=[FIRST]) == "PENDING"
    assert state(act(), held=[FIRST, LEAF]) == "PENDING"
    assert state(act(), held=[FIRST, THIRD]) == "ACCEPTED"
    assert state(act(), held=[SECOND], hubs=(SECOND,)) == "ACCEPTED"
    assert state(act(), held=[LEAF], hubs=()) == "PENDING"


def test_a_hub_that_left_is_not_waited_for():
    gone = node_record(SECOND, hub=True, rank=Rank.LEFT, seq=2)
    assert state(act(), gone, held=[FIRST], hubs=(FIRST, SECOND)) == "ACCEPTED"


def test_an_ack_is_done_when_it_is_accepted():
    assert state(act("ack")) == "PENDING"
    assert state(act("ack"), held=[FIRST, SECOND]) == "DONE"


def test_the_target_s_word_is_the_end_of_a_drain():
    order = act()
    assert state(order, outcome(order, LEAF)) == "DONE"
    assert state(order, outcome(order, LEAF, "refused")) == "REFUSED"
    assert state(order, *(outcome(order, hub) for hub in HUBS)) == "PENDING"


def test_two_hubs_end_an_evict():
    order = act("evict")
    assert state(order, outcome(order, FIRST), outcome(order, LEAF), held=HUBS) == "ACCEPTED"
    assert state(order, outcome(order, FIRST), outcome(order, SECOND)) == "DONE"


def test_a_word_under_another_subject_is_not_about_the_act():
    order = act()
    elsewhere = LEAF.write(Outcome(act=order.order.hash, state="done", at=NOW), f"restart/{LEAF.id}", seq=1)
    assert state(order, elsewhere) == "PENDING"


def test_an_act_that_another_signer_overtook_is_refused():
    from tests.people import MEMBER

    assert state(act(by=MEMBER), act("undrain", seq=2), held=HUBS) == "REFUSED"


ORDER = act()
NEWS = (ORDER, outcome(ORDER, LEAF), act("undrain", seq=2, by=Person(2)))


@given(st.permutations(NEWS))
def test_the_order_in_which_records_come_does_not_matter(records):
    assert acts(*records).rows() == acts(*NEWS).rows()


def test_every_act_has_a_row_and_one_per_subject_is_in_force():
    rows = acts(act(), act("undrain", seq=2, by=Person(2)), act("evict", by=Person(99))).rows().values()
    assert sorted((row.verb, row.in_force) for row in rows) == [("drain", False), ("evict", False), ("undrain", True)]


def reason(record, *records):
    registry = registry_of(*records, record)
    view = Views(registry, FABRIC).at(NOW)
    return why_not(record, registry.get(record.key), view, view.standing.refused)


def heir(name, *, by=OPERATOR):
    body = read_body(FOUNDING.charter)
    assert isinstance(body, Charter)
    return succeed(
        Chartered(FOUNDING.charter, body), Charter(name=name, operators=body.operators, hubs=()), by.key, by.sign
    )


def test_charters_say_why_they_are_not_followed():
    assert reason(heir("next")) == ""
    assert "successor is in force" in reason(FOUNDING.charter, heir("next"))
    assert "does not follow" in reason(heir("stolen", by=Person(99)))


def test_of_two_successors_one_counts_and_the_other_is_a_fork():
    # Two owners are needed for two successors: one key has one register for each height.
    from registry.kinds import Operator

    body = read_body(FOUNDING.charter)
    assert isinstance(body, Charter)
    owners = (*body.operators, Operator(key=LEAF.key, name="bob", verbs=("owner",)))
    both = succeed(
        Chartered(FOUNDING.charter, body), Charter(name="x", operators=owners, hubs=()), OPERATOR.key, OPERATOR.sign
    )
    grown = Chartered(both, read_body(both))
    one, two = (
        succeed(grown, Charter(name=f"y{person.number}", operators=owners, hubs=()), person.key, person.sign)
        for person in (OPERATOR, LEAF)
    )
    reasons = sorted([reason(one, both, two), reason(two, both, one)])
    assert reasons[0] == ""
    assert "another successor" in reasons[1]
