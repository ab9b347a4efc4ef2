"""The shell around a peer's brain: listens, dials, feeds frames and time in, and does what the brain says."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from gossip.accepting import acceptance
from gossip.dialling import Dialler
from gossip.errors import LocalProtocolError
from gossip.gate import Gate
from gossip.gauges import Gauge
from gossip.greeter import Greeter
from gossip.handshake import Initiator, Responder
from gossip.hello import REFUSALS
from gossip.instructions import Drop, Instruction, Send
from gossip.invited import Door
from gossip.link import Hooks, Link
from gossip.loopback import Loopback
from gossip.peer import Peer
from gossip.serving import Serve, Serving
from gossip.session import Refused, Session, Up
from gossip.stream import Stream
from gossip.topology import Address, targets
from gossip.transport import Listener, Network
from gossip.verdict import Verdict
from registry.clock import Clock, fabric_offset
from registry.errors import TelaError
from registry.ids import key_id
from registry.record import Record
from registry.replica import Replica
from registry.validity import Standing

log = logging.getLogger(f"tela.{__name__}")

MAX_HALF_OPEN = 256  # strangers that connected and have not proved a key; beyond, new ones are turned away
LOOK_S = 1.0  # how often it is looked up who is to be linked to, and who may not be any more
LINGER_S = 0.25  # what a farewell may take
SETTLE_S = 30.0  # a hub that started hears of earlier acceptances within this, or from nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this node is on the fabric."""

    seed: bytes  # of its Ed25519 node key
    key: bytes
    fabric_id: bytes
    release: str = ""


class Mesh:
    """All links of one node. Mutable; lives inside `run`.

    Args:
        identity: this node's keys.
        peer: its brain.
        network: where links are dialled and taken.
        clock: the wall clock for pings and expiry; timers use the loop's time.
        rng: jitter and keys' entropy come from it; give a `SystemRandom` outside tests.
        known: where other nodes accept links, asked again whenever something may have changed.
        proofs: what shows this node's right to be here, as it is now: membership, certificate, and where an invite is
            behind them that invite and an acceptance of it.
        standing: what counts now of all that is known.
        anchors: keys of hubs named by the charter, the configuration or a token; they need no acceptance.
        accounts: whether this node holds the accounts grant and wants that shelf.
        listen: host:port to take links at; None for a leaf.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        peer: Peer,
        network: Network,
        clock: Clock,
        rng: Random,
        known: Callable[[], Iterable[Address]],
        proofs: Callable[[], tuple[Record, ...]],
        standing: Callable[[], Standing],
        anchors: Callable[[], frozenset[bytes]],
        accounts: bool = False,
        listen: str | None = None,
    ) -> None:
        self.urls: tuple[str, ...] = ()
        self.refused: dict[str, Refused] = {}  # by id, the nodes we dial that would not have us, or we them
        self.changed = asyncio.Event()  # set on every change of the replica or the links; watchers clear it
        self._identity = identity
        self._peer = peer
        self._network = network
        self._clock = clock
        self._known = known
        self._standing = standing
        self._anchors = anchors
        self._listen = listen
        self._links: dict[int, Link] = {}
        self._by_node: dict[str, Link] = {}  # the one the brain kept of each node; it may be closing
        self._strangers: dict[int, Link] = {}  # connected or being dialled, nothing proved yet
        self._numbers = count(1)
        self._serving = Serving()
        self._loopback = Loopback(key_id(identity.key), self._serving.opened)
        self._dialler = Dialler(targets=self._targets, held=self._held, connect=self._dial, rng=rng)
        self._gate = Gate(self._door, is_ready=self._is_ready)
        self._greeter = Greeter(
            seed=identity.seed,
            fabric_id=identity.fabric_id,
            release=identity.release,
            is_hub=listen is not None,
            accounts=accounts,
            proofs=proofs,
            wall=clock.wall,
            rng=rng,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._listener: Listener | None = None

    @property
    def replica(self) -> Replica:
        """The registry this mesh keeps in step."""
        return self._peer.replica

    @property
    def superseded(self) -> Record | None:
        """What another live run of this node's key says of itself; this one should stop. None: there is none."""
        return self._peer.superseded

    def fabric_now(self) -> float:
        """Unix time as the linked hubs see it."""
        return self._clock.wall() + fabric_offset(self._peer.offsets())

    # --- life -----------------------------------------------------------------------------------------------

    async def listen(self) -> tuple[str, ...]:
        """Take links, when this node is to.

        Raises:
            TelaError: when the address cannot be had.
        """
        if self._listen is not None:
            self._listener = await self._network.listen(self._listen, self._accept)
            self.urls = self._listener.urls
        return self.urls

    async def run(self) -> None:
        """Hold the links that should be held until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._serving.tasks = tasks
                try:
                    while True:
                        self._dialler.look(tasks)
                        self._look()
                        await asyncio.sleep(LOOK_S)
                finally:
                    self._serving.tasks = None  # those under way may take a moment; what opens meanwhile is refused
        finally:
            self._end()

    def _targets(self) -> tuple[Address, ...]:
        if self._is_leaving:
            return ()
        return targets(self._identity.key, self._listen is not None, self._known())

    def _held(self, key: bytes) -> Link | None:
        return self._held_by(key_id(key))

    def _look(self) -> None:
        """Turn away whom nothing entitles any more, and say who is accepted and still in use."""
        live = [number for number, link in self._links.items() if link.is_live]
        for number, code in self._gate.lapsed(live):
            self._expel(number, code)
        live = [number for number in live if number in self._links]
        for subject, body in [*self._gate.owed(live), *self._gate.renewals(live)]:
            self._obey(self._peer.say(body, subject))

    def _end(self) -> None:
        self._is_over = self._serving.is_over = True
        if self._listener is not None:
            self._listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for link in [*self._links.values(), *self._strangers.values()]:
            link.abort("this node stops")
        self._loopback.close()

    async def farewell(self) -> None:
        """Say LEFT and goodbye, and let it leave; then cancel `run`. Nothing is dialled any more."""
        self._is_leaving = True
        if self._listener is not None:
            self._listener.close()
        self._obey(self._peer.leave())
        for link in list(self._links.values()):
            link.close("left")
        await asyncio.sleep(LINGER_S if self._links else 0.0)

    # --- what others use ------------------------------------------------------------------------------------

    def serve(self, kind: int, serve: Serve) -> None:
        """Hand streams of a kind to `serve`, one task each. Others are refused."""
        self._serving.add(kind, serve)

    def open(self, node: str, kind: int, head: bytes) -> Stream:
        """Open a stream to a node, or to this one itself.

        Raises:
            LocalProtocolError: no live link to it.
        """
        link = self._way_to(node)
        if link is None:
            raise LocalProtocolError(f"no link to {node}", code="not_linked")
        return link.open(kind, head)

    def is_linked(self, node: str) -> bool:
        """Whether a stream to a node can be opened now."""
        return self._way_to(node) is not None

    def linked(self) -> frozenset[str]:
        """The ids of all other nodes with a live link."""
        return frozenset(node for node in self._by_node if self._held_by(node) is not None)

    def measure(self, values: Mapping[str, int]) -> None:
        """Say what this node measures now: names of [a-z_], integers. The same again costs nothing.

        Raises:
            ValueError: more than 16, or one that no frame takes.
        """
        self._obey([*self._peer.gauges.measure(values, self._loop.time())])

    def subscribe(self, *, on: bool = True) -> None:
        """Ask for the gauges of all nodes, or for no more of them."""
        self._obey([*self._peer.gauges.subscribe(self._loop.time(), on=on)])

    def gauges(self) -> dict[str, Gauge]:
        """What nodes said they measure, by id, each with the loop's time when that was so."""
        return self._peer.gauges.all()

    def _way_to(self, node: str) -> Link | Loopback | None:
        if node == self._loopback.node:
            return self._loopback if self._loopback.is_live else None
        return self._held_by(node)

    def _held_by(self, node: str) -> Link | None:
        link = self._by_node.get(node)
        return link if link is not None and link.is_live else None

    def tell(self, say: Callable[[Peer], list[Instruction]]) -> None:
        """Let the brain say something: publish a record, announce a state."""
        self._obey(say(self._peer))

    def publish(self, record: Record) -> None:
        """Merge a record and tell the fabric of it, when it is news."""
        self._obey(self._peer.publish(record))

    # --- dialling -------------------------------------------------------------------------------------------

    async def _dial(self, target: Address, url: str) -> Link | None:
        shake = self._greeter.to(target.key)
        try:
            link = await self._network.dial(url, lambda: self._make(shake))
        except (OSError, TimeoutError) as error:
            log.info("hub not reached", extra={"url": url, "error": str(error) or "no answer in time"})
            return None
        assert isinstance(link, Link)
        why_not = await asyncio.shield(link.settled)
        if why_not:
            if link.refused is not None:
                self.refused[link.node] = link.refused
            log.warning("link refused", extra={"url": url, "reason": why_not})
            return None
        return link

    def _accept(self) -> Link:
        link = self._make(self._greeter.answer())
        if self._is_over or self._half_open > MAX_HALF_OPEN:
            link.close("too many strangers")
        return link

    def _make(self, shake: Initiator | Responder) -> Link:
        number = next(self._numbers)
        link = Link(Session(shake, partial(self._admit, number)), self._hooks, number)
        self._strangers[number] = link
        return link

    @property
    def _half_open(self) -> int:
        return len(self._strangers)

    def _admit(self, number: int, key: bytes, payload: bytes) -> str | None:
        code = self._gate.admit(number, key, payload)
        if code is not None:
            log.info("link not admitted", extra={"peer": key_id(key), "reason": REFUSALS[code]})
        return code

    def _is_ready(self) -> bool:
        """Whether it would have heard of a member that another hub accepted before this one started."""
        return self._peer.has_agreed or self._loop.time() >= self._since + SETTLE_S or not self._targets()

    def _door(self) -> Door:
        return Door(self._identity.key, self._standing(), self.replica, self.fabric_now(), self._anchors())

    # --- hooks of links -------------------------------------------------------------------------------------

    @property
    def _hooks(self) -> Hooks:
        return Hooks(
            up=self._up,
            control=self._control,
            opened=lambda _, stream: self._serving.opened(stream),
            heard=self._heard,
            down=self._down,
        )

    def _up(self, link: Link, up: Up) -> None:
        del self._strangers[link.number]
        self._links[link.number] = link
        verdict = self._gate.entered(link.number)
        if verdict.refusal is not None:
            self._expel(link.number, verdict.refusal)
            return
        self.refused.pop(link.node, None)
        log.info("link up", extra={"peer": link.node, "address": link.address()})
        out = self._merge(verdict)
        contact = self._gate.contact(link.number, self._identity.key if link.is_initiator else up.peer)
        self._obey(out + self._peer.link_up(link.number, contact, self._loop.time(), self._clock.wall()))
        if link.is_live:  # the brain kept it: of two to one node the other stayed
            self._by_node[link.node] = link

    def _merge(self, verdict: Verdict) -> list[Instruction]:
        out: list[Instruction] = []
        for proof in verdict.proofs:
            out += self._peer.publish(proof)
        if verdict.accept is not None:
            subject, body = acceptance(verdict.accept, self.fabric_now())
            log.info("invite accepted", extra={"invite": subject, "member": key_id(body.member)})
            out += self._peer.say(body, subject)
        return out

    def _expel(self, number: int, code: str) -> None:
        link = self._links[number]
        log.warning("node turned away", extra={"peer": link.node, "reason": REFUSALS[code]})
        self._obey(self._peer.expel(number, code))

    def _down(self, link: Link, reason: str) -> None:
        self._strangers.pop(link.number, None)
        self._gate.forget(link.number)
        if self._links.pop(link.number, None) is None:
            return
        log.info("link down", extra={"peer": link.node, "reason": reason})
        if self._by_node.get(link.node) is link:
            del self._by_node[link.node]
        self._obey(self._peer.link_down(link.number, self._loop.time()))

    def _control(self, link: Link, payload: bytes) -> None:
        try:
            out = self._peer.receive(link.number, payload, self._loop.time(), self._clock.wall())
        except TelaError as error:
            link.close(f"broke the protocol: {error.message}")
            return
        self._obey(out)

    def _heard(self, link: Link) -> None:
        self._peer.heard(link.number, self._loop.time())

    # --- obeying --------------------------------------------------------------------------------------------

    def _obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            link = self._links.get(instruction.link)
            if link is None:
                continue
            match instruction:
                case Send(frame=frame):
                    link.control(frame)
                case Drop(reason=reason, is_clean=True):
                    link.close(reason)
                case Drop(reason=reason):
                    link.abort(reason)
        self.changed.set()
        self._arm()

    def _arm(self) -> None:
        deadline = None if self._is_over else self._peer.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._obey(self._peer.tick(self._loop.time(), self._clock.wall()))
