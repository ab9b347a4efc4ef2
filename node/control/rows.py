"""From the registry's views to the rows the control API shows. Text that others wrote is cleaned here. Pure."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from node.control.schema import (
    CauseView,
    GaugeView,
    GpuView,
    ModelView,
    NodeView,
    PlatformView,
    RankWord,
    ReplicaView,
)
from node.control.source import Measured
from registry.chain import sift
from registry.ids import key_id
from registry.kinds import Platform
from registry.lifecycle import Rank
from registry.text import clean
from registry.views import RECORD_FILTERS, ModelRow, NodeRow, ReplicaRow, Snapshot

RANKS: dict[Rank, RankWord] = {
    Rank.JOIN: "JOIN",
    Rank.SERVING: "SERVING",
    Rank.DOWN: "DOWN",
    Rank.LEFT: "LEFT",
}

R = TypeVar("R")
V = TypeVar("V", bound=msgspec.Struct)


class _Memo(Generic[R, V]):
    """Rows made before, as long as what they were made of is the same. Mutable: forgets what is gone."""

    def __init__(self, make: Callable[[R], V]) -> None:
        self._make = make
        self._held: dict[str, tuple[R, V]] = {}

    def rows(self, of: Mapping[str, R]) -> dict[str, V]:
        """A row for each."""
        held = self._held
        self._held = {
            key: before if (before := held.get(key)) is not None and before[0] == row else (row, self._make(row))
            for key, row in of.items()
        }
        return {key: made for key, (_, made) in self._held.items()}


class Rows:
    """The tables of one node's registry. Mutable only by what it remembers of the last time."""

    def __init__(self) -> None:
        self._nodes = _Memo(node_view)
        self._evicted = _Memo(evicted_view)
        self._replicas = _Memo(replica_view)
        self._models = _Memo(model_view)

    def nodes(self, view: Snapshot) -> dict[str, NodeView]:
        """Every node, those that were evicted too; without gauges."""
        return self._evicted.rows(view.evicted) | self._nodes.rows(view.nodes)

    def replicas(self, view: Snapshot) -> dict[str, ReplicaView]:
        """Every replica."""
        return self._replicas.rows(view.replicas)

    def models(self, view: Snapshot) -> dict[str, ModelView]:
        """Every model."""
        return self._models.rows(view.models)


def node_view(row: NodeRow) -> NodeView:
    """One node."""
    node = row.node
    return NodeView(
        id=row.id,
        name=row.name,
        session=f"{row.name}/{row.run}",
        host=node.host,
        slot=node.slot,
        provider=row.grant.provider,
        member=key_id(node.member),
        run=row.run,
        state=RANKS[row.rank],
        draining=row.draining,
        suspect=row.suspect,
        evicted=False,
        roles=tuple(sorted(row.roles)),
        hub=row.is_hub,
        until=row.grant.not_after,
        url=node.url,
        urls=node.urls,
        platform=_platform(node.platform),
        gpus=tuple(GpuView(name=clean(g.name), count=g.count, memory_b=g.memory_b, nvlink=g.nvlink) for g in node.gpus),
        memory_b=node.memory_b,
        release=clean(node.release),
        started=node.started,
        prev=clean(node.prev),
        hubs=node.hubs,
    )


def evicted_view(row: NodeRow) -> NodeView:
    """One node that may not come back."""
    return msgspec.structs.replace(node_view(row), evicted=True, roles=())


def _platform(platform: Platform | None) -> PlatformView | None:
    if platform is None:
        return None
    return PlatformView(
        kind=platform.kind,
        job=clean(platform.job),
        partition=clean(platform.partition),
        ends_at=platform.ends_at,
        hosts=platform.hosts,
    )


def replica_view(row: ReplicaRow) -> ReplicaView:
    """One run of an engine."""
    node, slot = row.id.split("/", 1)
    body = row.replica
    cause = body.cause
    out = sift([row], RECORD_FILTERS).excluded
    return ReplicaView(
        id=row.id,
        node=node,
        name=row.node.name if row.node else node,
        session=row.session,
        slot=slot,
        run=row.record.order.run,
        state=RANKS[row.rank],
        draining=body.draining or (row.node is not None and row.node.draining),
        phase=clean(body.phase),
        engine=body.engine,
        models=tuple(offer.id for offer in body.models),
        cause=CauseView(reason=cause.reason, exit_code=cause.exit_code, signal=cause.signal) if cause else None,
        serve_to=body.serve_to,
        started=body.started,
        routable=not out,
        why_not=clean(out[0].reason) if out else "",
    )


def model_view(row: ModelRow) -> ModelView:
    """One model."""
    return ModelView(
        id=row.id,
        state=row.state.value,
        routable=row.routable,
        wanted=row.wanted,
        families=row.offer.families,
        context_tokens=row.offer.context_tokens,
    )


def with_gauges(nodes: Mapping[str, NodeView], gauges: Mapping[str, Measured], now: float) -> tuple[NodeView, ...]:
    """The nodes, each with what it measures of itself."""
    return tuple(
        node
        if (gauge := gauges.get(key)) is None
        else msgspec.structs.replace(node, gauges=dict(gauge.values), gauges_age_s=_age_s(gauge, now))
        for key, node in nodes.items()
    )


def gauge_view(gauge: Measured, now: float) -> GaugeView:
    """The gauges of a node."""
    return GaugeView(values=dict(gauge.values), age_s=_age_s(gauge, now))


def _age_s(gauge: Measured, now: float) -> float:
    return round(max(0.0, now - gauge.at), 3)
