"""What a node says of its own process: links, engines, door, and what somebody should look at."""

from collections.abc import Iterable
from os import getpid
from typing import TYPE_CHECKING

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
from registry.charter import Grant
from registry.ids import key_id
from registry.lifecycle import Rank
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
    if node.id in view.evicted:
        yield _warning("evicted", "error", "this node was evicted", "ask an operator; tela operators list names them")
    elif not any(name == node.id for name, _ in view.standing.grants):
        yield _warning(
            "not_entitled", "error", "this node's membership does not count here", "tela whoami says what is missing"
        )
    if node.config.listen is None and not node.mesh.linked():
        refused = next(iter(node.mesh.refused.values()), None)
        why = f", which said: {refused.code}" if refused else ""
        yield _warning("no_link", "error", f"no link to any hub{why}", "check the network to the hubs' addresses")
    if abs(offset) > CLOCK_WARN_S:
        text = f"this host's clock is {abs(offset):.0f} s {'behind' if offset > 0 else 'ahead of'} the hubs'"
        yield _warning("clock", "warning", text, "set it: chronyc makestep, or ask who runs the host")
    if (trouble := node.keeper.trouble) is not None:
        yield _warning("journal", "warning", trouble.text, trouble.hint)


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
