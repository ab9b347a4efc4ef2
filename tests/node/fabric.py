"""A small fabric in one process on real loopback sockets: an ingress and workers, each on a demo engine."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp

from gossip.websocket import WebsocketNetwork
from node.clock import SystemClock
from node.config import DoorConfig, EngineConfig, HubAddress, NodeConfig
from node.demo import Authority, found_authority
from node.engine.demo import DemoEngine, EngineOptions
from node.engine.demo_wire import listening
from node.process import NodeProcess
from registry.record import seed_signer

MODEL = "demo/model"


@dataclass
class Door:
    """The fabric as a client sees it."""

    url: str
    key: str
    session: aiohttp.ClientSession
    ingress: NodeProcess
    workers: list[NodeProcess]
    engines: list
    state: Path
    authority: Authority

    def post(self, path="/v1/chat/completions", *, json=None, data=None, headers=None):
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **(headers or {})}
        return self.session.post(self.url + path, json=json, data=data, headers=given)

    def get(self, path, *, headers=None):
        given = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        return self.session.get(self.url + path, headers=given)

    async def rows(self, count):
        """The usage rows, once there are `count`."""
        ledger = self.ingress.door.ledger
        async with asyncio.timeout(5.0):
            while await asyncio.to_thread(ledger.store.count) < count:
                await asyncio.sleep(0.01)
        return await asyncio.to_thread(ledger.store.rows, count)

    async def until(self, condition, within=8.0):
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(0.01)


class Engine:
    """A demo engine in this process that can be stopped."""

    def __init__(self, engine, url, stack):
        self.engine = engine
        self.url = url
        self._stack = stack

    @classmethod
    async def start(cls, options):
        engine, stack = DemoEngine(options), AsyncExitStack()
        place = await stack.enter_async_context(listening(engine, engine.loads_from_now))
        return cls(engine, place.url, stack)

    async def stop(self):
        await self._stack.aclose()


def chat(text="hello", **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


@asynccontextmanager
async def fabric(tmp_path, *, workers=1, options=None, deadline_s=600.0, models=None, engine_url=None):
    """A running fabric whose workers all serve."""
    rng, clock = Random(5), SystemClock()
    authority = found_authority(rng, clock.wall())

    def config(name, roles, seed, **more):
        _, certificate = authority.node(seed, roles)
        return NodeConfig(
            host=name, state=str(tmp_path / name), seed=seed, charter=authority.founding.charter.raw,
            membership=authority.membership.raw, certificate=certificate.raw, roles=roles, **more,
        )  # fmt: skip

    def process(spec):
        return NodeProcess(spec, clock=clock, rng=Random(len(processes)), network=WebsocketNetwork(), say=said.append)

    processes: list[NodeProcess] = []
    said: list[dict] = []
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        spec = config(
            "ingress", ("ingress", "relay"), authority.ingress_seed, listen="127.0.0.1:0",
            door=DoorConfig(address="127.0.0.1:0"), records=(authority.key.raw,), request_deadline_s=deadline_s,
        )  # fmt: skip
        ingress = process(spec)
        processes.append(ingress)
        tasks.create_task(ingress.run())
        stack.callback(lambda: [each.stop() for each in processes])
        async with asyncio.timeout(5.0):
            while not any(event["event"] == "ready" for event in said):
                await asyncio.sleep(0.005)
        ready = next(event for event in said if event["event"] == "ready")
        hub = HubAddress(key=seed_signer(spec.seed)[0], urls=tuple(ready["links"]))
        engines = []
        for at in range(workers):
            if engine_url is None:
                engine = await Engine.start(options or EngineOptions(models=(MODEL,)))
                stack.push_async_callback(engine.stop)
                engines.append(engine)
            wrapped = EngineConfig(url=engine_url or engine.url, model=(models or {}).get(at, MODEL))
            worker = process(config(f"worker{at}", ("worker",), rng.randbytes(32), hubs=(hub,), engines=(wrapped,)))
            processes.append(worker)
            tasks.create_task(worker.run())
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        door = Door(ready["http"], authority.secret, session, ingress, processes[1:], engines, tmp_path, authority)
        if not models:
            await door.until(lambda: len(ingress.view().routable.get(MODEL, ())) == workers)
            await door.until(lambda: len(ingress.mesh.linked()) == workers)
        yield door
