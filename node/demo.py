"""A whole fabric on one machine, as real processes: ingresses that are also hubs, and workers on demo engines.

For the demo, benchmarks and tests. Everything lives in one directory that its owner throws away.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from accounting.keys import digest, key_id, mint
from node.config import DoorConfig, EngineConfig, HubAddress, NodeConfig
from node.demo_node import READ_LOGS, DemoNode, Tell
from registry.charter import VERBS, Founding, admit, certify
from registry.errors import TelaError
from registry.kinds import Certificate, Charter, Hub, KeyGrant, Membership, Operator, audience_of, encode_body
from registry.record import Draft, Record, Sign, seal, seed_signer

MODEL = "tela/demo-chat"
PROVIDER = "demo"
READY_S = 60.0  # a machine that is busy with other things imports slowly
SERVE_S = 60.0
STOP_S = 15.0
STOP_NOW_S = 5.0
LIFE_S = 86_400.0
HUB_ROLES = ("ingress", "relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The keys of a fabric that was founded here: its operators, one member, one API key, its ingresses."""

    founding: Founding
    operator: bytes
    operator_sign: Sign
    stranger: bytes  # an operator too, but only of another provider's nodes
    stranger_sign: Sign
    membership: Record
    member: bytes
    member_sign: Sign
    ingress_seeds: tuple[bytes, ...]  # of the nodes the charter names as hubs and issuers
    secret: str  # the API key
    key: Record  # its grant
    now: float

    @property
    def ingress_seed(self) -> bytes:
        """The seed of the first ingress."""
        return self.ingress_seeds[0]

    def node(self, seed: bytes, roles: tuple[str, ...]) -> tuple[bytes, Record]:
        """The public key of a node seed, and its certificate."""
        key, _ = seed_signer(seed)
        body = Certificate(node=key, roles=roles, not_after=self.now + LIFE_S)
        return key, certify(body, self.member, self.member_sign, seq=int(self.now * 1000))


def found_authority(rng: Random, now: float, ingresses: int = 1) -> Authority:
    """Found a fabric: every key is made from `rng`; `now` is unix seconds."""
    seed = rng.randbytes(32)
    operator, operator_sign = seed_signer(seed)
    stranger, stranger_sign = seed_signer(sha256(b"stranger" + seed).digest())
    member, member_sign = seed_signer(rng.randbytes(32))
    seeds = tuple(rng.randbytes(32) for _ in range(ingresses))
    secret = mint(rng.randbytes(32))
    charter = _charter(operator, stranger, tuple(seed_signer(seed)[0] for seed in seeds))
    founding = seal(Draft("charter", "0", encode_body(charter)), operator, operator_sign)
    return Authority(
        founding=Founding(founding.order.hash, founding),
        operator=operator,
        operator_sign=operator_sign,
        stranger=stranger,
        stranger_sign=stranger_sign,
        membership=admit(_membership(member, now), operator, operator_sign),
        member=member,
        member_sign=member_sign,
        ingress_seeds=seeds,
        secret=secret,
        key=seal(_first_key(secret), operator, operator_sign),
        now=now,
    )


def _membership(member: bytes, now: float) -> Membership:
    roles = ("worker", *HUB_ROLES)
    return Membership(member=member, provider=PROVIDER, roles=roles, not_after=now + LIFE_S, max_nodes=1000)


def _first_key(secret: str) -> Draft:
    grant = KeyGrant(label="demo", user="demo", digest=digest(secret))
    return Draft("key", key_id(digest(secret)), encode_body(grant), audience_of(grant), seq=1)


def _charter(operator: bytes, stranger: bytes, ingresses: tuple[bytes, ...]) -> Charter:
    return Charter(
        name="demo",
        operators=(
            Operator(key=operator, name="demo-operator", verbs=VERBS),
            Operator(key=stranger, name="other-operator", verbs=("fleet",), scope="provider:other"),
        ),
        hubs=tuple(Hub(key=key, urls=()) for key in ingresses),
        issuers=ingresses,
    )


class DemoFabric:
    """Starts, watches and stops the processes. Mutable; lives inside `running`.

    Attributes:
        ingresses: the nodes with a door, the first first.
        workers: the nodes with an engine.

    Args:
        directory: where states, specifications and logs go.
        workers: how many workers, each with one engine.
        rng: keys come from it.
        now: unix seconds.
        ingresses: how many ingresses, each a hub too.
        http: host:port of the first door; the others take free ports.
        engine: each worker's engine: a command with `{port}` in it, or the URL of one that runs already.
        model: what the engines serve.
        tell: called with every event a node narrates, and its name.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int,
        rng: Random,
        now: float,
        ingresses: int = 1,
        http: str = "127.0.0.1:0",
        engine: str | None = None,
        model: str = MODEL,
        deadline_s: float = 600.0,
        tell: Tell = lambda _name, _event: None,
    ) -> None:
        self.authority = found_authority(rng, now, ingresses)
        self.model = model
        self.ingresses: list[DemoNode] = []
        self.workers: list[DemoNode] = []
        self._directory = directory
        self._count = workers
        self._rng = rng
        self._http = http
        self._engine = engine or demo_engine_command(model)
        self._deadline_s = deadline_s
        self._tell = tell
        self._changed = asyncio.Event()
        self._hubs: tuple[HubAddress, ...] = ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["DemoFabric", None]:
        """Start every process and stop them all at the end: at once when it came early.

        Raises:
            TelaError: when a node did not start; names it and its last words.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                is_done = False
                try:
                    await self._start(tasks)
                    yield self
                    is_done = True
                finally:
                    await self._stop(now=not is_done)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    @property
    def ingress(self) -> DemoNode:
        """The first ingress."""
        return self.ingresses[0]

    @property
    def url(self) -> str:
        """The first door."""
        return self.ingress.url

    @property
    def ledger(self) -> Path:
        """The first ingress's usage database."""
        return self.ingress.ledger

    async def serving(self, count: int, within_s: float = SERVE_S) -> None:
        """Wait until `count` engines say SERVING.

        Raises:
            TelaError: they did not, or so many workers are gone that they cannot; says how far they had come.
        """
        try:
            async with asyncio.timeout(within_s):
                while sum(node.engine_state == "SERVING" for node in self.workers) < count:
                    gone = [node for node in self.workers if node.is_gone]
                    if len(self.workers) - len(gone) < count:
                        raise gone[-1].failed("ended")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            late = [f"{node.name} {node.engine_said}" for node in self.workers if node.engine_state != "SERVING"]
            text = f"not {count} engines served within {within_s:.0f} s: {', '.join(late)}"
            raise TelaError(text, hint=READ_LOGS, code="not_serving") from None

    def kill_engine(self, at: int, how: signal.Signals = signal.SIGKILL) -> int:
        """Kill a worker's engine; returns its process id."""
        pid = self.workers[at].engine_pid
        if pid is None:
            raise TelaError(f"{self.workers[at].name} has no engine now", code="no_engine")
        os.kill(pid, how)
        return pid

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        for at, seed in enumerate(self.authority.ingress_seeds):
            door = DoorConfig(address="127.0.0.1:0" if at else self._http)
            name = f"ingress-{at + 1}" if at else "ingress"
            ingress = self._config(name, HUB_ROLES, seed, listen="127.0.0.1:0", door=door)
            self.ingresses.append(node := await self._spawn(tasks, ingress))
            await node.until_ready(READY_S)
            self._hubs += (HubAddress(key=seed_signer(seed)[0], urls=node.links),)
        for at in range(self._count):
            is_url = self._engine.startswith("http://")
            command, url = (None, self._engine) if is_url else (self._engine, None)
            engine = EngineConfig(command=command, url=url, model=self.model, engine="demo")
            worker = self._config(f"worker-{at + 1}", ("worker",), self._rng.randbytes(32), engines=(engine,))
            self.workers.append(await self._spawn(tasks, worker))
        for node in self.workers:
            await node.until_ready(READY_S)

    def _config(self, name: str, roles: tuple[str, ...], seed: bytes, **more: object) -> NodeConfig:
        _, certificate = self.authority.node(seed, roles)
        fields: dict[str, object] = {
            "fabric": "demo",
            "host": name,
            "state": str(self._directory / name),
            "seed": seed,
            "charter": self.authority.founding.charter.raw,
            "membership": self.authority.membership.raw,
            "certificate": certificate.raw,
            "roles": roles,
            "hubs": self._hubs,
            "records": (self.authority.key.raw,) if "door" in more else (),
            "control": str(self._directory / f"{name}.sock"),
            "request_deadline_s": self._deadline_s,
            "exit_with_stdin": True,
            **more,
        }
        return NodeConfig(**fields)  # type: ignore[arg-type]

    async def _spawn(self, tasks: asyncio.TaskGroup, config: NodeConfig) -> DemoNode:
        node = await DemoNode.spawn(config, self._directory, self._changed, self._tell)
        tasks.create_task(node.listen())
        return node

    async def _stop(self, *, now: bool) -> None:
        """End every node. Cancelled, or when they take too long, it kills what is left."""
        nodes = [*self.workers, *self.ingresses]
        for node in nodes:
            node.end(now=now)
        try:
            async with asyncio.timeout(STOP_NOW_S if now else STOP_S):
                for node in nodes:
                    await node.ended()
        except TimeoutError:
            pass
        finally:
            for node in nodes:
                node.kill()
            for node in nodes:
                await node.ended()


def demo_engine_command(model: str, *flags: str) -> str:
    """The command line of a demo engine, for `{port}`."""
    return " ".join([sys.executable, "-I", "-m", "node.engine.demo", "--port", "{port}", "--model", model, *flags])
