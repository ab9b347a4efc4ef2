from hypothesis import given
from hypothesis import strategies as st

from registry.chain import sift
from registry.kinds import Offer, Replica
from registry.lifecycle import Rank
from registry.views import ModelState, Views, serves, snapshot
from tests.people import (
    FABRIC,
    Person,
    act_record,
    certificate,
    doubt_record,
    membership,
    node_record,
    registry_of,
    replica_record,
)

HUB, OTHER_HUB, LEAF = Person(40), Person(41), Person(42)
ALL = (HUB, OTHER_HUB, LEAF)


def shot(*records, nodes=ALL):
    return snapshot(registry_of(*records, nodes=nodes), FABRIC, 0.0)


def why_not(*records):
    view = shot(*records)
    assert view.routable.get("m", ()) == ()
    return view.excluded["m"][0].filter


def test_a_serving_replica_of_a_serving_member_is_routable():
    view = shot(node_record(LEAF), replica_record(LEAF))
    (row,) = view.routable["m"]
    assert row.session == "host42@lab/1"
    assert view.models["m"].state is ModelState.UP


def test_each_filter_excludes_with_its_name():
    assert why_not(replica_record(LEAF)) == "registry"
    assert why_not(node_record(Person(99)), replica_record(Person(99))) == "registry"
    assert why_not(node_record(LEAF, run=2), replica_record(LEAF)) == "sessions"
    assert why_not(node_record(LEAF, rank=Rank.LEFT), replica_record(LEAF)) == "node"
    assert why_not(node_record(LEAF), replica_record(LEAF, draining=True)) == "draining"
    assert why_not(node_record(LEAF, draining=True), replica_record(LEAF)) == "draining"
    assert why_not(node_record(LEAF), replica_record(LEAF, rank=Rank.DOWN)) == "state"
    assert why_not(node_record(LEAF), replica_record(LEAF), doubt_record(HUB, LEAF), node_record(HUB)) == "suspect"


def test_a_member_without_the_worker_role_serves_nothing():
    registry = registry_of(certificate(LEAF, roles=("ingress",)), node_record(LEAF), replica_record(LEAF))
    assert snapshot(registry, FABRIC, 0.0).routable["m"] == ()


def test_models_are_up_degraded_waking_down_or_gone():
    def state(*replicas):
        row = shot(node_record(LEAF), *replicas).models.get("m")
        return row and (row.state, row.routable, row.wanted)

    serving, down = replica_record(LEAF), replica_record(LEAF, slot="e1", rank=Rank.DOWN)
    joining = replica_record(LEAF, slot="e2", rank=Rank.JOIN)
    assert state(serving) == ("UP", 1, 1)
    assert state(serving, down) == ("DEGRADED", 1, 2)
    assert state(joining, down) == ("WAKING", 0, 2)
    assert state(down) == ("DOWN", 0, 1)
    assert state(replica_record(LEAF, rank=Rank.LEFT)) is None


def leaf_of(*hubs, **order):
    return node_record(LEAF, hubs=[hub.id for hub in hubs], **order)


def is_suspect(*records, who=LEAF):
    return shot(*records).nodes[who.id].suspect


TWO_HUBS = (node_record(HUB, hub=True), node_record(OTHER_HUB, hub=True))


def test_a_leaf_is_suspect_when_every_hub_it_is_linked_to_doubts_it():
    linked = (*TWO_HUBS, leaf_of(HUB, OTHER_HUB))
    assert not is_suspect(*linked, doubt_record(HUB, LEAF))
    assert is_suspect(*linked, doubt_record(HUB, LEAF), doubt_record(OTHER_HUB, LEAF))


def test_a_hub_that_left_is_no_path():
    gone = node_record(OTHER_HUB, hub=True, rank=Rank.LEFT)
    assert is_suspect(TWO_HUBS[0], gone, leaf_of(HUB, OTHER_HUB), doubt_record(HUB, LEAF))


def test_a_crashed_hub_is_no_path_either():
    crashed = doubt_record(HUB, OTHER_HUB)
    assert is_suspect(*TWO_HUBS, leaf_of(HUB, OTHER_HUB), crashed, doubt_record(HUB, LEAF))
    assert is_suspect(*TWO_HUBS, crashed, who=OTHER_HUB)


def test_the_only_hub_is_suspect_when_a_leaf_doubts_it():
    assert is_suspect(TWO_HUBS[0], leaf_of(HUB), doubt_record(LEAF, HUB), who=HUB)


def test_doubts_are_void_when_answered_withdrawn_or_written_by_a_stranger():
    linked = (TWO_HUBS[0], leaf_of(HUB))
    assert is_suspect(*linked, doubt_record(HUB, LEAF))
    assert not is_suspect(TWO_HUBS[0], leaf_of(HUB, seq=2), doubt_record(HUB, LEAF))
    assert not is_suspect(TWO_HUBS[0], leaf_of(HUB, run=2), doubt_record(HUB, LEAF))
    assert not is_suspect(*linked, doubt_record(HUB, LEAF, seq=2, cleared=True))
    assert not is_suspect(*linked, doubt_record(Person(77), LEAF))


def test_a_doubt_about_a_record_that_is_not_written_yet_counts_for_nothing():
    linked = (TWO_HUBS[0], leaf_of(HUB))
    assert not is_suspect(*linked, doubt_record(HUB, LEAF, target_seq=2**60))


def test_a_node_that_left_is_not_suspect():
    assert not is_suspect(TWO_HUBS[0], leaf_of(HUB, rank=Rank.LEFT), doubt_record(HUB, LEAF))


@given(st.permutations([*TWO_HUBS, leaf_of(HUB), replica_record(LEAF), doubt_record(HUB, LEAF)]))
def test_the_order_of_arrival_never_changes_a_view(records):
    assert shot(*records) == shot(*reversed(records))


def test_views_are_kept_until_the_replica_changes_or_something_expires():
    registry = registry_of(certificate(LEAF, not_after=100.0), node_record(LEAF))
    views = Views(registry, FABRIC)
    first = views.at(0.0)
    assert views.at(150.0) is first
    assert LEAF.id not in views.at(300.0).nodes
    registry.apply(replica_record(LEAF))
    assert views.at(0.0).replicas


INTRUDER = Person(50)


def test_a_certificate_by_another_member_neither_takes_a_node_over_nor_down():
    theirs = certificate(HUB, by=INTRUDER, roles=("worker",), seq=99)
    view = shot(membership(INTRUDER), theirs, node_record(HUB, hub=True))
    assert view.nodes[HUB.id].is_hub
    assert view.nodes[HUB.id].roles == {"ingress", "relay"}


def test_a_node_that_names_another_member_than_its_certificate_does_not_count():
    view = shot(membership(INTRUDER), node_record(LEAF, member=INTRUDER))
    assert LEAF.id not in view.nodes


def test_a_worker_that_claims_to_be_a_hub_is_none():
    registry = registry_of(certificate(HUB, roles=("worker",)), node_record(HUB, hub=True))
    row = snapshot(registry, FABRIC, 0.0).nodes[HUB.id]
    assert not row.is_hub
    assert row.roles == set()


# --- acts and what an owner keeps for some


def test_an_act_drains_a_node_and_is_named():
    order = act_record("drain", LEAF)
    row = shot(node_record(LEAF), order).nodes[LEAF.id]
    assert (row.draining, row.drain) == (True, order)
    assert why_not(node_record(LEAF), replica_record(LEAF), order) == "draining"


def test_a_node_that_drains_by_itself_is_drained_by_no_act():
    row = shot(node_record(LEAF, draining=True), act_record("undrain", LEAF)).nodes[LEAF.id]
    assert (row.draining, row.drain) == (True, None)


def test_an_evicted_node_is_in_a_table_of_its_own_and_serves_nothing():
    view = shot(node_record(LEAF), replica_record(LEAF), act_record("evict", LEAF))
    assert LEAF.id not in view.nodes
    assert view.evicted[LEAF.id].name == "host42@lab"
    assert view.evicted[LEAF.id].roles == set()
    (out,) = view.excluded["m"]
    assert (out.filter, out.reason) == ("registry", "its node was evicted")


def test_an_evicted_hub_is_no_path():
    linked = (*TWO_HUBS, leaf_of(HUB, OTHER_HUB))
    assert is_suspect(*linked, doubt_record(HUB, LEAF), act_record("evict", OTHER_HUB))


def test_what_a_clock_ahead_saw_as_expired_counts_again_once_it_is_right():
    views = Views(registry_of(certificate(LEAF, not_after=1_000.0), node_record(LEAF)), FABRIC)
    assert LEAF.id in views.at(500.0).nodes
    assert LEAF.id not in views.at(90_000.0).nodes
    assert LEAF.id in views.at(600.0).nodes
    assert views.at(700.0) is views.at(600.0)


def kept_for(*whom, project="", user=""):
    body = Replica(node_run=1, engine="demo", models=(Offer(id="m"),), serve_to=whom)
    view = shot(node_record(LEAF), LEAF.write(body, f"{LEAF.id}/e0", run=1, rank=Rank.SERVING, seq=1))
    return [out.filter for out in sift(view.routable["m"], [serves(project, user)]).excluded]


def test_a_replica_serves_those_it_is_kept_for():
    assert kept_for() == []
    assert kept_for(project="a", user="u") == []
    assert kept_for("project:a") == ["allow"]
    assert kept_for("project:a", project="b") == ["allow"]
    assert kept_for("project:a", project="a") == []
    assert kept_for("project:a", "user:u", project="b", user="u") == []
    assert kept_for("user:a", project="a") == ["allow"]
    assert kept_for("project:", "user:") == ["allow"]  # having none is not being of one without a name


OTHER_OFFER = Replica(node_run=1, engine="x", models=(Offer(id="m", families=("chat",)),))
MANY = (
    node_record(LEAF), node_record(HUB, hub=True), replica_record(LEAF), replica_record(HUB), act_record("drain", HUB),
    LEAF.write(OTHER_OFFER, f"{LEAF.id}/e1", run=1, rank=Rank.SERVING),
)  # fmt: skip


@given(st.permutations(MANY))
def test_the_order_of_arrival_changes_no_list_and_no_description(records):
    one, other = shot(*records), shot(*MANY)
    assert one.models == other.models
    assert one.routable == other.routable
    assert one.excluded == other.excluded
