"""A deterministic simulator: the real gossip cores on virtual time, over links that lose, repeat and reorder.

Everything that may differ between two runs comes from one seeded `Random`, so a failing seed replays exactly.
Links here are already authenticated; the handshake and the mux have their own tests.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from gossip.instructions import Drop, Instruction, Send
from gossip.line import Contact
from gossip.peer import Peer
from gossip.topology import Address, redial_s, targets
from registry.author import Author
from registry.kinds import Node, Offer, Replica
from registry.lifecycle import Rank
from registry.views import Snapshot, snapshot
from tests.people import FABRIC, MEMBER, Person, certificate, registry_of

WALL_S = 1_800_000_000.0
LOOK_S = 0.05  # how often a script looks at the state while it waits


@dataclass(kw_only=True)
class Weather:
    """What the network does to messages."""

    latency_s: float = 0.001
    jitter_s: float = 0.0  # more than the latency reorders
    loss: float = 0.0
    repeat: float = 0.0


@dataclass
class SimNode:
    """One node: its brain, its links and what it should be."""

    person: Person
    is_hub: bool
    peer: Peer
    author: Author
    run: int
    links: dict[int, "SimNode"] = field(default_factory=dict)
    is_alive: bool = True
    is_frozen: bool = False
    skew_s: float = 0.0

    @property
    def id(self) -> str:
        return self.person.id

    def roots(self) -> list[bytes]:
        return [shelf.digest.root() for shelf in self.peer.replica.shelves.values()]

    def view(self) -> Snapshot:
        return snapshot(self.peer.replica, FABRIC, WALL_S)


class Sim:
    """A fabric in virtual time. `hubs` and `leaves` say how many; every node is certified from the start."""

    def __init__(self, *, hubs: int, leaves: int, seed: int = 0, weather: Weather | None = None) -> None:
        self.now = 0.0
        self.rng = Random(seed)
        self.weather = weather or Weather()
        self.sent = 0
        self.sent_b = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._numbers = count(1)
        self._parted: set[frozenset[str]] = set()
        people = [Person(1000 + n) for n in range(hubs + leaves)]
        self._certificates = [certificate(person) for person in people]
        self.nodes = [self._born(person, at < hubs, run=1) for at, person in enumerate(people)]
        for node in self.nodes:
            self._start(node)

    # --- the script's verbs

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.until(lambda: False, within=seconds)

    def until(self, condition: Callable[[], bool], *, within: float) -> float | None:
        """Let time pass until a condition holds; returns how long it took, None when it never did."""
        start, end = self.now, self.now + within
        while not condition():
            if self.now >= end:
                return None
            self._pass(min(self.now + LOOK_S, end))
        return self.now - start

    def _pass(self, to: float) -> None:
        while self._queue and self._queue[0][0] <= to:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = to

    def serve(self, node: SimNode, model: str = "m", *, rank: Rank = Rank.SERVING, slot: str = "e0") -> None:
        """A node publishes the state of an engine."""
        body = Replica(node_run=node.run, engine="demo", models=(Offer(id=model),))
        self._obey(node, node.peer.publish(node.author.write(body, f"{node.id}/{slot}", rank=rank)))

    def measure(self, node: SimNode, **values: int) -> None:
        """A node says what it measures."""
        self._obey(node, [*node.peer.gauges.measure(values, self.now)])

    def subscribe(self, node: SimNode) -> None:
        """Somebody looks at gauges on a node."""
        self._obey(node, [*node.peer.gauges.subscribe(self.now, on=True)])

    def crash(self, node: SimNode) -> None:
        """kill -9: its links break at once and nothing is said."""
        node.is_alive = False
        for link in list(node.links):
            self._break(node, link)

    def freeze(self, node: SimNode) -> None:
        """SIGSTOP: nothing comes from it and its links stay up."""
        node.is_frozen = True

    def restart(self, at: int) -> SimNode:
        """A new run of a crashed node, with an empty replica."""
        old = self.nodes[at]
        node = self.nodes[at] = self._born(old.person, old.is_hub, run=old.run + 1)
        self._start(node)
        return node

    def part(self, one: list[SimNode], other: list[SimNode]) -> None:
        """Nothing passes between two groups any more, and their links break."""
        for a in one:
            for b in other:
                self._parted.add(frozenset((a.id, b.id)))
                for link, there in list(a.links.items()):
                    if there is b:
                        self._break(a, link)

    def heal(self) -> None:
        """Everything passes again."""
        self._parted.clear()

    def alive(self) -> list[SimNode]:
        return [node for node in self.nodes if node.is_alive]

    def agreed(self) -> bool:
        """Whether every living replica is equal."""
        roots = [node.roots() for node in self.alive()]
        return all(root == roots[0] for root in roots)

    def all_see(self, seen: Callable[[Snapshot], bool]) -> bool:
        return all(seen(node.view()) for node in self.alive() if not node.is_frozen)

    # --- inside

    def _born(self, person: Person, is_hub: bool, *, run: int) -> SimNode:
        registry = registry_of(*self._certificates)
        author = Author(person.key, person.sign, run)
        peer = Peer(replica=registry, author=author, is_hub=is_hub)
        return SimNode(person, is_hub, peer, author, run)

    def _start(self, node: SimNode) -> None:
        roles = ("ingress", "relay") if node.is_hub else ("worker",)
        urls = (f"ws://h:{node.person.number}",) if node.is_hub else ()
        body = Node(host=f"h{node.person.number}", member=MEMBER.key, roles=roles, urls=urls)
        self._obey(node, node.peer.announce(body, Rank.SERVING))
        self._dial_loop(node)

    def _dial_loop(self, node: SimNode) -> None:
        known = [Address(each.person.key, ("ws://x",), ingress=True) for each in self.nodes if each.is_hub]
        for target in targets(node.person.key, node.is_hub, known):
            self._dial(node, target.key, 0)

    def _dial(self, node: SimNode, key: bytes, attempt: int) -> None:
        def go() -> None:
            there = next(each for each in self.nodes if each.person.key == key)
            if not node.is_alive or node not in self.nodes or there in node.links.values():
                return
            if not there.is_alive or there.is_frozen or frozenset((node.id, there.id)) in self._parted:
                self._dial(node, key, attempt + 1)
            else:
                self._connect(node, there)

        self._at(self.now + redial_s(attempt, self.rng) + 0.001, go)

    def _connect(self, dialler: SimNode, there: SimNode) -> None:
        link = next(self._numbers)
        for node, other in ((dialler, there), (there, dialler)):
            node.links[link] = other
        for node, other in ((dialler, there), (there, dialler)):
            contact = Contact(other.person.key, other.is_hub, False, dialler.person.key)
            if link in node.links:
                self._obey(node, node.peer.link_up(link, contact, self.now, self._wall(node)))

    def _break(self, node: SimNode, link: int) -> None:
        there = node.links.pop(link, None)
        if there is None:
            return
        there.links.pop(link, None)
        for end, other in ((node, there), (there, node)):
            if end.is_alive and not end.is_frozen:
                self._obey(end, end.peer.link_down(link, self.now))
                if other.is_hub:
                    self._dial(end, other.person.key, 1)

    def _obey(self, node: SimNode, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(link=link, frame=frame):
                    self._send(node, link, frame)
                case Drop(link=link):
                    self._break(node, link)
        self._schedule_tick(node)

    def _send(self, node: SimNode, link: int, frame: bytes) -> None:
        there = node.links.get(link)
        if there is None or self.rng.random() < self.weather.loss:
            return
        self.sent += 1
        self.sent_b += len(frame)
        for _ in range(1 + (self.rng.random() < self.weather.repeat)):
            delay = self.weather.latency_s + self.rng.random() * self.weather.jitter_s
            self._at(self.now + delay, lambda: self._deliver(there, link, frame))

    def _deliver(self, node: SimNode, link: int, frame: bytes) -> None:
        if node.is_alive and not node.is_frozen and link in node.links:
            self._obey(node, node.peer.receive(link, frame, self.now, self._wall(node)))

    def _schedule_tick(self, node: SimNode) -> None:
        due = node.peer.next_deadline()
        if due is not None:
            self._at(max(due, self.now), lambda: self._tick(node, due))

    def _tick(self, node: SimNode, due: float) -> None:
        if node.is_alive and not node.is_frozen and node.peer.next_deadline() == due:
            self._obey(node, node.peer.tick(self.now, self._wall(node)))

    def _wall(self, node: SimNode) -> float:
        return WALL_S + self.now + node.skew_s

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), act))
