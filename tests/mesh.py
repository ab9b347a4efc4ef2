"""Whole nodes' meshes for tests: real links, real handshakes, over whichever network is given."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

from gossip.mesh import Identity, Mesh
from gossip.peer import Peer
from gossip.topology import Address
from gossip.transport import Network
from registry.author import Author
from registry.kinds import Node
from registry.lifecycle import Rank
from registry.replica import Replica
from registry.views import Snapshot, Views
from tests.people import FABRIC, FOUNDING, MEMBER, Person, certificate, membership


class WallClock:
    """A wall that stands still; timers use the loop's time."""

    def __init__(self, wall_s: float = 1_800_000_000.0) -> None:
        self.wall_s = wall_s

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return self.wall_s

    def fabric(self) -> float:
        return self.wall_s


class MeshNode:
    """One node that knows the charter and its own proofs, and nothing else."""

    def __init__(
        self,
        person: Person,
        network: Network,
        *,
        listen: str | None = None,
        hubs: list[Address] | None = None,
        proofs=None,
        run: int = 1,
    ) -> None:
        self.person = person
        self.replica = Replica()
        self.author = Author(person.key, person.sign, run)
        admission, certified = proofs or (membership(), certificate(person))
        for record in (FOUNDING.charter, admission, certified):
            self.replica.apply(record)
        self.peer = Peer(replica=self.replica, author=self.author, is_hub=listen is not None)
        self.views = Views(self.replica, FABRIC)
        self.hubs = hubs if hubs is not None else []
        self.mesh = Mesh(
            identity=Identity(
                seed=person.seed,
                key=person.key,
                fabric_id=FABRIC,
                membership=admission,
                certificate=certified,
            ),
            peer=self.peer,
            network=network,
            clock=WallClock(),
            rng=Random(person.number),
            known=lambda: self.hubs,
            listen=listen,
        )
        self.task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.person.id

    def view(self) -> Snapshot:
        return self.views.at(1_800_000_000.0)

    async def start(self) -> None:
        urls = await self.mesh.listen()
        roles = ("ingress", "relay") if urls else ("worker",)
        body = Node(host=f"h{self.person.number}", member=MEMBER.key, roles=roles, urls=urls)
        self.mesh.tell(lambda peer: peer.announce(body, Rank.SERVING))
        self.task = asyncio.get_running_loop().create_task(self.mesh.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def address(self, *, ingress: bool = True) -> Address:
        return Address(self.person.key, self.mesh.urls, ingress)


@asynccontextmanager
async def started(*nodes: MeshNode):
    """Nodes running until the block ends."""
    for node in nodes:
        await node.start()
    try:
        yield
    finally:
        for node in nodes:
            await node.stop()


async def until(condition, *, within: float = 10.0) -> None:
    """Wait for a condition, a short step at a time."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)
