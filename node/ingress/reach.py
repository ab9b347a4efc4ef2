"""Which models a key may know of and call: one predicate for the list and for the call. Pure."""

from accounting.keys import KeyEntry
from registry.chain import Filter
from registry.lifecycle import Rank
from registry.views import ModelRow, ReplicaRow, Snapshot, serves


def allowed(key: KeyEntry) -> Filter[ReplicaRow]:
    """The filter that keeps replicas which serve the holder of a key."""
    return serves(key.project, key.user)


def may_name(key: KeyEntry, model: str) -> bool:
    """Whether a key is for a model at all; one that names no model is for none."""
    return key.models is None or model in key.models


def may_know(view: Snapshot, key: KeyEntry, model: str) -> bool:
    """Whether a model exists for a key: some replica that is not gone, in whatever state, serves its holder."""
    if model not in view.models or not may_name(key, model):
        return False
    objection = allowed(key).objection
    if any(objection(row) is None for row in view.routable.get(model, ())):
        return True
    excluded = (out.candidate for out in view.excluded.get(model, ()))
    return any(objection(row) is None for row in excluded if _is_there(row))


def callable_now(view: Snapshot, key: KeyEntry) -> list[ModelRow]:
    """The models a key can call at this moment."""
    objection = allowed(key).objection
    return [
        row
        for row in view.models.values()
        if may_name(key, row.id) and any(objection(each) is None for each in view.routable.get(row.id, ()))
    ]


def _is_there(row: ReplicaRow) -> bool:
    node = row.node
    if node is None or node.rank is Rank.LEFT or row.rank is Rank.LEFT:
        return False
    return node.run == row.replica.node_run  # else it belongs to an earlier run of its node
