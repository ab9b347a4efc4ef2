"""The views of the fabric: fleet, replicas, models, and who may be routed to. Derived, never stored.

A `Snapshot` answers every question about one state of the replica; `Views` keeps the last one until the
replica changes or a membership expires.
"""

from enum import StrEnum
from typing import NamedTuple

from registry.chain import Excluded, Filter, sift
from registry.charter import Grant
from registry.kinds import Node, Offer
from registry.kinds import Replica as ReplicaBody
from registry.lifecycle import Rank
from registry.record import Record
from registry.replica import Replica
from registry.suspicion import Sighting, is_hub, suspects
from registry.validity import Standing, standing


class NodeRow(NamedTuple):
    """One node as anybody sees it."""

    id: str
    name: str  # host@provider, of further slots host-slot@provider
    key: bytes
    run: int
    rank: Rank
    suspect: bool
    draining: bool  # by itself, or by an act
    drain: Record | None  # the act that drains it; None: no act does
    is_hub: bool
    grant: Grant
    record: Record
    node: Node

    @property
    def roles(self) -> frozenset[str]:
        """What it says it does and may do."""
        return self.grant.roles.intersection(self.node.roles)


class ReplicaRow(NamedTuple):
    """One run of an engine, with the node it runs on (None: that node is not known or not entitled)."""

    id: str
    node: NodeRow | None
    rank: Rank
    record: Record
    replica: ReplicaBody
    is_evicted: bool = False  # an act put its node out

    @property
    def session(self) -> str:
        """The name of the session for people: host@provider/run."""
        return f"{self.node.name}/{self.node.run}" if self.node else self.id


class ModelState(StrEnum):
    """How a model is served."""

    UP = "UP"
    DEGRADED = "DEGRADED"
    WAKING = "WAKING"
    DOWN = "DOWN"


class ModelRow(NamedTuple):
    """One model: its state and n of m, routable of wanted replicas."""

    id: str
    state: ModelState
    routable: int
    wanted: int
    offer: Offer


def _not_entitled(row: ReplicaRow) -> str | None:
    if row.node is None:
        return "its node was evicted" if row.is_evicted else "its node is not a member of this fabric"
    return None if "worker" in row.node.grant.roles else "its membership does not say worker"


def _ghost(row: ReplicaRow) -> str | None:
    if row.node is not None and row.node.run != row.replica.node_run:
        return "it belongs to an earlier run of its node"
    return None


def _node_not_serving(row: ReplicaRow) -> str | None:
    if row.node is None or row.node.rank is Rank.SERVING:
        return None
    return f"its node is {row.node.rank.name}"


def _suspect(row: ReplicaRow) -> str | None:
    return "its node cannot be reached" if row.node and row.node.suspect else None


def _draining(row: ReplicaRow) -> str | None:
    return "draining" if row.replica.draining or (row.node and row.node.draining) else None


def _not_serving(row: ReplicaRow) -> str | None:
    if row.rank is Rank.SERVING:
        return None
    return f"{row.rank.name}: {row.replica.phase}" if row.replica.phase else row.rank.name


def serves(project: str, user: str) -> Filter[ReplicaRow]:
    """The filter for one caller: whoever runs a replica may keep it for some projects or users.

    Args:
        project: the caller's; empty: none.
        user: the caller's; empty: none.
    """
    names = {f"project:{project}"} if project else set()
    if user:
        names.add(f"user:{user}")

    def kept_for_others(row: ReplicaRow) -> str | None:
        whom = row.replica.serve_to
        return None if not whom or names.intersection(whom) else "its owner serves others only"

    return Filter("allow", kept_for_others)


RECORD_FILTERS: tuple[Filter[ReplicaRow], ...] = (
    Filter("registry", _not_entitled),
    Filter("sessions", _ghost),
    Filter("node", _node_not_serving),
    Filter("suspect", _suspect),
    Filter("draining", _draining),
    Filter("state", _not_serving),
)


class Snapshot(NamedTuple):
    """Every view of one state of the replica."""

    standing: Standing
    nodes: dict[str, NodeRow]
    replicas: dict[str, ReplicaRow]
    routable: dict[str, tuple[ReplicaRow, ...]]  # by model id
    excluded: dict[str, tuple[Excluded[ReplicaRow], ...]]  # by model id, for `why`
    models: dict[str, ModelRow]
    evicted: dict[str, NodeRow]  # nodes that an act put out; they are nowhere else


def snapshot(replica: Replica, fabric_id: bytes, now_fabric: float) -> Snapshot:
    """Derive every view."""
    verdict = standing(replica, fabric_id, now_fabric)
    nodes = _fleet(replica, verdict)
    replicas = _replicas(replica, nodes, verdict)
    by_model: dict[str, list[ReplicaRow]] = {}
    for row in replicas.values():
        for offer in row.replica.models:
            by_model.setdefault(offer.id, []).append(row)
    routable: dict[str, tuple[ReplicaRow, ...]] = {}
    excluded: dict[str, tuple[Excluded[ReplicaRow], ...]] = {}
    for model, rows in by_model.items():
        routable[model], excluded[model] = sift(rows, RECORD_FILTERS)
    described = (_model(model, rows, len(routable[model])) for model, rows in sorted(by_model.items()))
    models = {each.id: each for each in described if each is not None}
    return Snapshot(verdict, nodes, replicas, routable, excluded, models, _evicted(replica, verdict))


def _fleet(replica: Replica, verdict: Standing) -> dict[str, NodeRow]:
    sightings = {
        record.key.id: Sighting(record, body, grant)
        for record, body in replica.of_kind("node")
        if isinstance(body, Node) and (grant := verdict.grants.get((record.key.id, body.member))) is not None
    }
    lost = suspects(replica, sightings)
    return {name: _node(name, seen, verdict, suspect=name in lost) for name, seen in sightings.items()}


def _evicted(replica: Replica, verdict: Standing) -> dict[str, NodeRow]:
    if not verdict.evicted:
        return {}
    seen = ((record, body) for record, body in replica.of_kind("node") if record.key.id in verdict.evicted)
    nobody = Grant("", frozenset(), 0.0)
    return {
        record.key.id: _node(record.key.id, Sighting(record, body, _grant_of(body, verdict) or nobody), verdict)
        for record, body in seen
        if isinstance(body, Node)
    }


def _grant_of(node: Node, verdict: Standing) -> Grant | None:
    """What an evicted node would have: its member's provider, and no role."""
    member = verdict.admissions.get(node.member)
    return Grant(member.provider, frozenset(), member.not_after) if member else None


def _drain(name: str, run: int, verdict: Standing) -> Record | None:
    """The act in force that drains this run of a node."""
    order = verdict.acts.get(f"drain/{name}")
    return order.record if order is not None and order.act.verb == "drain" and order.act.run in {0, run} else None


def _node(name: str, seen: Sighting, verdict: Standing, *, suspect: bool = False) -> NodeRow:
    record, node, grant = seen
    slot = f"-{node.slot}" if node.slot else ""  # the first node of a host is called as the host
    rank = Rank(record.order.rank)
    drain = _drain(name, record.order.run, verdict)
    return NodeRow(
        id=name,
        name=f"{node.host}{slot}@{grant.provider}",
        key=record.key.owner,
        run=record.order.run,
        rank=rank,
        suspect=suspect and rank is not Rank.LEFT,
        draining=node.draining or drain is not None,
        drain=drain,
        is_hub=is_hub(node, grant),
        grant=grant,
        record=record,
        node=node,
    )


def _replicas(replica: Replica, nodes: dict[str, NodeRow], verdict: Standing) -> dict[str, ReplicaRow]:
    """Every replica, in the order of their ids: no view may depend on the order of arrival."""
    rows: dict[str, ReplicaRow] = {}
    for record, body in sorted(replica.of_kind("replica"), key=lambda entry: entry.record.key.id):
        if isinstance(body, ReplicaBody):
            name = record.key.id
            node = name[: name.index("/")]  # its owner's id, as `registry.kinds` made sure
            is_evicted = node in verdict.evicted
            rows[name] = ReplicaRow(name, nodes.get(node), Rank(record.order.rank), record, body, is_evicted)
    return rows


def _model(model: str, rows: list[ReplicaRow], ready: int) -> ModelRow | None:
    wanted = [row for row in rows if _is_wanted(row)]
    if not wanted:
        return None
    if ready:
        state = ModelState.UP if ready == len(wanted) else ModelState.DEGRADED
    else:
        waking = any(row.rank is Rank.JOIN for row in wanted)
        state = ModelState.WAKING if waking else ModelState.DOWN
    offer = next(offer for row in wanted for offer in row.replica.models if offer.id == model)
    return ModelRow(model, state, ready, len(wanted), offer)


def _is_wanted(row: ReplicaRow) -> bool:
    gone = row.rank is Rank.LEFT or row.node is None or row.node.rank is Rank.LEFT
    return not gone and _not_entitled(row) is None and _ghost(row) is None


class Views:
    """The latest snapshot of one replica, kept until it may have changed."""

    __slots__ = ("_fabric_id", "_held", "_made_at", "_replica", "_version")

    def __init__(self, replica: Replica, fabric_id: bytes) -> None:
        self._replica = replica
        self._fabric_id = fabric_id
        self._version = -1
        self._made_at = float("inf")
        self._held: Snapshot | None = None

    def at(self, now_fabric: float) -> Snapshot:
        """The snapshot at a fabric time (unix seconds)."""
        held = self._held
        # A time before it was made is a clock that was ahead: what it saw as ended has not.
        is_timely = held is not None and self._made_at <= now_fabric <= held.standing.valid_until
        if held is None or not is_timely or self._version != self._replica.version:
            held = self._held = snapshot(self._replica, self._fabric_id, now_fabric)
            self._version, self._made_at = self._replica.version, now_fabric
        return held
