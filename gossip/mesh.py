"""The shell around a peer's brain: listens, dials, feeds frames and time in, and does what the brain says."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from gossip.errors import LocalProtocolError
from gossip.frames import CAPABILITY
from gossip.handshake import Initiator, ReplayGuard, Responder, network_key
from gossip.hello import REFUSALS, Hello, Verdict, encode_hello, judge
from gossip.instructions import Drop, Instruction, Send
from gossip.link import Hooks, Link
from gossip.muxevents import ResetCode
from gossip.peer import Contact, Peer
from gossip.session import Session, Up
from gossip.stream import Stream, StreamReset
from gossip.topology import Address, redial_s, targets
from gossip.transport import Listener, Network
from registry.clock import Clock, fabric_offset
from registry.errors import TelaError
from registry.kinds import HUB_ROLES
from registry.record import Record
from registry.replica import Replica

log = logging.getLogger(f"tela.{__name__}")

MAX_HALF_OPEN = 256  # strangers that connected and have not proved a key; beyond, new ones are turned away
LOOK_S = 1.0  # how often the nodes to be linked to are looked up
LINGER_S = 0.25  # what a farewell may take
STABLE_S = 5.0  # a link that lasted this long was no fluke: dial again at once when it breaks

Serve = Callable[[Stream], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this node is on the fabric."""

    seed: bytes  # of its Ed25519 node key
    key: bytes
    fabric_id: bytes
    membership: Record
    certificate: Record
    release: str = ""


class Mesh:
    """All links of one node. Mutable; lives inside `run`.

    Args:
        identity: this node's keys and proofs.
        peer: its brain.
        network: where links are dialled and taken.
        clock: the wall clock for pings and expiry; timers use the loop's time.
        rng: jitter and keys' entropy come from it; give a `SystemRandom` outside tests.
        known: where other nodes accept links, asked again whenever something may have changed.
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
        listen: str | None = None,
    ) -> None:
        self.urls: tuple[str, ...] = ()
        self.changed = asyncio.Event()  # set on every change of the replica or the links; watchers clear it
        self._identity = identity
        self._peer = peer
        self._network = network
        self._clock = clock
        self._rng = rng
        self._known = known
        self._listen = listen
        self._links: dict[int, Link] = {}
        self._by_node: dict[str, Link] = {}
        self._strangers: dict[int, Link] = {}  # connected or being dialled, nothing proved yet
        self._numbers = count(1)
        self._serve: dict[int, Serve] = {}
        self._dialling: set[bytes] = set()
        self._guard = ReplayGuard()
        self._nk = network_key(identity.fabric_id)
        self._admitted: dict[int, Verdict] = {}  # by link: two to one node may be under way at once
        self._tasks: asyncio.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._listener: Listener | None = None

    @property
    def replica(self) -> Replica:
        """The registry this mesh keeps in step."""
        return self._peer.replica

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
                self._tasks = tasks
                try:
                    while True:
                        self._dial_targets(tasks)
                        await asyncio.sleep(LOOK_S)
                finally:
                    self._tasks = None  # handlers may take a moment to end; streams that open meanwhile are refused
        finally:
            self._end()

    def _dial_targets(self, tasks: asyncio.TaskGroup) -> None:
        for target in self._targets():
            if target.key not in self._dialling:
                self._dialling.add(target.key)
                tasks.create_task(self._keep_linked(target.key))

    def _targets(self) -> tuple[Address, ...]:
        if self._is_leaving:
            return ()
        return targets(self._identity.key, self._listen is not None, self._known())

    def _end(self) -> None:
        self._is_over = True
        if self._listener is not None:
            self._listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for link in [*self._links.values(), *self._strangers.values()]:
            link.abort("this node stops")

    async def farewell(self) -> None:
        """Say LEFT and goodbye, and let it leave; then cancel `run`. Nothing is dialled any more."""
        self._is_leaving = True
        if self._listener is not None:
            self._listener.close()
        self._obey(self._peer.leave())
        for link in list(self._links.values()):
            link.close("left")
        await asyncio.sleep(LINGER_S if self._by_node else 0.0)

    # --- what others use ------------------------------------------------------------------------------------

    def serve(self, kind: int, handler: Serve) -> None:
        """Hand streams of a kind to `handler`, one task each. Others are refused."""
        self._serve[kind] = handler

    def open(self, node: str, kind: int, head: bytes) -> Stream:
        """Open a stream to a node.

        Raises:
            LocalProtocolError: no live link to it.
        """
        link = self._by_node.get(node)
        if link is None:
            raise LocalProtocolError(f"no link to {node}", code="not_linked")
        return link.open(kind, head)

    def is_linked(self, node: str) -> bool:
        """Whether a stream to a node can be opened now."""
        return node in self._by_node

    def linked(self) -> frozenset[str]:
        """The ids of all nodes with a live link."""
        return frozenset(self._by_node)

    def tell(self, say: Callable[[Peer], list[Instruction]]) -> None:
        """Let the brain say something: publish a record, announce a state."""
        self._obey(say(self._peer))

    # --- dialling -------------------------------------------------------------------------------------------

    async def _keep_linked(self, key: bytes) -> None:
        attempt = 0
        try:
            while (target := self._wanted(key)) is not None:
                held = next((link for link in self._links.values() if link.peer == key and link.is_live), None)
                if held is None:
                    await asyncio.sleep(redial_s(attempt, self._rng))
                    held = await self._dial(target, target.urls[attempt % len(target.urls)])
                attempt += 1
                if held is not None:
                    since = self._loop.time()
                    await held.gone.wait()
                    attempt = 0 if self._loop.time() - since >= STABLE_S else attempt
        finally:
            self._dialling.discard(key)

    def _wanted(self, key: bytes) -> Address | None:
        return next((target for target in self._targets() if target.key == key), None)

    async def _dial(self, target: Address, url: str) -> Link | None:
        shake = Initiator(
            seed=self._identity.seed,
            network=self._nk,
            payload=self._hello(),
            pinned=target.key,
            ephemeral_seed=self._rng.randbytes(32),
            nonce=self._rng.randbytes(16),
        )
        try:
            link = await self._network.dial(url, lambda: self._make(shake))
        except (OSError, TimeoutError) as error:
            log.info("hub not reached", extra={"url": url, "error": str(error) or "no answer in time"})
            return None
        assert isinstance(link, Link)
        why_not = await asyncio.shield(link.settled)
        if why_not:
            log.warning("link refused", extra={"url": url, "reason": why_not})
            return None
        return link

    def _accept(self) -> Link:
        shake = Responder(
            seed=self._identity.seed,
            network=self._nk,
            payload=self._hello(),
            ephemeral_seed=self._rng.randbytes(32),
            guard=self._guard,
        )
        link = self._make(shake)
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

    def _hello(self) -> bytes:
        proofs = (self._identity.membership.raw, self._identity.certificate.raw)
        return encode_hello(
            Hello(
                capability=CAPABILITY,
                release=self._identity.release,
                hub=self._listen is not None,
                accounts=False,
                proofs=proofs,
            )
        )

    def _admit(self, number: int, key: bytes, payload: bytes) -> str | None:
        verdict = judge(payload, key, self.replica, self._identity.fabric_id, self.fabric_now())
        if verdict.refusal is not None:
            log.info("link not admitted", extra={"reason": REFUSALS[verdict.refusal]})
            return verdict.refusal
        self._admitted[number] = verdict
        return None

    # --- hooks of links -------------------------------------------------------------------------------------

    @property
    def _hooks(self) -> Hooks:
        return Hooks(up=self._up, control=self._control, opened=self._opened, heard=self._heard, down=self._down)

    def _up(self, link: Link, up: Up) -> None:
        del self._strangers[link.number]
        verdict = self._admitted.pop(link.number)
        assert verdict.hello is not None
        contact = Contact(
            up.peer,
            is_hub=verdict.hello.hub and not HUB_ROLES.isdisjoint(verdict.roles),
            accounts=verdict.hello.accounts and "ingress" in verdict.roles,
            initiator=self._identity.key if link.is_initiator else up.peer,
        )
        self._links[link.number] = link
        self._by_node[link.node] = link
        log.info("link up", extra={"peer": link.node, "address": link.address()})
        out: list[Instruction] = []
        for proof in verdict.proofs:
            out += self._peer.publish(proof)
        now, wall = self._loop.time(), self._clock.wall()
        self._obey(out + self._peer.link_up(link.number, contact, now, wall))

    def _down(self, link: Link, reason: str) -> None:
        self._strangers.pop(link.number, None)
        self._admitted.pop(link.number, None)
        if self._links.pop(link.number, None) is None:
            return
        log.info("link down", extra={"peer": link.node, "reason": reason})
        if self._by_node.get(link.node) is link:
            del self._by_node[link.node]
            for other in self._links.values():
                if other.node == link.node:
                    self._by_node[link.node] = other
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

    def _opened(self, _: Link, stream: Stream) -> None:
        handler = self._serve.get(stream.kind)
        if handler is None or self._tasks is None:
            stream.reset(ResetCode.REFUSED)
            stream.close()
            return
        self._tasks.create_task(self._handle(handler, stream))

    async def _handle(self, handler: Serve, stream: Stream) -> None:
        try:
            await handler(stream)
        except StreamReset:
            pass  # the other side left; there is nobody to tell
        except asyncio.CancelledError:
            if not stream.is_lost or self._is_over:
                raise
        except Exception:
            log.exception("stream handler failed", extra={"peer": stream.peer})
            stream.reset(ResetCode.INTERNAL)
        finally:
            stream.close()

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
