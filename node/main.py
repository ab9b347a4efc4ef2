"""Wires one node and runs it: the only place that makes a clock and dice for it."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random, SystemRandom

import aiohttp

from accounting.keys import KeyEntry, KeyRing
from accounting.ledger import Ledger
from gossip.mesh import Identity, Mesh
from gossip.peer import Peer
from gossip.topology import Address
from gossip.transport import Network
from gossip.websocket import WebsocketNetwork
from node.agent import Agent, Say
from node.clock import SystemClock
from node.config import EngineConfig, NodeConfig
from node.engine.supervisor import EngineSpec, EngineState, Supervisor
from node.ingress.app import Ingress
from node.ingress.relay import Relay
from node.server import HttpServer, bind, http_server, url_of
from node.tunnel import REQUEST
from node.worker import Engine, Granted, Worker, engine_session
from registry.author import Author, next_run
from registry.charter import Chartered
from registry.clock import Clock
from registry.kinds import Charter, Node, read_body
from registry.lifecycle import Rank
from registry.record import Record, decode, seed_signer
from registry.replica import Replica
from registry.views import Snapshot, Views

log = logging.getLogger(f"tela.{__name__}")

VERSION = "0.1.0"
DRAIN_S = 30.0  # what requests under way may take once a node is told to stop
HEARD_S = 0.3  # until every ingress has heard of it


class NodeProcess:
    """One node: its replica, links, engines and, at an ingress, its door. Lives inside `run`.

    Args:
        config: what it runs as.
        clock: the clocks.
        rng: dice; a `SystemRandom` outside tests.
        network: where links are made.
        say: narration for whoever started it.
    """

    def __init__(self, config: NodeConfig, *, clock: Clock, rng: Random, network: Network, say: Say) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._say = say
        self._state = Path(config.state)
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        charter = _charter(config.charter)
        self._charter = charter.charter
        self.replica = Replica()
        proofs = [decode(raw) for raw in (config.membership, config.certificate)]
        self._member = proofs[1].key.owner
        for record in (charter.record, *proofs):
            self.replica.apply(record)
        key, sign = seed_signer(config.seed)
        self._author = Author(key, sign, self._next_run("node"))
        fabric_id = charter.record.order.hash
        self.mesh = Mesh(
            identity=Identity(
                seed=config.seed,
                key=key,
                fabric_id=fabric_id,
                membership=proofs[0],
                certificate=proofs[1],
                release=VERSION,
            ),
            peer=Peer(replica=self.replica, author=self._author, is_hub=config.listen is not None),
            network=network,
            clock=clock,
            rng=rng,
            known=self._known,
            listen=config.listen,
        )
        self._views = Views(self.replica, fabric_id)
        self._supervisors: dict[str, Supervisor] = {}
        self._stopping = asyncio.Event()
        self.ledger: Ledger | None = None
        self.relay: Relay | None = None
        self._worker: Worker | None = None
        self._server: HttpServer | None = None
        self._serving: list[asyncio.Task[None]] = []
        self._server_url = ""

    @property
    def id(self) -> str:
        """The id of this node."""
        return self._author.id

    def stop(self) -> None:
        """Drain, say LEFT and end."""
        self._stopping.set()

    def view(self) -> Snapshot:
        """The registry as it is now."""
        return self._views.at(self.mesh.fabric_now())

    async def run(self) -> None:
        """Run until `stop`.

        Raises:
            TelaError: when an address cannot be had or the ledger not be opened.
        """
        urls = await self.mesh.listen()
        agent = Agent(author=self._author, mesh=self.mesh, node=self._body(urls), wall=self._clock.wall, say=self._say)
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            agent.serve()
            background = [tasks.create_task(self.mesh.run())]
            await self._start_engines(stack, tasks, agent, background)
            if self._config.http is not None:
                await self._open_door(self._config.http, stack, tasks)
            if self._config.exit_with_stdin:
                _when_stdin_ends(self.stop)
            self._say({"event": "ready", "id": self._author.id, "links": list(urls), "http": self._server_url})
            gc.collect()
            gc.freeze()  # what lives from here on is walked no more by the collector, whose pauses are tail latency
            await self._stopping.wait()
            await self._leave(background)

    async def _leave(self, background: list[asyncio.Task[None]]) -> None:
        await self._drain()
        async with asyncio.TaskGroup() as leaving:
            for supervisor in self._supervisors.values():
                leaving.create_task(supervisor.drain_and_stop())
        if self._server is not None:
            self._server.should_exit = True
            await asyncio.wait(self._serving)
        await self.mesh.farewell()
        for task in background:
            task.cancel()

    async def _drain(self) -> None:
        """Let what is under way finish: first the ingresses must hear that no more should come."""
        if self._worker is None:
            return
        for supervisor in self._supervisors.values():
            supervisor.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await asyncio.sleep(HEARD_S)
                await self._worker.is_idle.wait()

    # --- engines

    async def _start_engines(
        self,
        stack: contextlib.AsyncExitStack,
        tasks: asyncio.TaskGroup,
        agent: Agent,
        background: list[asyncio.Task[None]],
    ) -> None:
        if not self._config.engines:
            return
        session = await stack.enter_async_context(engine_session())
        worker = self._worker = Worker(Granted(self._engine, self._is_ingress), session)
        self.mesh.serve(REQUEST, worker.serve)
        for engine in self._config.engines:
            self._supervisors[engine.slot] = self._supervisor(engine, session, agent)
        background += [tasks.create_task(supervisor.run()) for supervisor in self._supervisors.values()]

    def _supervisor(self, engine: EngineConfig, session: aiohttp.ClientSession, agent: Agent) -> Supervisor:
        spec = EngineSpec(
            slot=engine.slot,
            command=engine.command,
            url=engine.url,
            model=engine.model,
            log=self._state / f"{engine.slot}.log",
            engine=engine.engine,
        )
        return Supervisor(
            spec,
            session=session,
            publish=lambda state: self._engine_changed(agent, state, engine.engine),
            rng=self._rng,
            now=self._clock.now,
            run=lambda: self._next_run(engine.slot),
        )

    def _engine_changed(self, agent: Agent, state: EngineState, engine: str) -> None:
        agent.engine_changed(state, engine)
        if state.rank is Rank.DOWN and self._worker is not None:
            self._worker.drop(state.slot)

    def _engine(self, slot: str) -> Engine | None:
        return self._supervisors.get(slot)

    def _is_ingress(self, node: str) -> bool:
        row = self.view().nodes.get(node)
        return row is not None and "ingress" in row.roles

    # --- the door

    async def _open_door(
        self,
        address: str,
        stack: contextlib.AsyncExitStack,
        tasks: asyncio.TaskGroup,
    ) -> None:
        listening = bind(address)
        stack.callback(listening.close)
        ledger = self.ledger = await asyncio.to_thread(Ledger.open, self._state / "ledger")
        stack.callback(ledger.close)
        relay = self.relay = Relay(
            mesh=self.mesh,
            views=self.view,
            policy=self._config.policy,
            now=asyncio.get_running_loop().time,
            fabric=self.mesh.fabric_now,
            rng=self._rng,
            deadline_s=self._config.request_deadline_s,
        )
        keys = KeyRing(
            KeyEntry(id=key.id, digest=key.digest, label=key.label, expires_at=key.expires_at, models=None)
            for key in self._config.keys
        )
        app = Ingress(
            relay=relay,
            ledger=ledger,
            keys=keys,
            views=self.view,
            fabric=self.mesh.fabric_now,
            rng=self._rng,
            tasks=tasks,
        )
        self._server = http_server(app)
        self._serving.append(tasks.create_task(self._server.serve(sockets=[listening])))
        self._server_url = url_of(listening)

    # --- what it is

    def _body(self, urls: tuple[str, ...]) -> Node:
        config = self._config
        return Node(
            host=config.host,
            slot=config.slot,
            member=self._member,
            roles=config.roles,
            urls=urls,
            release=VERSION,
            started=self._clock.wall(),
        )

    def _known(self) -> Iterable[Address]:
        """Hubs from the configuration, the charter and the registry; the latest addresses win."""
        anchors = {hub.key: hub.urls for hub in self._charter.hubs} | {hub.key: hub.urls for hub in self._config.hubs}
        known = {key: Address(key, urls, ingress=True, is_anchor=True) for key, urls in anchors.items()}
        for row in self.view().nodes.values():
            if row.is_hub and row.node.urls:
                is_anchor = row.key in known
                known[row.key] = Address(row.key, row.node.urls, "ingress" in row.roles, is_anchor)
        return known.values()

    def _next_run(self, what: str) -> int:
        """A run number that was never used here, written down before it is."""
        path = self._state / f"{what}.run"
        try:
            persisted = int(path.read_text())
        except (OSError, ValueError):
            persisted = 0
        run = next_run(persisted, 0, int(self._clock.wall() * 1000))
        path.write_text(f"{run}\n")
        return run


def _charter(raw: bytes) -> Chartered:
    record: Record = decode(raw)
    body = read_body(record)
    assert isinstance(body, Charter)
    return Chartered(record, body)


def _when_stdin_ends(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            stop()

    os.set_blocking(sys.stdin.fileno(), False)
    loop.add_reader(sys.stdin.fileno(), read)


def main(config: NodeConfig, say: Say) -> None:
    """Run a node in this process until SIGTERM, SIGINT or the end of its stdin."""
    import uvloop

    async def run() -> None:
        node = NodeProcess(config, clock=SystemClock(), rng=SystemRandom(), network=WebsocketNetwork(), say=say)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, node.stop)
        await node.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
