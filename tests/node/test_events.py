"""What happened, read from two states of the registry."""

import pytest

from node.events import Event, outcomes, transitions
from registry.acts import write_act
from registry.charter import succeed
from registry.kinds import Cause, Charter, Node, Offer, Operator, Outcome, Replica
from registry.lifecycle import Rank
from registry.views import snapshot
from tests.people import (
    FABRIC,
    MEMBER,
    OPERATOR,
    Person,
    certificate,
    doubt_record,
    node_record,
    registry_of,
    replica_record,
)

HUB, WORKER, STRANGER = Person(40), Person(41), Person(42)
NOW = 1000.0


@pytest.fixture
def registry():
    return registry_of(node_record(HUB, hub=True), node_record(WORKER), nodes=(HUB, WORKER))


def view(registry):
    return snapshot(registry, FABRIC, NOW)


def happened(registry, *records):
    """The events that come of records."""
    before = view(registry)
    for record in records:
        registry.apply(record)
    return transitions(before, view(registry), NOW)


def kinds(events):
    return [each.kind for each in events]


def only(events):
    (event,) = events
    return event


def act(registry, verb, target=WORKER, *, by=OPERATOR, reason="", run=0):
    return write_act(registry, verb, target.id, owner=by.key, sign=by.sign, at=NOW, run=run, reason=reason)


def down(cause, seq=2):
    body = Replica(node_run=1, engine="demo", models=(Offer(id="m"),), cause=cause)
    return WORKER.write(body, f"{WORKER.id}/e0", run=1, rank=Rank.DOWN, seq=seq)


# --- nodes


def test_with_nothing_before_nothing_happened(registry):
    assert transitions(None, view(registry), NOW) == []


def test_the_same_state_is_no_event(registry):
    assert transitions(view(registry), view(registry), NOW) == []


def test_a_new_node_joined_and_says_what_it_is(registry):
    registry.apply(certificate(STRANGER))
    joined, serving = happened(registry, node_record(STRANGER))
    assert (joined.kind, joined.subject, joined.at) == ("node.joined", "host42@lab", NOW)
    assert joined.cause == {"node": STRANGER.id, "run": 1}
    assert "worker" in joined.text
    assert serving.kind == "node.serving"


def test_a_node_without_entitlement_is_nobodys_news(registry):
    assert happened(registry, node_record(STRANGER), replica_record(STRANGER)) == []


def test_a_new_run_joined_and_says_how_the_last_one_ended(registry):
    body = Node(host="host41", member=MEMBER.key, roles=("worker",), prev="lost")
    joined = only(happened(registry, WORKER.write(body, WORKER.id, run=2, rank=Rank.JOIN)))
    assert (joined.kind, joined.cause["run"]) == ("node.joined", 2)
    assert "its last run lost" in joined.text


def test_a_node_that_goes_left_once(registry):
    assert kinds(happened(registry, node_record(WORKER, rank=Rank.LEFT))) == ["node.left"]
    assert happened(registry, node_record(WORKER, rank=Rank.LEFT, seq=9)) == []


def test_a_node_first_heard_of_after_its_end_is_no_news(registry):
    registry.apply(certificate(STRANGER))
    assert happened(registry, node_record(STRANGER, rank=Rank.LEFT)) == []


def test_a_node_that_drains_and_takes_it_back(registry):
    assert kinds(happened(registry, node_record(WORKER, draining=True, seq=2))) == ["node.draining"]
    assert kinds(happened(registry, node_record(WORKER, seq=3))) == ["node.undrained"]


def test_a_node_nobody_reaches_is_suspect_until_it_is_heard_again(registry):
    doubts = [doubt_record(HUB, WORKER), doubt_record(HUB, WORKER, cleared=True, seq=2)]
    assert kinds(happened(registry, doubts[0])) == ["node.suspect"]
    assert kinds(happened(registry, doubts[1])) == ["node.cleared"]


def test_an_evicted_node_names_who_and_why_and_may_come_back(registry):
    events = happened(registry, act(registry, "evict", reason="it lies"))
    assert kinds(events) == ["act.accepted", "node.evicted"]
    assert events[1].text == "evicted by ada: it lies"
    assert events[1].subject == "host41@lab"
    assert kinds(happened(registry, act(registry, "readmit"))) == ["act.accepted", "node.readmitted"]


def test_a_node_whose_membership_ended_is_expelled():
    registry = registry_of(node_record(WORKER))
    registry.apply(certificate(WORKER, not_after=NOW))
    before, after = view(registry), snapshot(registry, FABRIC, NOW + 1000)
    assert kinds(transitions(before, after, NOW)) == ["node.expelled"]


# --- replicas and models


def test_a_replica_starts_serves_fails_and_leaves(registry):
    steps = [
        (Rank.JOIN, ["replica.join", "model.waking"]),
        (Rank.SERVING, ["replica.serving", "model.up"]),
        (Rank.DOWN, ["replica.down", "model.down"]),
        (Rank.LEFT, ["replica.left", "model.gone"]),
    ]
    for rank, expected in steps:
        assert kinds(happened(registry, replica_record(WORKER, rank=rank))) == expected


def test_why_a_replica_is_down_is_in_the_event(registry):
    registry.apply(replica_record(WORKER))
    event = happened(registry, down(Cause(reason="out-of-memory", exit_code=1)))[0]
    assert event.text == "e0 DOWN: out-of-memory, exit code 1"
    assert event.cause == {"node": WORKER.id, "run": 1, "reason": "out-of-memory", "exit_code": 1}
    assert event.subject == "host41@lab/1"


def test_a_signal_is_told_too(registry):
    event = happened(registry, down(Cause(reason="killed", signal=9)))[0]
    assert event.text == "e0 DOWN: killed, signal 9"


def test_a_second_replica_that_fails_degrades_its_model(registry):
    registry.apply(replica_record(WORKER))
    registry.apply(replica_record(HUB))
    events = happened(registry, down(Cause(reason="exited")))
    assert [(each.kind, each.text) for each in events][1] == ("model.degraded", "DEGRADED, 1/2")


def test_a_new_run_of_an_engine_is_news(registry):
    registry.apply(replica_record(WORKER))
    assert "replica.serving" in kinds(happened(registry, replica_record(WORKER, run=2)))


# --- acts and charters


def test_an_act_that_counts_is_accepted_with_signer_and_reason(registry):
    event = happened(registry, act(registry, "drain", reason="new\nkernel\x1b[31m"))[0]
    assert (event.kind, event.subject) == ("act.accepted", "host41@lab")
    assert event.cause["target"] == WORKER.id
    assert event.text.startswith("drain by ada: new")
    assert event.text.isprintable()


def test_an_act_of_a_member_names_the_provider_for_the_key_means_nothing_to_people(registry):
    event = happened(registry, act(registry, "drain", by=MEMBER))[0]
    assert event.text == "drain by a member of lab"


def test_an_act_about_nobody_known_keeps_the_id(registry):
    event = happened(registry, act(registry, "evict", STRANGER))[0]
    assert (event.kind, event.subject) == ("act.accepted", STRANGER.id)


def test_a_drained_node_is_draining(registry):
    assert kinds(happened(registry, act(registry, "drain"))) == ["act.accepted", "node.draining"]


def test_an_act_out_of_scope_is_refused_once_and_says_why(registry):
    event = only(happened(registry, act(registry, "evict", by=MEMBER)))  # a member may not, even the own node
    assert event.kind == "act.refused"
    assert "a member of lab" in event.text
    assert happened(registry, node_record(HUB, hub=True, seq=5)) == []


def test_what_a_stranger_orders_is_no_event(registry):
    assert happened(registry, act(registry, "evict", by=STRANGER)) == []


def answer(by, order, state="done", reason="3 requests ended"):
    body = Outcome(act=order.order.hash, state=state, reason=reason, at=NOW)
    return by.write(body, order.key.id, seq=1)


def test_what_a_node_says_came_of_its_act_is_told(registry):
    order = act(registry, "drain")
    registry.apply(order)
    assert only(outcomes([answer(WORKER, order)], view(registry), NOW)) == Event(
        at=NOW,
        kind="act.done",
        subject="host41@lab",
        text="drain done: 3 requests ended",
        cause={"verb": "drain", "target": WORKER.id, "by": WORKER.id},
    )
    declined = only(outcomes([answer(WORKER, order, "refused", "no engine\x00")], view(registry), NOW))
    assert declined.kind == "act.declined"
    assert declined.text.isprintable()


def test_nobody_else_can_say_what_came_of_a_nodes_act(registry):
    order = act(registry, "drain")
    registry.apply(order)
    assert outcomes([answer(HUB, order), answer(STRANGER, order)], view(registry), NOW) == []


def test_hubs_say_that_they_turned_somebody_away(registry):
    order = act(registry, "evict")
    registry.apply(order)
    event = only(outcomes([answer(HUB, order), answer(WORKER, order)], view(registry), NOW))
    assert (event.kind, event.subject) == ("act.done", "host41@lab")
    assert event.text.startswith("evict done by host40@lab")


def test_an_outcome_of_an_act_that_does_not_count_is_nothing(registry):
    order = act(registry, "drain", by=STRANGER)
    registry.apply(order)
    assert outcomes([answer(WORKER, order), node_record(WORKER)], view(registry), NOW) == []


def heir(registry, *operators, by=OPERATOR):
    current = view(registry).standing.in_force.current
    return succeed(current, Charter(name="testfabric", operators=operators, hubs=()), by.key, by.sign)


ADA = Operator(key=OPERATOR.key, name="ada", verbs=("owner", "fleet"))


def test_a_charter_that_follows_tells_whose_rights_changed(registry):
    bob = Operator(key=STRANGER.key, name="bob", verbs=("fleet",), scope="provider:lab")
    events = happened(registry, heir(registry, ADA, bob))
    assert [(each.kind, each.subject, each.text) for each in events] == [
        ("charter.changed", "testfabric", "charter 1 is in force"),
        ("operator.changed", "ada", "may now owner, fleet on fabric"),
        ("operator.added", "bob", "may fleet on provider:lab"),
    ]
    assert kinds(happened(registry, heir(registry, ADA))) == ["charter.changed", "operator.removed"]


def test_two_charters_that_follow_one_are_a_fork(registry):
    bob = Operator(key=STRANGER.key, name="bob", verbs=("owner",))
    registry.apply(heir(registry, ADA, bob))
    rivals = [heir(registry, ADA, bob), heir(registry, bob, by=STRANGER)]
    followed, other = sorted(rivals, key=lambda record: record.order.hash)
    registry.apply(followed)
    event = only(happened(registry, other))
    assert event.kind == "charter.fork"
    assert event.cause == {"by": OPERATOR.id if other is rivals[0] else STRANGER.id}
    assert "two charters follow charter 1" in event.text
