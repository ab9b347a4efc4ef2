"""The control API of one node, and the questions it answers and passes on: put together from the node's parts."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from gossip.gauges import Gauge
from node.ask.answer import Answers
from node.ask.asking import Asker
from node.ask.judge import Whom
from node.ask.question import ASK
from node.control.app import ControlApp
from node.control.schema import SelfView
from node.control.server import ControlServer
from node.control.source import Source
from registry.lifecycle import Rank
from registry.record import Record

if TYPE_CHECKING:
    from node.process import NodeProcess

NODE_LOG = "node.log"
UNWATCHED_S = 60.0


class Controlling:
    """A node's control API. Mutable only through its parts.

    Args:
        node: whose it is.
        about: the answer to `/self`.
        rng: nonces.
    """

    def __init__(self, node: "NodeProcess", about: Callable[[], SelfView], rng: Random) -> None:
        self._node = node
        self._now = asyncio.get_running_loop().time
        self._looked_at: float | None = None  # when a face last wanted gauges; None: not lately
        answers = Answers(
            whom=Whom(node.id, node.proofs.member),
            standing=lambda: node.view().standing,
            fabric=node.mesh.fabric_now,
            replica=node.replica,
            logs=self._log_of,
            events=node.keeper.events,
            blobs={},
        )
        node.mesh.serve(ASK, answers.serve)
        asker = Asker(mesh=node.mesh, answers=answers, hubs=self._hubs, fabric=node.mesh.fabric_now, rng=rng)
        self.app = ControlApp(
            Source(
                about=about,
                snapshot=node.view,
                replica=node.replica,
                fabric_id=node.proofs.fabric_id,
                epoch=str(node.author.run),
                fabric=node.mesh.fabric_now,
                now=self._now,
                node=node.id,
                accounts=node.accounts,
                publish=self._publish,
                events=node.keeper.events,
                gauges=self._gauges,
                holders=asker.holders,
                ask=asker.ask,
            )
        )

    def open(self, path: Path) -> ControlServer:
        """Its socket.

        Raises:
            TelaError: the place cannot be had.
        """
        return ControlServer(self.app, path)

    def _publish(self, records: Sequence[Record]) -> list[bool]:
        """Merge records that a face handed in, and tell the fabric of those that are news."""
        news: list[bool] = []
        for record in records:
            before = self._node.replica.version
            self._node.mesh.publish(record)
            news.append(self._node.replica.version != before)
        return news

    def rest(self) -> None:
        """Nobody may be looking any more: then the hubs need not tell this node how busy the others are."""
        if self._looked_at is not None and self._now() - self._looked_at > UNWATCHED_S:
            self._looked_at = None
            self._node.mesh.subscribe(on=False)

    def _gauges(self) -> dict[str, Gauge]:
        if self._looked_at is None:
            self._node.mesh.subscribe()
        self._looked_at = self._now()
        return self._node.mesh.gauges()

    def _hubs(self) -> list[str]:
        return [row.id for row in self._node.view().nodes.values() if row.is_hub and row.rank is not Rank.LEFT]

    def _log_of(self, slot: str) -> Path | None:
        if not slot:
            own = self._node.state / NODE_LOG
            return own if own.exists() else None  # it writes to a terminal
        engines = self._node.engines
        known = engines is not None and slot in engines.supervisors
        return engines.log_of(slot) if engines is not None and known else None
