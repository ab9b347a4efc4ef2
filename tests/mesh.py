"""Whole nodes' meshes for tests: real links, real handshakes, over whichever network is given."""

import asyncio
from contextlib import asynccontextmanager
from operator import methodcaller
from random import Random

from gossip.mesh import Identity, Mesh
from gossip.peer import Peer
from gossip.topology import Address
from gossip.transport import Network
from registry.acts import subject
from registry.author import Author
from registry.kinds import Acceptance, Act, Invite, Membership, Node, Verb
from registry.lifecycle import Rank
from registry.record import Record
from registry.replica import Replica
from registry.views import Snapshot, Views
from tests.people import FABRIC, FOUNDING, OPERATOR, Person, certificate, membership

WALL_S = 1_800_000_000.0
DAY_S = 86_400.0


class WallClock:
    """A wall that stands still unless a test moves it; timers use the loop's time."""

    def __init__(self, wall_s: float = WALL_S) -> None:
        self.wall_s = wall_s

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return self.wall_s

    def fabric(self) -> float:
        return self.wall_s


class Guest:
    """A person with an invite: the records from the operator's offer to the certificate of one node."""

    def __init__(
        self,
        number: int,
        *,
        invite: "Guest | None" = None,
        by: Person = OPERATOR,
        accept_by: float = WALL_S + DAY_S,
        days: int = 90,
        roles: tuple[str, ...] = ("worker",),
        max_nodes: int = 2,
    ) -> None:
        self.node = Person(number)
        self.member = Person(number + 10_000)
        self.token: Person = (
            invite.token if invite else Person(number + 20_000)
        )  # the same for two who share one invite
        body = Invite(
            key=self.token.key, provider="guests", roles=roles, accept_by=accept_by, days=days, max_nodes=max_nodes
        )
        self.invite: Record = invite.invite if invite else by.write(body, self.token.id, seq=1)
        self.membership = self.join()
        self.certificate = certificate(self.node, by=self.member, roles=roles)

    @property
    def proofs(self) -> tuple[Record, ...]:
        return self.membership, self.certificate, self.invite

    def join(self, **changes) -> Record:
        body = {"provider": "guests", "roles": ("worker",), "not_after": None, "max_nodes": 2, **changes}
        return self.token.write(Membership(member=self.member.key, **body), self.member.id, seq=1)

    def accepted(self, by: Person, *, at: float = WALL_S, renewed: float | None = None, seq: int = 1) -> Record:
        body = Acceptance(member=self.member.key, at=at, renewed=at if renewed is None else renewed)
        return by.write(body, self.token.id, seq=seq)


def order(verb: Verb, target: str, *, by: Person = OPERATOR, seq: int = 1, reason: str = "") -> Record:
    """An operator's act."""
    return by.write(Act(verb=verb, target=target, reason=reason, at=WALL_S), subject(verb, target), seq=seq)


class MeshNode:
    """One node that knows the charter and its own proofs, and nothing else."""

    def __init__(
        self,
        person: Person,
        network: Network,
        *,
        listen: str | None = None,
        hubs: list[Address] | None = None,
        proofs: tuple[Record, ...] = (),
        anchors: tuple[Person, ...] = (),
        run: int = 1,
        clock: WallClock | None = None,
        knows: tuple[Record, ...] = (),
        accounts: bool = False,
    ) -> None:
        self.person = person
        self.clock = clock or WallClock()
        self.replica = Replica()
        self.author = Author(person.key, person.sign, run)
        self.own = proofs or (membership(), certificate(person))
        for record in (FOUNDING.charter, *self.own, *knows):
            self.replica.apply(record)
        self.peer = Peer(replica=self.replica, author=self.author, is_hub=listen is not None, accounts=accounts)
        self.views = Views(self.replica, FABRIC)
        self.hubs = hubs if hubs is not None else []
        self.mesh = Mesh(
            identity=Identity(seed=person.seed, key=person.key, fabric_id=FABRIC),
            peer=self.peer,
            network=network,
            clock=self.clock,
            rng=Random(person.number + run),
            known=lambda: self.hubs,
            proofs=self.proofs,
            standing=lambda: self.view().standing,
            anchors=lambda: frozenset(each.key for each in anchors),
            accounts=accounts,
            listen=listen,
        )
        self.task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.person.id

    def view(self) -> Snapshot:
        return self.views.at(self.clock.wall())

    def proofs(self) -> tuple[Record, ...]:
        """What it shows: its own records, and where an invite is among them the acceptance it holds."""
        invites = [record.key.id for record in self.own if record.key.kind == "invite"]
        words = [entry.record for entry in self.replica.of_kind("acceptance") if entry.record.key.id in invites]
        return (*self.own, *words[:1])

    def tell(self, *records: Record) -> None:
        """Publish records here, as a control API would."""
        for record in records:
            self.mesh.tell(methodcaller("publish", record))

    def refusal(self, other: "MeshNode") -> str | None:
        """Why a node that it dials would not have it."""
        refused = self.mesh.refused.get(other.id)
        return refused.code if refused is not None else None

    async def start(self) -> None:
        urls = await self.mesh.listen()
        roles = ("ingress", "relay") if urls else ("worker",)
        member = next(record.key.owner for record in self.own if record.key.kind == "certificate")
        body = Node(host=f"h{self.person.number}", member=member, roles=roles, urls=urls)
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
