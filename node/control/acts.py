"""How far acts have come, and whether a record counts. Pure readings of the registry."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from node.control.schema import ActState, ActView
from registry.acts import needs
from registry.ids import key_id
from registry.kinds import Act, Outcome
from registry.lifecycle import Rank
from registry.record import Record
from registry.replica import Entry, Replica
from registry.text import clean
from registry.views import NodeRow, Snapshot

QUORUM = 2  # hubs that hold a record before it counts as accepted: one of them may die


class Progress(NamedTuple):
    """How far an act has come, and what there is to say about it."""

    state: ActState
    detail: str


class Acts:
    """The acts of one moment.

    Attributes:
        hubs: ids of the hubs that are there to hold a record.

    Args:
        replica: every record.
        view: what counts of them.
        node: the id of this node, which holds all it knows of.
    """

    def __init__(self, replica: Replica, view: Snapshot, node: str) -> None:
        self._replica = replica
        self._view = view
        self._node = node
        self._outcomes: dict[tuple[bytes, str], dict[str, Outcome]] = defaultdict(dict)
        for record, body in replica.of_kind("outcome"):
            if isinstance(body, Outcome):
                self._outcomes[body.act, record.key.id][key_id(record.key.owner)] = body
        self._refused = {record.order.hash: why for record, why in view.standing.refused}
        self._names = operator_names(view)
        self.hubs = frozenset(row.id for row in view.nodes.values() if _is_there(row))

    def rows(self) -> dict[str, ActView]:
        """Every act that is held, by hash."""
        return {
            record.order.hash.hex(): self._row(record, body)
            for record, body in self._replica.of_kind("act")
            if isinstance(body, Act)
        }

    def _row(self, record: Record, act: Act) -> ActView:
        state, detail = self.progress(record, act, frozenset((self._node,)))
        target = self._view.nodes.get(act.target) or self._view.evicted.get(act.target)
        by = key_id(record.key.owner)
        return ActView(
            hash=record.order.hash.hex(),
            subject=record.key.id,
            verb=act.verb,
            target=act.target,
            target_name=target.name if target else act.target,
            run=act.run,
            by=by,
            by_name=self._names.get(record.key.owner, by),
            reason=clean(act.reason),
            at=act.at,
            seq=record.order.seq,
            in_force=self._stands(record),
            state=state,
            detail=detail,
        )

    def find(self, digest: bytes) -> tuple[Record, Act] | None:
        """The act with a hash; None when it is not held, or not any more."""
        for record, body in self._replica.of_kind("act"):
            if record.order.hash == digest and isinstance(body, Act):
                return record, body
        return None

    def progress(self, record: Record, act: Act, holders: Iterable[str]) -> Progress:
        """How far an act has come.

        Args:
            record: the act's.
            act: what it says.
            holders: ids of nodes that are known to hold it.
        """
        if (why := self._refused.get(record.order.hash)) is not None:
            return Progress("REFUSED", clean(why))
        hubs = self.hubs
        needed = min(QUORUM, len(hubs)) or 1
        if (said := self._said(record, act, needed)) is not None:
            return said
        if not self._stands(record):
            return Progress("REFUSED", "another act about the same stands")
        held = len(hubs.intersection(holders))
        if held < needed:
            return Progress("PENDING", f"held by {held} of {needed} hubs it needs" if hubs else "no hub is known")
        if needs(act.verb) == "nobody":
            return Progress("DONE", "")  # it is there to be read; nobody has to do anything
        who = "its node" if needs(act.verb) == "target" else "the hubs"
        return Progress("ACCEPTED", f"waiting for {who}")

    def _said(self, record: Record, act: Act, needed: int) -> Progress | None:
        answers = self._outcomes.get((record.order.hash, record.key.id), {})
        if needs(act.verb) == "target":
            answer = answers.get(act.target)
            if answer is None:
                return None
            return Progress("DONE" if answer.state == "done" else "REFUSED", clean(answer.reason))
        done = [name for name, answer in answers.items() if answer.state == "done" and self._is_hub(name)]
        if needs(act.verb) == "hubs" and len(done) >= needed:
            return Progress("DONE", f"done by {len(done)} of {max(len(done), len(self.hubs))} hubs")
        return None

    def _is_hub(self, name: str) -> bool:
        row = self._view.nodes.get(name)
        return row is not None and row.is_hub

    def _stands(self, record: Record) -> bool:
        held = self._view.standing.acts.get(record.key.id)
        return held is not None and held.record.order.hash == record.order.hash


def _is_there(row: NodeRow) -> bool:
    return row.is_hub and row.rank < Rank.DOWN and not row.suspect


def operator_names(view: Snapshot) -> dict[bytes, str]:
    """The names of the operators in force, by key."""
    in_force = view.standing.in_force
    return {} if in_force is None else {each.key: each.name for each in in_force.current.charter.operators}


def why_not(record: Record, held: Entry | None, view: Snapshot, refused: Iterable[tuple[Record, str]]) -> str:
    """Why a record that was published does not count; empty when it does.

    Args:
        record: the one in question.
        held: what its register holds now.
        view: what counts.
        refused: records that count nowhere, those of the accounts shelf too where it is held.
    """
    digest = record.order.hash
    if held is None or held.record.order.hash != digest:
        return "a later record stands in its place"
    for other, why in refused:
        if other.order.hash == digest:
            return clean(why)
    if record.key.kind == "charter":
        return _why_not_charter(record, view)
    if isinstance(held.body, Act):
        stands = view.standing.acts.get(record.key.id)
        if stands is None or stands.record.order.hash != digest:
            return "another act about the same stands"
    return ""


def _why_not_charter(record: Record, view: Snapshot) -> str:
    in_force = view.standing.in_force
    if in_force is None:
        return "the founding charter is not held yet"
    digest, current = record.order.hash, in_force.current.record.order
    if current.hash == digest:
        return ""
    if any(fork.order.hash == digest for fork in in_force.forks):
        return "another successor of the same charter is followed"
    if record.order.seq < current.seq:
        return "a successor is in force"
    return "it does not follow the charter in force, or no owner of that one signed it"
