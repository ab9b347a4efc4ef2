"""What this host says about itself: the node record and one record for each engine slot."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from gossip.mesh import Mesh
from node.engine.state import EngineState
from node.platform.host import Facts
from registry.author import Author
from registry.ids import replica_id
from registry.kinds import Cause, Node, Replica, read_body
from registry.lifecycle import Rank
from registry.record import Record

Say = Callable[[dict[str, object]], None]  # narrates to whoever started the node


class Agent:
    """Publishes what is true of this node. Mutable: it remembers the last node body.

    Args:
        author: writes its records.
        mesh: carries them.
        node: the body it starts with.
        wall: unix seconds on this host.
        say: narration; called with plain values.
        serve_to: whose requests its engines take; empty: everybody's.
    """

    def __init__(
        self,
        *,
        author: Author,
        mesh: Mesh,
        node: Node,
        wall: Callable[[], float],
        say: Say,
        serve_to: tuple[str, ...] = (),
    ) -> None:
        self._author = author
        self._mesh = mesh
        self._node = node
        self._wall = wall
        self._say = say
        self._serve_to = serve_to

    def reached_at(self, url: str) -> None:
        """The door is open at a URL; say so when the node is up."""
        self._node = msgspec.structs.replace(self._node, url=url if url.startswith("http") else "")

    def is_on(self, here: Facts) -> None:
        """What this host turned out to be; say so when that is anything."""
        node = msgspec.structs.replace(self._node, platform=here.platform, gpus=here.gpus, memory_b=here.memory_b)
        if node != self._node:
            self._node = node
            self.serve()

    def bury(self, ghost: Record) -> None:
        """An engine's run that ended without a word, in an earlier run of this node: say LEFT for it."""
        body = read_body(ghost)
        if not isinstance(body, Replica):
            return
        ended = msgspec.structs.replace(body, cause=body.cause or Cause(reason="lost"), phase="", draining=False)
        record = self._author.write(ended, ghost.key.id, rank=Rank.LEFT, run=ghost.order.run)
        self._mesh.publish(record)

    def serve(self) -> None:
        """The node is up."""
        self._mesh.tell(lambda peer: peer.announce(self._node, Rank.SERVING))

    def engine_changed(self, state: EngineState, engine: str, log: Path | None = None) -> None:
        """An engine slot is in another state: tell the fabric; where its output goes is for this host only."""
        body = Replica(
            node_run=self._author.run,
            engine=engine,
            models=state.offers,
            phase=state.phase,
            draining=state.draining,
            cause=state.cause,
            started=self._wall(),
            serve_to=self._serve_to,
        )
        subject = replica_id(self._author.id, state.slot)
        record = self._author.write(body, subject, rank=state.rank, run=state.run)
        self._mesh.publish(record)
        self._say(
            {
                "event": "engine",
                "slot": state.slot,
                "run": state.run,
                "state": state.rank.name,
                "phase": state.phase,
                "draining": state.draining,
                "pid": state.pid,
                "models": [offer.id for offer in state.offers],
                "log": str(log) if log is not None else "",
            }
        )
