"""Which models a key may know of and call: the list and the call must agree, whatever is served to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.keys import KeyEntry
from node.ingress.reach import allowed, callable_now, may_know, may_name
from registry.kinds import Offer, Replica
from registry.lifecycle import Rank
from registry.views import snapshot
from tests.people import FABRIC, Person, node_record, registry_of

WORKER = Person(3)
MODELS = ("a", "b", "c")
EVERYBODY = ()


def key(*, models=None, user="", project=""):
    return KeyEntry(id="k_1", digest=b"", label="", expires_at=None, models=models, user=user, project=project)


def view_of(*replicas):
    """A snapshot of one node; each replica is (models, serve_to, rank)."""
    records = [node_record(WORKER)]
    for at, (models, serve_to, rank) in enumerate(replicas):
        body = Replica(node_run=1, engine="demo", models=tuple(Offer(id=name) for name in models), serve_to=serve_to)
        records.append(WORKER.write(body, f"{WORKER.id}/e{at}", run=1, rank=rank, seq=1))
    return snapshot(registry_of(*records, nodes=(WORKER,)), FABRIC, 0.0)


def listed(view, entry):
    return [row.id for row in callable_now(view, entry)]


def test_a_key_for_every_model_reaches_what_is_served_to_everybody():
    view = view_of((("a", "b"), EVERYBODY, Rank.SERVING))
    assert listed(view, key()) == ["a", "b"]
    assert may_know(view, key(), "a")
    assert not may_know(view, key(), "c")


def test_a_key_reaches_the_models_it_names():
    view = view_of((("a", "b"), EVERYBODY, Rank.SERVING))
    assert listed(view, key(models=("b", "c"))) == ["b"]
    assert not may_know(view, key(models=("b", "c")), "a")


def test_a_key_that_names_no_model_is_for_none():
    view = view_of((("a", "b"), EVERYBODY, Rank.SERVING))
    assert listed(view, key(models=())) == []
    assert not may_know(view, key(models=()), "a")
    assert not may_name(key(models=()), "a")


@pytest.mark.parametrize(
    ("whom", "entry", "is_served"),
    [
        ("project:p", key(project="p"), True),
        ("project:p", key(project="q"), False),
        ("project:p", key(user="p"), False),
        ("user:ada", key(user="ada"), True),
        ("user:ada", key(project="ada"), False),
        ("user:ada", key(), False),
        ("project:", key(), False),
    ],
)
def test_a_replica_kept_for_some_does_not_exist_for_others(whom, entry, is_served):
    view = view_of((("a",), (whom,), Rank.SERVING))
    assert listed(view, entry) == ["a"] * is_served
    assert may_know(view, entry, "a") == is_served


def test_a_model_whose_replicas_are_down_is_known_and_not_listed():
    view = view_of((("a",), EVERYBODY, Rank.DOWN))
    assert may_know(view, key(), "a")
    assert listed(view, key()) == []


def test_a_model_that_only_others_have_up_is_not_listed_and_still_known():
    view = view_of((("a",), ("user:bob",), Rank.SERVING), (("a",), EVERYBODY, Rank.DOWN))
    assert may_know(view, key(), "a")
    assert listed(view, key()) == []


served_to = st.lists(st.sampled_from(["project:p", "project:q", "user:ada", "user:bob"]), max_size=2, unique=True)
replicas = st.lists(
    st.tuples(
        st.lists(st.sampled_from(MODELS), min_size=1, max_size=3, unique=True).map(tuple),
        served_to.map(tuple),
        st.sampled_from([Rank.JOIN, Rank.SERVING, Rank.DOWN, Rank.LEFT]),
    ),
    max_size=4,
)
keys = st.builds(
    key,
    models=st.none() | st.lists(st.sampled_from(MODELS), max_size=2, unique=True).map(tuple),
    user=st.sampled_from(["", "ada", "bob"]),
    project=st.sampled_from(["", "p", "q"]),
)


@given(replicas, keys)
def test_what_is_listed_can_be_called_and_what_cannot_be_listed_has_nobody_to_call(made, entry):
    view = view_of(*made)
    names = {f"user:{entry.user}", f"project:{entry.project}"}
    for model in MODELS:
        mine = [
            rank
            for models, whom, rank in made
            if model in models and (not whom or names.intersection(whom)) and rank is not Rank.LEFT
        ]
        is_named = entry.models is None or model in entry.models
        assert (model in listed(view, entry)) == (is_named and Rank.SERVING in mine)
        called = [row for row in view.routable.get(model, ()) if allowed(entry).objection(row) is None]
        assert (model in listed(view, entry)) == (is_named and bool(called))
        assert may_know(view, entry, model) == (is_named and bool(mine))
