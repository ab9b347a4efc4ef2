"""What a node says of its own process: links, engines, door, and what somebody should look at."""

from collections.abc import Iterable
from os import getpid
from typing import TYPE_CHECKING

from gossip.hello import REFUSALS
from gossip.session import Refused
from node.control.schema import (
    EngineView,
    FabricName,
    HubCount,
    Linked,
    RankWord,
    SelfNode,
    SelfView,
    WarningView,
)
from node.events import evicted_by
from registry.charter import Grant
from registry.ids import key_id
from registry.lifecycle import Rank
from registry.record import Record
from registry.text import clean
from registry.views import Snapshot

if TYPE_CHECKING:
    from node.process import NodeProcess

CLOCK_WARN_S = 60.0


def self_view(node: "NodeProcess", links: tuple[str, ...], log_path: str) -> SelfView:
    """The answer to `/self`."""
    view, offset = node.view(), node.mesh.fabric_now() - node.clock.wall()
    hubs = [row for row in view.nodes.values() if row.is_hub and row.id != node.id and row.rank is not Rank.LEFT]
    linked = node.mesh.linked()
    return SelfView(
        fabric=FabricName(id=node.proofs.fabric_id.hex(), name=node.config.fabric),
        node=_node(node, view),
        version=node.version,
        pid=getpid(),
        started=node.started,
        state_dir=str(node.state),
        log=log_path,
        http=node.door.at if node.door else "",
        url=node.door.url if node.door else "",
        links=links,
        linked=tuple(
            Linked(id=row.id, name=row.name, hub=row.is_hub) for row in view.nodes.values() if row.id in linked
        ),
        hubs=HubCount(known=len(hubs), linked=sum(row.id in linked for row in hubs)),
        clock_offset_s=offset,
        engines=tuple(_engines(node)),
        warnings=tuple(_warnings(node, view, offset)),
        member=key_id(node.proofs.member),
        accounts=node.accounts,
        superseded=node.mesh.superseded is not None,
    )


def _node(node: "NodeProcess", view: Snapshot) -> SelfNode:
    row = view.nodes.get(node.id) or view.evicted.get(node.id)
    grant: Grant | None = view.standing.grants.get((node.id, node.proofs.member))
    return SelfNode(
        id=node.id,
        name=row.name if row else node.config.host,
        host=node.config.host,
        slot=node.config.slot,
        run=node.author.run,
        roles=tuple(sorted(row.roles)) if row else (),
        rank=_word(row.rank if row else Rank.JOIN),
        draining=row.draining if row else False,
        provider=grant.provider if grant else "",
        until=grant.not_after if grant else None,
    )


def _engines(node: "NodeProcess") -> Iterable[EngineView]:
    if node.engines is None:
        return
    for slot, supervisor in node.engines.supervisors.items():
        state = supervisor.state
        yield EngineView(
            slot=slot,
            run=state.run,
            state=_word(state.rank),
            phase=clean(state.phase),
            pid=state.pid,
            models=tuple(offer.id for offer in state.offers),
            in_flight=node.engines.worker.in_flight_of(slot),
            log=str(node.engines.log_of(slot)) if supervisor.spec.command is not None else "",
            draining=state.draining,
        )


def _warnings(node: "NodeProcess", view: Snapshot, offset: float) -> Iterable[WarningView]:
    if (entitlement := _entitlement(node, view)) is not None:
        yield entitlement
    elif node.config.listen is None and not node.mesh.linked():
        why = next((f", which said: {_said(each)}" for each in node.mesh.refused.values()), "")
        yield _warning("no_link", "error", f"no link to any hub{why}", "check the network to the hubs' addresses")
    if node.mesh.superseded is not None:
        yield _warning(
            "superseded", "error", "another run of this node's key is alive; this one ends", "start one of them only"
        )
    if abs(offset) > CLOCK_WARN_S:
        text = f"this host's clock is {abs(offset):.0f} s {'behind' if offset > 0 else 'ahead of'} the hubs'"
        yield _warning("clock", "warning", text, "set it: chronyc makestep, or ask who runs the host")
    if (trouble := node.keeper.trouble) is not None:
        yield _warning("journal", "warning", trouble.text, trouble.hint)
    if node.door is not None and (why_not := node.door.ledger.look()) is not None:
        text = f"usage cannot be recorded, so calls are refused: {why_not}"
        yield _warning("ledger", "error", text, f"make room on the disk of {node.state / 'ledger'}")


def _entitlement(node: "NodeProcess", view: Snapshot) -> WarningView | None:
    """Why this node is nobody in the fabric; None: it is somebody.

    A node that was away when it was evicted may not hold the act: then it knows from the hubs that turn it away.
    """
    act = evicted_by(view.standing, node.id)
    said = {each.code for each in node.mesh.refused.values() if each.by_peer}
    if act is not None or ("evicted" in said and not node.mesh.linked()):
        text = f"this node was {act}" if act is not None else "this node was evicted, say the hubs"
        remedy = "ask an operator to let it in again: tela evict --lift NODE; tela operators list names them"
        return _warning("evicted", "error", text, remedy)
    if not any(name == node.id for name, _ in view.standing.grants):
        why = next((f": {why}" for record, why in view.standing.refused if _is_ours(node, record)), "")
        text = f"this node's membership does not count here{why}"
        return _warning("not_entitled", "error", text, "tela whoami says what is missing")
    return None


def _is_ours(node: "NodeProcess", record: Record) -> bool:
    key = record.key
    return (key.kind == "certificate" and key.id == node.id) or record.order.hash == node.proofs.membership.order.hash


def _said(refused: Refused) -> str:
    code = refused.code if refused.code in REFUSALS else "a reason of a later release"
    return REFUSALS.get(code, code)


def _warning(code: str, severity: str, text: str, remedy: str) -> WarningView:
    return WarningView(
        code=code, severity="error" if severity == "error" else "warning", text=clean(text), remedy=remedy
    )


def _word(rank: Rank) -> RankWord:
    words: dict[Rank, RankWord] = {
        Rank.JOIN: "JOIN",
        Rank.SERVING: "SERVING",
        Rank.DOWN: "DOWN",
        Rank.LEFT: "LEFT",
    }
    return words[rank]
