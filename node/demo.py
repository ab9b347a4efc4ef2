"""A whole fabric on one machine, as real processes: an ingress that is also the hub, and workers on demo engines.

For the demo, benchmarks and tests. Everything lives in one directory that its owner throws away.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from accounting.keys import digest, key_id, mint
from node.config import DoorConfig, EngineConfig, HubAddress, NodeConfig
from registry.charter import Founding, admit, certify, found
from registry.errors import TelaError
from registry.kinds import Certificate, Hub, KeyGrant, Membership, audience_of, encode_body
from registry.record import Draft, Record, Sign, seal, seed_signer

MODEL = "tela/demo-chat"
READY_S = 30.0
STOP_S = 15.0
LIFE_S = 86_400.0
HUB_ROLES = ("ingress", "relay")

Event = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The keys of a fabric that was founded here: its operator, one member, one API key, its first ingress."""

    founding: Founding
    operator: bytes
    operator_sign: Sign
    membership: Record
    member: bytes
    member_sign: Sign
    ingress_seed: bytes  # of the node the charter names as hub and issuer
    secret: str  # the API key
    key: Record  # its grant
    now: float

    def node(self, seed: bytes, roles: tuple[str, ...]) -> tuple[bytes, Record]:
        """The public key of a node seed, and its certificate."""
        key, _ = seed_signer(seed)
        body = Certificate(node=key, roles=roles, not_after=self.now + LIFE_S)
        return key, certify(body, self.member, self.member_sign, seq=int(self.now * 1000))


def found_authority(rng: Random, now: float) -> Authority:
    """Found a fabric: every key is made from `rng`; `now` is unix seconds."""
    operator, operator_sign = seed_signer(rng.randbytes(32))
    member, member_sign = seed_signer(rng.randbytes(32))
    ingress_seed = rng.randbytes(32)
    ingress, _ = seed_signer(ingress_seed)
    hubs = (Hub(key=ingress, urls=()),)
    founding = found("demo", "demo-operator", operator, operator_sign, hubs, issuers=(ingress,))
    body = Membership(
        member=member,
        provider="demo",
        roles=("worker", *HUB_ROLES),
        not_after=now + LIFE_S,
        max_nodes=1000,
    )
    secret = mint(rng.randbytes(32))
    grant = KeyGrant(label="demo", user="demo", digest=digest(secret))
    draft = Draft("key", key_id(digest(secret)), encode_body(grant), audience_of(grant), seq=1)
    return Authority(
        founding=founding,
        operator=operator,
        operator_sign=operator_sign,
        membership=admit(body, operator, operator_sign),
        member=member,
        member_sign=member_sign,
        ingress_seed=ingress_seed,
        secret=secret,
        key=seal(draft, operator, operator_sign),
        now=now,
    )


@dataclass(slots=True)
class DemoNode:
    """One node's process. Changed by the fabric that started it."""

    name: str
    process: asyncio.subprocess.Process
    engine_pid: int | None = None
    engine_state: str = ""
    engine_run: int = 0
    ready: Event | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        """The process id of the node."""
        return self.process.pid


class DemoFabric:
    """Starts, watches and stops the processes. Mutable; lives inside `running`.

    Args:
        directory: where states, specifications and logs go.
        workers: how many workers, each with one engine.
        rng: keys come from it.
        now: unix seconds.
        http: host:port of the door.
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
        http: str = "127.0.0.1:0",
        engine: str | None = None,
        model: str = MODEL,
        deadline_s: float = 600.0,
        tell: Callable[[str, Event], None] = lambda _name, _event: None,
    ) -> None:
        self.authority = found_authority(rng, now)
        self.model = model
        self.url = ""
        self.ingress: DemoNode | None = None
        self.workers: list[DemoNode] = []
        self._directory = directory
        self._count = workers
        self._rng = rng
        self._http = http
        self._engine = engine or demo_engine_command(model)
        self._deadline_s = deadline_s
        self._tell = tell
        self._hub: HubAddress | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["DemoFabric", None]:
        """Start every process and stop them all at the end.

        Raises:
            TelaError: when a node did not start; names it and its log.
        """
        async with asyncio.TaskGroup() as tasks:
            try:
                await self._start(tasks)
                yield self
            finally:
                await self._stop()

    @property
    def ledger(self) -> Path:
        """The ingress's usage database."""
        return self._directory / "ingress" / "ledger" / "usage.db"

    async def serving(self, count: int, within_s: float = READY_S) -> None:
        """Wait until `count` engines say SERVING.

        Raises:
            TimeoutError: when they did not.
        """
        async with asyncio.timeout(within_s):
            while sum(node.engine_state == "SERVING" for node in self.workers) < count:
                await self._any_change()

    def kill_engine(self, at: int, how: signal.Signals = signal.SIGKILL) -> int:
        """Kill a worker's engine; returns its process id."""
        pid = self.workers[at].engine_pid
        if pid is None:
            raise TelaError(f"{self.workers[at].name} has no engine now", code="no_engine")
        os.kill(pid, how)
        return pid

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        door = DoorConfig(address=self._http)
        ingress = self._config("ingress", HUB_ROLES, self.authority.ingress_seed, listen="127.0.0.1:0", door=door)
        self.ingress = await self._spawn(tasks, "ingress", ingress)
        await self._until_ready(self.ingress)
        assert self.ingress.ready is not None
        self.url = str(self.ingress.ready["http"])
        links = self.ingress.ready["links"]
        assert isinstance(links, list)
        self._hub = HubAddress(key=seed_signer(ingress.seed)[0], urls=tuple(links))
        for at in range(self._count):
            is_url = self._engine.startswith("http://")
            command, url = (None, self._engine) if is_url else (self._engine, None)
            engine = EngineConfig(command=command, url=url, model=self.model, engine="demo")
            worker = self._config(f"worker-{at + 1}", ("worker",), self._rng.randbytes(32), engines=(engine,))
            self.workers.append(await self._spawn(tasks, f"worker-{at + 1}", worker))
        for node in self.workers:
            await self._until_ready(node)

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
            "hubs": (self._hub,) if self._hub else (),
            "records": (self.authority.key.raw,) if "door" in more else (),
            "control": str(self._directory / f"{name}.sock"),
            "request_deadline_s": self._deadline_s,
            "exit_with_stdin": True,
            **more,
        }
        return NodeConfig(**fields)  # type: ignore[arg-type]

    async def _spawn(self, tasks: asyncio.TaskGroup, name: str, config: NodeConfig) -> DemoNode:
        spec = self._directory / f"{name}.json"
        spec.touch(mode=0o600)
        spec.write_bytes(msgspec.json.encode(config))
        with (self._directory / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", "console", "run-node", str(spec),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        node = DemoNode(name, process)
        tasks.create_task(self._listen(node))
        return node

    async def _listen(self, node: DemoNode) -> None:
        assert node.process.stdout is not None
        async for line in node.process.stdout:
            try:
                event: Event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "ready":
                node.ready = event
            elif event.get("event") == "engine":
                pid, run = event.get("pid"), event.get("run")
                node.engine_pid = pid if isinstance(pid, int) else None
                node.engine_run = run if isinstance(run, int) else 0
                node.engine_state = str(event.get("state"))
            node.changed.set()
            self._tell(node.name, event)
        node.changed.set()

    async def _until_ready(self, node: DemoNode) -> None:
        async with asyncio.timeout(READY_S):
            while node.ready is None:
                if node.process.stdout is not None and node.process.stdout.at_eof():
                    what, hint = self._last_words(node)
                    raise TelaError(f"{node.name} did not start: {what}", hint=hint, code="not_started")
                await node.changed.wait()
                node.changed.clear()

    def _last_words(self, node: DemoNode) -> tuple[str, str]:
        """What a node that is gone said last: the matter and what to do about it."""
        lines = (self._directory / f"{node.name}.log").read_text(errors="replace").strip().splitlines()
        said = [at for at, line in enumerate(lines) if line.startswith("tela: ")]
        if not said:
            return (lines[-1] if lines else "it said nothing"), ""
        hint = lines[said[-1] + 1].strip() if said[-1] + 1 < len(lines) else ""
        return lines[said[-1]].removeprefix("tela: "), hint

    async def _any_change(self) -> None:
        waits = [asyncio.ensure_future(node.changed.wait()) for node in self.workers]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for node in self.workers:
            node.changed.clear()

    async def _stop(self) -> None:
        nodes = [*self.workers, *([self.ingress] if self.ingress else [])]
        for node in nodes:
            if node.process.stdin is not None:
                node.process.stdin.close()
        for node in nodes:
            try:
                async with asyncio.timeout(STOP_S):
                    await node.process.wait()
            except TimeoutError:
                node.process.kill()


def demo_engine_command(model: str, *flags: str) -> str:
    """The command line of a demo engine, for `{port}`."""
    return " ".join([sys.executable, "-I", "-m", "node.engine.demo", "--port", "{port}", "--model", model, *flags])
