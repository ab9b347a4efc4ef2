"""What the registry looks like from this node: whole, or what changed since a reader last looked."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from node.control.acts import Acts, operator_names
from node.control.rows import Rows, gauge_view, with_gauges
from node.control.schema import (
    ActView,
    CharterView,
    Delta,
    FabricName,
    GaugeView,
    HubView,
    ModelView,
    NodeView,
    OperatorView,
    RefusedView,
    ReplicaView,
    View,
)
from node.control.source import Source
from node.control.watch import Changes, Conflator
from node.control.wire import to_base64
from registry.ids import key_id
from registry.record import Record
from registry.text import clean
from registry.views import Snapshot

MAX_REFUSED = 200  # anybody may write what counts nowhere; nobody reads more of it
MAX_REFUSED_EACH = 16  # of one key that is no operator's, so that it hides nobody else's
TABLES = ("nodes", "replicas", "models", "acts", "gauges")


class _Gauge(NamedTuple):
    """Gauges as they came; kept apart from the nodes, whose rows would change with every one."""

    values: Mapping[str, int]
    at: float


class Viewer:
    """Makes views of one source. Mutable: it keeps the rows of its last look, and when each changed.

    Args:
        source: what it looks at.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._rows = Rows()
        self._seen: Snapshot | None = None
        self._nodes: dict[str, NodeView] = {}
        self._conflator = Conflator(source.epoch, TABLES)

    def look(self) -> Snapshot:
        """Take in the state of this moment."""
        view = self._source.snapshot()
        if view is not self._seen:
            self._seen = view
            self._nodes = self._rows.nodes(view)
            acts = Acts(self._source.replica, view, self._source.node).rows()
            replicas, models = self._rows.replicas(view), self._rows.models(view)
            self._conflator.update({"nodes": self._nodes, "replicas": replicas, "models": models, "acts": acts})
        gauges = self._source.gauges()
        shown = {key: _Gauge(dict(each.values), each.at) for key, each in gauges.items() if key in self._nodes}
        self._conflator.update({"gauges": shown})
        return view

    def whole(self) -> View:
        """Everything at this moment."""
        view = self.look()
        tables = self._conflator.since("", 0).tables
        in_force = view.standing.in_force
        charter = in_force.current.charter if in_force else None
        return View(
            version=self._conflator.version,
            epoch=self._conflator.epoch,
            at=self._source.fabric(),
            fabric=FabricName(id=self._source.fabric_id.hex(), name=charter.name if charter else ""),
            nodes=with_gauges(self._nodes, self._source.gauges(), self._source.now()),
            replicas=cast("tuple[ReplicaView, ...]", tuple(tables["replicas"].values())),
            models=cast("tuple[ModelView, ...]", tuple(tables["models"].values())),
            acts=cast("tuple[ActView, ...]", tuple(tables["acts"].values())),
            refused=refused_views(view.standing.refused, view),
            refused_count=len(view.standing.refused),
            operators=tuple(
                OperatorView(
                    key=each.key.hex(), id=key_id(each.key), name=each.name, verbs=each.verbs, scope=each.scope
                )
                for each in (charter.operators if charter else ())
            ),
            hubs=_hubs(view),
            forks=tuple(fork.order.hash.hex() for fork in in_force.forks) if in_force else (),
            issuers=tuple(key.hex() for key in charter.issuers) if charter else (),
            charter=_charter(view),
        )

    def since(self, epoch: str, version: int) -> Delta | None:
        """What a reader does not know yet; None when there is nothing."""
        self.look()
        changes = self._conflator.since(epoch, version)
        return None if changes.is_empty else self._delta(changes)

    def heartbeat(self) -> Delta:
        """A line that says nothing happened."""
        nothing: dict[str, dict[str, object | None]] = {name: {} for name in TABLES}
        return self._delta(Changes(self._conflator.epoch, self._conflator.version, is_reset=False, tables=nothing))

    def _delta(self, changes: Changes) -> Delta:
        tables = changes.tables
        now = self._source.now()
        return Delta(
            version=changes.version,
            epoch=changes.epoch,
            reset=changes.is_reset,
            nodes=cast("dict[str, NodeView | None]", tables["nodes"]),
            replicas=cast("dict[str, ReplicaView | None]", tables["replicas"]),
            models=cast("dict[str, ModelView | None]", tables["models"]),
            acts=cast("dict[str, ActView | None]", tables["acts"]),
            gauges={key: _gauge(row, now) for key, row in tables["gauges"].items()},
        )


def _gauge(row: object | None, now: float) -> GaugeView | None:
    return gauge_view(row, now) if isinstance(row, _Gauge) else None


def refused_views(refused: Iterable[tuple[Record, str]], view: Snapshot) -> tuple[RefusedView, ...]:
    """Records that count nowhere: what operators wrote first, then some of each other key's."""
    names = operator_names(view)
    heard = sorted(refused, key=lambda each: each[0].key.owner not in names)
    by: Counter[bytes] = Counter()
    shown: list[tuple[Record, str]] = []
    for record, why in heard:
        by[record.key.owner] += 1
        if record.key.owner in names or by[record.key.owner] <= MAX_REFUSED_EACH:
            shown.append((record, why))
    return tuple(
        RefusedView(
            kind=record.key.kind,
            id=record.key.id,
            by=names.get(record.key.owner) or key_id(record.key.owner),
            why=clean(why),
            hash=record.order.hash.hex(),
        )
        for record, why in shown[:MAX_REFUSED]
    )


def _hubs(view: Snapshot) -> tuple[HubView, ...]:
    in_force = view.standing.in_force
    named = in_force.current.charter.hubs if in_force else ()
    shown: list[HubView] = []
    for hub in named:
        name = key_id(hub.key)
        row = view.nodes.get(name)
        shown.append(HubView(key=hub.key.hex(), id=name, name=row.name if row else name, urls=hub.urls))
    return tuple(shown)


def _charter(view: Snapshot) -> CharterView | None:
    in_force = view.standing.in_force
    if in_force is None:
        return None
    record = in_force.current.record
    return CharterView(
        hash=record.order.hash.hex(),
        seq=record.order.seq,
        name=in_force.current.charter.name,
        record=to_base64(record.raw),
    )
