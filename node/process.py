"""One node: its replica, links, engines, door and control API, wired together for as long as it runs."""

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from gossip.mesh import Identity, Mesh
from gossip.peer import Peer
from gossip.topology import Address
from gossip.transport import Network
from node import remembering
from node.agent import Agent, Say
from node.config import NodeConfig
from node.control.server import ControlServer
from node.controlling import NODE_LOG, Controlling
from node.door import Door, open_door
from node.engines import Engines
from node.fabricdir import FabricDir
from node.keeper import Keeper
from node.known import addresses, anchors
from node.orders import Orders
from node.places import make_private
from node.platform.host import facts
from node.platform.limits import warn_at
from node.proofs import Proofs
from node.selfview import self_view
from node.statedir import keep_to, next_run_of
from node.tunnel import REQUEST
from registry.author import Author
from registry.clock import Clock
from registry.errors import TelaError
from registry.kinds import ACCOUNTS_ROLES, HUB_ROLES, Node, read_body
from registry.record import Record, seed_signer
from registry.replica import Replica
from registry.views import Snapshot, Views

log = logging.getLogger(f"tela.{__name__}")

VERSION = "0.1.0"
MEASURE_S = 1.0
LOOK_AT_CLOCK_S = 60.0  # a clock may be set while a node runs
REMEMBER_S = 10.0  # until what is news to a node that just started has come
CLOCK_REFUSE_S = 600.0
LOOK_S = 0.05  # changes that come together are looked at together
REMEMBER_EACH_S = 86_400.0


class NodeProcess:
    """One node. Lives inside `run`.

    Args:
        config: what it runs as.
        clock: the clocks.
        rng: dice; a `SystemRandom` outside tests.
        network: where links are made.
        say: narration for whoever started it.
    """

    def __init__(self, config: NodeConfig, *, clock: Clock, rng: Random, network: Network, say: Say) -> None:
        self.config = config
        self.clock = clock
        self.say = say
        self.state = Path(config.state)
        make_private(self.state)
        self.proofs = Proofs(config, clock)
        keep_to(self.state, self.proofs.fabric_id)
        self.replica = Replica()
        self.proofs.teach(self.replica)
        key, sign = seed_signer(config.seed)
        self.keeper = Keeper(self.state, self.replica, now=clock.now, wall=clock.wall, say=say)
        self.accounts = not ACCOUNTS_ROLES.isdisjoint(config.roles)
        self.before = self.keeper.load(key, accounts=self.accounts)
        self.author = Author(key, sign, self._next_run("node"))
        self.views = Views(self.replica, self.proofs.fabric_id)
        is_hub = config.listen is not None
        self.mesh = Mesh(
            identity=Identity(seed=config.seed, key=key, fabric_id=self.proofs.fabric_id, release=VERSION),
            peer=Peer(replica=self.replica, author=self.author, is_hub=is_hub, accounts=self.accounts),
            network=network,
            clock=clock,
            rng=rng,
            known=self._known,
            proofs=lambda: self.proofs.shown(self.replica),
            standing=lambda: self.view().standing,
            anchors=lambda: frozenset(self._named()),
            accounts=self.accounts,
            listen=config.listen,
        )
        self._rng = rng
        self._stopping = asyncio.Event()
        self._is_told = False  # to stop; it may also begin to by itself, before its job ends
        self._now = asyncio.Event()  # nobody wants to wait any longer
        self.trouble: TelaError | None = None  # why it ends although nobody told it to
        self.door: Door | None = None
        self.engines: Engines | None = None
        self.started = clock.wall()
        self._began = clock.now()
        self.version = VERSION
        self._face: Controlling | None = None
        self._closing: Callable[[], None] = lambda: None  # ends the control API

    @property
    def id(self) -> str:
        """The id of this node."""
        return self.author.id

    def stop(self) -> None:
        """Drain, say LEFT and end; told twice, do not wait for requests under way."""
        if self._is_told:
            self._now.set()
        self._is_told = True
        self._stopping.set()

    def view(self) -> Snapshot:
        """The registry as it is now."""
        return self.views.at(self.mesh.fabric_now())

    async def run(self) -> None:
        """Run until `stop`.

        Raises:
            TelaError: when an address cannot be had, the ledger not be opened, or another run of this node's key is
                alive.
        """
        listening = await self.mesh.listen()
        urls = self.config.advertise or listening
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            stack.callback(self.keeper.close)
            agent = self._agent(urls)
            background = [tasks.create_task(self.mesh.run())]
            await self._start(agent, stack, tasks, background)
            control = self._control(urls)
            if control is not None:
                tasks.create_task(control.serve())
                self._closing = control.close
            background.append(tasks.create_task(self._watch(tasks)))
            background.append(tasks.create_task(self._measure()))
            background.append(tasks.create_task(self._certify()))
            background.append(tasks.create_task(self._look_around(agent)))
            background.append(tasks.create_task(self._remember()))
            self._ready(urls)
            await self._stopping.wait()
            await self._leave(background)
        if self.trouble is not None:
            raise self.trouble

    async def _start(
        self,
        agent: Agent,
        stack: contextlib.AsyncExitStack,
        tasks: asyncio.TaskGroup,
        background: list[asyncio.Task[None]],
    ) -> None:
        if self.config.door is not None:
            self.door = await self._open_door(stack, tasks)
            agent.reached_at(self.door.url)
        agent.serve()
        if self.config.engines:
            self.engines = self._engines(agent)
            background += await self.engines.start(stack, tasks)
            self.mesh.serve(REQUEST, self.engines.worker.serve)

    def _ready(self, urls: tuple[str, ...]) -> None:
        http = self.door.url if self.door else ""
        row = self.view().nodes.get(self.id)
        self.say(
            {
                "event": "ready",
                "id": self.id,
                "name": row.name if row else "",
                "run": self.author.run,
                "links": list(urls),
                "http": http,
            }
        )
        gc.collect()
        gc.freeze()  # what lives from here on is walked no more by the collector, whose pauses are tail latency

    async def _leave(self, background: list[asyncio.Task[None]]) -> None:
        cut = 0
        if self.engines is not None:
            cut = await self.engines.stop(self._now, self._draining)
        if self.door is not None:
            await self.door.close()
        self._closing()
        await self.mesh.farewell()
        for task in background:
            task.cancel()
        served = self.engines.worker.served if self.engines else 0
        lived = self.clock.wall() - self.started
        self.say({"event": "left", "lived_s": round(lived, 1), "served": served, "cut": cut})

    def _draining(self, in_flight: int) -> None:
        self.say({"event": "draining", "in_flight": in_flight, "within_s": self.config.drain_s})

    # --- parts

    def _agent(self, urls: tuple[str, ...]) -> Agent:
        config = self.config
        body = Node(
            host=config.host,
            slot=config.slot,
            member=self.proofs.member,
            roles=config.roles,
            urls=urls,
            release=VERSION,
            started=self.started,
            prev=self.before.prev,
        )
        agent = Agent(
            author=self.author,
            mesh=self.mesh,
            node=body,
            wall=self.clock.wall,
            say=self.say,
            serve_to=config.serve_to,
        )
        for record in self.before.ghosts:
            agent.bury(record)
        return agent

    def _engines(self, agent: Agent) -> Engines:
        return Engines(
            self.config.engines,
            state=self.state,
            agent=agent,
            is_ingress=self._is_ingress,
            next_run=self._next_run,
            rng=self._rng,
            now=self.clock.now,
            drain_s=self.config.drain_s,
        )

    async def _open_door(self, stack: contextlib.AsyncExitStack, tasks: asyncio.TaskGroup) -> Door:
        assert self.config.door is not None
        return await open_door(
            self.config.door,
            mesh=self.mesh,
            author=self.author,
            view=self.view,
            unready=self._unready,
            state=self.state,
            policy=self.config.policy,
            deadline_s=self.config.request_deadline_s,
            rng=self._rng,
            stack=stack,
            tasks=tasks,
        )

    def _control(self, urls: tuple[str, ...]) -> ControlServer | None:
        if self.config.control is None:
            return None
        self._face = Controlling(self, lambda: self_view(self, urls, str(self.state / NODE_LOG)), self._rng)
        return self._face.open(Path(self.config.control))

    # --- what goes on while it runs

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        """Look at the registry after every change: orders to carry out, what to keep, what happened."""
        is_hub = self.config.listen is not None and not HUB_ROLES.isdisjoint(self.config.roles)
        orders = Orders(
            author=self.author,
            mesh=self.mesh,
            is_hub=is_hub,
            fleet=self.engines,
            started=lambda: self.mesh.fabric_now() - (self.clock.now() - self._began),
            fabric=self.mesh.fabric_now,
            say=self.say,
        )
        while True:
            view = self.view()
            orders.look(view.standing, tasks)
            await self.keeper.look(view)
            if self._face is not None:
                self._face.app.notice()
            if (other := self.mesh.superseded) is not None:
                self._give_way(other)
            await self.mesh.changed.wait()
            await asyncio.sleep(LOOK_S)
            self.mesh.changed.clear()

    async def _measure(self) -> None:
        """Say how much is under way; what does not change costs nothing."""
        while True:
            if self.engines is not None:
                self.mesh.measure({"in_flight": self.engines.in_flight})
            if self._face is not None:
                self._face.rest()
            await asyncio.sleep(MEASURE_S)

    def _give_way(self, other: Record) -> None:
        body = read_body(other)
        host = body.host if isinstance(body, Node) else "another host"
        self.trouble = TelaError(
            f"another run of this node's key is alive, on {host}: run {other.order.run}, this is {self.author.run}",
            hint=f"two nodes must not share one state directory; {self.state} belongs to one of them",
            code="superseded",
        )
        self.stop()

    async def _certify(self) -> None:
        is_due = self.proofs.is_overtaken(self.replica)  # later, one above it is its member's will
        while True:
            if is_due or self.proofs.is_due():
                is_due = False
                record = self.proofs.certify_again(self.replica)
                if record is None:
                    return
                self.mesh.publish(record)
            await asyncio.sleep(LOOK_AT_CLOCK_S)

    async def _remember(self) -> None:
        """Let this account begin with what was learnt since: newer charters, hubs, the acceptance."""
        if self.config.fabric_dir is None:
            return
        directory = FabricDir(Path(self.config.fabric_dir))
        await asyncio.sleep(REMEMBER_S)
        while True:
            if (learnt := remembering.learnt(self.replica, self.view(), self.proofs.member)) is not None:
                try:
                    await asyncio.to_thread(remembering.save, directory, learnt)
                except TelaError as error:
                    log.warning("nothing remembered", extra={"why": error.message})
            await asyncio.sleep(REMEMBER_EACH_S)

    async def _look_around(self, agent: Agent) -> None:
        """Say what this host is, and begin to drain in time: at a job's end Slurm tells engines and nodes at once."""
        here = await facts(os.environ, self.clock.wall())
        agent.is_on(here)
        at = warn_at(here.platform, self.config.drain_s)
        if at is None or at <= self.clock.wall():
            return
        await asyncio.sleep(at - self.clock.wall())
        self.say({"event": "trouble", "code": "job_ends", "text": "the job ends; draining before it does"})
        self._stopping.set()

    # --- what it knows

    def _is_ingress(self, node: str) -> bool:
        row = self.view().nodes.get(node)
        return row is not None and "ingress" in row.roles

    def _unready(self) -> tuple[str, ...]:
        """Why a load balancer should send nobody here."""
        reasons = []
        if self._stopping.is_set():
            reasons.append("stopping")
        if self.id in self.view().evicted:
            reasons.append("evicted")
        if not self.mesh.linked() and self.engines is None:
            reasons.append("no link to any other node")
        if abs(self.mesh.fabric_now() - self.clock.wall()) > CLOCK_REFUSE_S:
            reasons.append("its clock is more than 10 minutes off")
        return tuple(reasons)

    def _named(self) -> dict[bytes, tuple[str, ...]]:
        in_force = self.view().standing.in_force
        charter = in_force.current.charter if in_force else self.proofs.charter
        return anchors(charter, self.config.hubs)

    def _known(self) -> tuple[Address, ...]:
        return addresses(self._named(), self.view())

    def _next_run(self, what: str) -> int:
        """A run number that was never used here, on disk before it is used."""
        known = self.before.runs.get(what, 0)
        return next_run_of(self.state, what, known, int(self.clock.wall() * 1000))
