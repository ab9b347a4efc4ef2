"""What happened: the differences between two states of the registry, as a node saw them, in words. Pure.

An event names the time of this node's own wall clock and nothing from the accounts shelf. What stands in its text came
through the sanitiser.
"""

from collections.abc import Iterable, Iterator

import msgspec

from registry.acts import needs
from registry.ids import key_id
from registry.kinds import Act, Charter, Outcome, read_body
from registry.lifecycle import Rank
from registry.record import Record
from registry.text import clean
from registry.validity import Standing
from registry.views import NodeRow, ReplicaRow, Snapshot


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened."""

    at: float  # unix seconds, the wall clock of the node that saw it
    kind: str  # node.left, replica.down, model.up, act.done, …
    subject: str  # the name of what it happened to
    text: str  # a phrase for people
    cause: dict[str, str | int] = {}  # what is known of why: reason, exit_code, signal, by, run, node …
    seq: int = 0  # its number in the log of this node; 0: not written there yet


def transitions(before: Snapshot | None, after: Snapshot, at: float) -> list[Event]:
    """What changed between two views.

    Args:
        before: the earlier one; None: there is nothing to compare with, so nothing happened.
        after: the later one.
        at: unix seconds.
    """
    if before is None or before is after:
        return []
    return [
        *_charters(before.standing, after.standing, at),
        *_acts(before, after, at),
        *_fleet(before, after, at),
        *_replicas(before, after, at),
        *_models(before, after, at),
    ]


def outcomes(news: Iterable[Record], view: Snapshot, at: float) -> list[Event]:
    """What nodes said came of acts.

    Args:
        news: records that are new here; other kinds are passed over, and so is what was not theirs to say.
        view: what counts now.
        at: unix seconds.
    """
    acts = {ordered.record.order.hash: ordered.act for ordered in view.standing.acts.values()}
    return [
        _outcome(row, acts[body.act], body, view, at)
        for record in news
        if record.key.kind == "outcome"
        and isinstance(body := read_body(record), Outcome)
        and body.act in acts
        and (row := _row_of(view, key_id(record.key.owner))) is not None
        and (row.id == acts[body.act].target if needs(acts[body.act].verb) == "target" else row.is_hub)
    ]


def _outcome(row: NodeRow, act: Act, body: Outcome, view: Snapshot, at: float) -> Event:
    kind = "act.done" if body.state == "done" else "act.declined"
    said = f": {clean(body.reason)}" if body.reason else ""
    by = "" if row.id == act.target else f" by {row.name}"
    return Event(
        at=at,
        kind=kind,
        subject=_name_of(view, act.target),
        text=f"{act.verb} {'done' if body.state == 'done' else 'declined'}{by}{said}",
        cause={"verb": act.verb, "target": act.target, "by": row.id},
    )


def _row_of(view: Snapshot, node: str) -> NodeRow | None:
    return view.nodes.get(node) or view.evicted.get(node)


# --- who may do what


def _charters(before: Standing, after: Standing, at: float) -> Iterator[Event]:
    if before.in_force is None or after.in_force is None:
        return
    was, now = before.in_force.current, after.in_force.current
    if was.record.order.hash != now.record.order.hash:
        text = f"charter {now.record.order.seq} is in force"
        yield Event(at=at, kind="charter.changed", subject=now.charter.name, text=text)
        yield from _operators(was.charter, now.charter, at)
    known = {fork.order.hash for fork in before.in_force.forks}
    for fork in after.in_force.forks:
        if fork.order.hash not in known:
            text = f"two charters follow charter {fork.order.seq - 1}; an owner has to settle it"
            yield Event(
                at=at, kind="charter.fork", subject=now.charter.name, text=text, cause={"by": key_id(fork.key.owner)}
            )


def _operators(was: Charter, now: Charter, at: float) -> Iterator[Event]:
    before = {each.key: each for each in was.operators}
    after = {each.key: each for each in now.operators}
    for key, operator in after.items():
        if before.get(key) != operator:
            may = f"{', '.join(operator.verbs) or 'nothing'} on {operator.scope}"
            kind, text = ("operator.changed", f"may now {may}") if key in before else ("operator.added", f"may {may}")
            yield Event(at=at, kind=kind, subject=operator.name, text=text, cause={"key": key_id(key)})
    for key, operator in before.items():
        if key not in after:
            text = "is no operator any more"
            yield Event(at=at, kind="operator.removed", subject=operator.name, text=text, cause={"key": key_id(key)})


def _acts(before: Snapshot, after: Snapshot, at: float) -> Iterator[Event]:
    known = {ordered.record.order.hash for ordered in before.standing.acts.values()}
    for record, act in after.standing.acts.values():
        if record.order.hash not in known:
            yield _act("act.accepted", record, act, act.reason, after, at)
    refused = {record.order.hash for record, _ in before.standing.refused}
    for record, why in after.standing.refused:
        if record.key.kind == "act" and record.order.hash not in refused:
            body = read_body(record)
            if isinstance(body, Act) and _is_worth_saying(record, body, after):
                yield _act("act.refused", record, body, why, after, at)


def _is_worth_saying(record: Record, act: Act, after: Snapshot) -> bool:
    """Whether a refused act is an event: an operator's, or the member's whose node it is. Anybody may write others."""
    in_force = after.standing.in_force
    if in_force is not None and any(each.key == record.key.owner for each in in_force.current.charter.operators):
        return True
    row = _row_of(after, act.target)
    return row is not None and row.node.member == record.key.owner


def _act(kind: str, record: Record, act: Act, why: str, view: Snapshot, at: float) -> Event:
    by = signed_by(view.standing, record.key.owner)
    said = f": {clean(why)}" if why else ""
    verb = f"{act.verb} refused, signed by" if kind == "act.refused" else f"{act.verb} by"
    return Event(
        at=at,
        kind=kind,
        subject=_name_of(view, act.target),
        text=f"{verb} {by}{said}",
        cause={"verb": act.verb, "target": act.target, "by": by, "run": act.run},
    )


def _name_of(view: Snapshot, target: str) -> str:
    """What people call the target of an act; its id where that is no node here."""
    row = _row_of(view, target)
    return row.name if row is not None else target


def signed_by(standing: Standing, key: bytes) -> str:
    """Who signed, as people call them: an operator by name, a member by the provider; a stranger has only an id."""
    operators = standing.in_force.current.charter.operators if standing.in_force else ()
    operator = next((each.name for each in operators if each.key == key), None)
    if operator is not None:
        return clean(operator)
    member = standing.admissions.get(key)
    return f"a member of {clean(member.provider)}" if member is not None else key_id(key)


# --- nodes


def _fleet(before: Snapshot, after: Snapshot, at: float) -> Iterator[Event]:
    for row in after.nodes.values():
        held = before.nodes.get(row.id)
        if held is None and row.id in before.evicted:
            yield _of_node("readmitted", row, "let in again", at)
        elif held is None or held.run != row.run:
            yield from _arrival(row, at)
        else:
            yield from _change(held, row, at)
    for row in before.nodes.values():
        if row.id not in after.nodes and row.rank is not Rank.LEFT:
            yield _expulsion(row, after, at)


def _arrival(row: NodeRow, at: float) -> Iterator[Event]:
    if row.rank is Rank.LEFT:  # heard of after its end
        return
    last = f"; its last run {clean(row.node.prev)}" if row.node.prev else ""
    yield _of_node("joined", row, f"joined as {', '.join(sorted(row.roles)) or 'observer'}{last}", at)
    if row.rank is not Rank.JOIN:
        yield _of_node(row.rank.name.lower(), row, row.rank.name, at)
    yield from _overlays(is_suspect=False, is_draining=False, row=row, at=at)


def _change(held: NodeRow, row: NodeRow, at: float) -> Iterator[Event]:
    if held.rank is not row.rank:
        yield _of_node(row.rank.name.lower(), row, row.rank.name, at)
    if row.rank is not Rank.LEFT:
        yield from _overlays(is_suspect=held.suspect, is_draining=held.draining, row=row, at=at)


def _overlays(*, is_suspect: bool, is_draining: bool, row: NodeRow, at: float) -> Iterator[Event]:
    if row.suspect and not is_suspect:
        yield _of_node("suspect", row, "cannot be reached", at)
    elif is_suspect and not row.suspect:
        yield _of_node("cleared", row, "is reached again", at)
    if row.draining and not is_draining:
        yield _of_node("draining", row, "takes no more requests", at)
    elif is_draining and not row.draining:
        yield _of_node("undrained", row, "takes requests again", at)


def evicted_by(standing: Standing, node: str) -> str | None:
    """By whom a node was evicted and why, in words; None: it was not."""
    order = standing.evicted.get(node)
    act = read_body(order) if order is not None else None
    if order is None or not isinstance(act, Act):
        return None
    return f"evicted by {signed_by(standing, order.key.owner)}" + (f": {clean(act.reason)}" if act.reason else "")


def _expulsion(row: NodeRow, after: Snapshot, at: float) -> Event:
    text = evicted_by(after.standing, row.id)
    if text is None:
        return _of_node("expelled", row, "is no member any more: its membership or certificate ended", at)
    by = signed_by(after.standing, after.standing.evicted[row.id].key.owner)
    return _of_node("evicted", row, text, at, by=by)


def _of_node(what: str, row: NodeRow, text: str, at: float, **cause: str | int) -> Event:
    return Event(
        at=at, kind=f"node.{what}", subject=row.name, text=text, cause={"node": row.id, "run": row.run, **cause}
    )


# --- replicas and models


def _replicas(before: Snapshot, after: Snapshot, at: float) -> Iterator[Event]:
    for row in after.replicas.values():
        if row.node is None:  # a stranger may say what it likes
            continue
        held = before.replicas.get(row.id)
        is_known = held is not None and held.node is not None and held.record.order.run == row.record.order.run
        if is_known and held is not None and held.rank is row.rank:
            continue
        if is_known or row.rank is not Rank.LEFT:
            yield _of_replica(row, row.node, at)


def _of_replica(row: ReplicaRow, node: NodeRow, at: float) -> Event:
    cause: dict[str, str | int] = {"node": node.id, "run": row.record.order.run}
    slot = row.id.partition("/")[2]
    models = ", ".join(offer.id for offer in row.replica.models) or "no model"
    if row.rank is Rank.DOWN and row.replica.cause is not None:
        told = row.replica.cause
        cause["reason"] = told.reason
        cause |= {"exit_code": told.exit_code} if told.exit_code is not None else {}
        cause |= {"signal": told.signal} if told.signal is not None else {}
        text = f"{slot} DOWN: {told.reason}" + "".join(
            f", {name.replace('_', ' ')} {cause[name]}" for name in ("exit_code", "signal") if name in cause
        )
    elif row.rank is Rank.JOIN:
        text = f"{slot} starts {row.replica.engine}"
    else:
        text = f"{slot} {row.rank.name}: {models}"
    return Event(at=at, kind=f"replica.{row.rank.name.lower()}", subject=row.session, text=text, cause=cause)


def _models(before: Snapshot, after: Snapshot, at: float) -> Iterator[Event]:
    for name, row in after.models.items():
        held = before.models.get(name)
        if held is None or held.state is not row.state:
            text = f"{row.state}, {row.routable}/{row.wanted}"
            yield Event(at=at, kind=f"model.{row.state.lower()}", subject=name, text=text)
    for name in before.models:
        if name not in after.models:
            yield Event(at=at, kind="model.gone", subject=name, text="nobody serves it any more")
