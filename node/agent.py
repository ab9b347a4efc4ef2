"""What this host says about itself: the node record and one record for each engine slot."""

from collections.abc import Callable

from gossip.mesh import Mesh
from node.engine.supervisor import EngineState
from registry.author import Author
from registry.ids import replica_id
from registry.kinds import Node, Replica
from registry.lifecycle import Rank

Say = Callable[[dict[str, object]], None]  # narrates to whoever started the node


class Agent:
    """Publishes what is true of this node. Mutable: it remembers the last node body.

    Args:
        author: writes its records.
        mesh: carries them.
        node: the body it starts with.
        wall: unix seconds on this host.
        say: narration; called with plain values.
    """

    def __init__(self, *, author: Author, mesh: Mesh, node: Node, wall: Callable[[], float], say: Say) -> None:
        self._author = author
        self._mesh = mesh
        self._node = node
        self._wall = wall
        self._say = say

    def serve(self) -> None:
        """The node is up."""
        self._mesh.tell(lambda peer: peer.announce(self._node, Rank.SERVING))

    def engine_changed(self, state: EngineState, engine: str) -> None:
        """An engine slot is in another state: tell the fabric."""
        body = Replica(
            node_run=self._author.run,
            engine=engine,
            models=state.offers,
            phase=state.phase,
            draining=state.draining,
            cause=state.cause,
            started=self._wall(),
        )
        subject = replica_id(self._author.id, state.slot)
        record = self._author.write(body, subject, rank=state.rank, run=state.run)
        self._mesh.tell(lambda peer: peer.publish(record))
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
            }
        )
