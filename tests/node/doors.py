"""Ingresses without workers, in one process on real sockets: the first is the hub and the issuer."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

import aiohttp

from accounting.claims import claim_digest
from accounting.keys import digest
from gossip.websocket import WebsocketNetwork
from node.clock import SystemClock
from node.config import DoorConfig, HubAddress, NodeConfig
from node.demo import found_authority
from node.process import NodeProcess
from registry.kinds import KeyGrant, Revocation, audience_of, encode_body
from registry.record import Draft, seal, seed_signer

ROLES = ("ingress", "relay")


@dataclass
class Doors:
    """The doors as their clients and their operator see them."""

    authority: object
    nodes: list[NodeProcess]
    urls: list[str]
    session: aiohttp.ClientSession
    now: float

    @property
    def key(self):
        """The secret of a key that works from the start."""
        return self.authority.secret

    def offer(self, key="k_1", *, claim="", secret="", claim_by=None, **fields):
        """Grant a key as the operator would, at the first door."""
        body = KeyGrant(
            claim=claim_digest(claim) if claim else b"",
            claim_by=self.now + 600 if claim_by is None else claim_by,
            digest=digest(secret) if secret else b"",
            **fields,
        )
        self._publish("key", key, body)

    def revoke(self, key):
        """End a key as the operator would, at the first door."""
        self._publish("revocation", key, Revocation(at=self.now))

    def _publish(self, kind, key, body):
        draft = Draft(kind, key, encode_body(body), audience_of(body), seq=1)
        record = seal(draft, self.authority.operator, self.authority.operator_sign)
        self.nodes[0].mesh.tell(lambda peer: peer.publish(record))

    async def claim(self, claim, secret, *, at=0, **more):
        """Claim a key; the status and the body of the answer."""
        body = {"claim": claim, "digest": digest(secret).hex()}
        return await self.ask("POST", "/v1/keys/claim", at=at, json=body, **more)

    async def ask(self, method, path, *, key=None, at=0, headers=None, **more):
        """One request; the status and the body of the answer."""
        given = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        async with self.session.request(method, self.urls[at] + path, headers=given, **more) as answer:
            raw = await answer.read()
        return answer.status, json.loads(raw) if raw else None

    async def until(self, method, path, status, *, within=5.0, **more):
        """Ask until the answer has a status."""
        async with asyncio.timeout(within):
            while (answer := await self.ask(method, path, **more))[0] != status:
                await asyncio.sleep(0.01)
        return answer


@asynccontextmanager
async def doors(tmp_path, count=1, *, door=None, connector=None):
    """Running ingresses; `door` is how the first one is opened."""
    clock = SystemClock()
    authority = found_authority(Random(5), clock.wall())
    seeds = [authority.ingress_seed, *(bytes((number,)) * 32 for number in range(1, count))]
    nodes, hubs = [], ()
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(lambda: [node.stop() for node in nodes])
        for number, seed in enumerate(seeds):
            _, certificate = authority.node(seed, ROLES)
            opened = door if door is not None and number == 0 else DoorConfig(address="127.0.0.1:0")
            config = NodeConfig(
                host=f"door{number}", state=str(tmp_path / f"door{number}"), seed=seed, roles=ROLES, hubs=hubs,
                charter=authority.founding.charter.raw, membership=authority.membership.raw,
                certificate=certificate.raw, records=() if number else (authority.key.raw,), listen="127.0.0.1:0",
                door=opened,
            )  # fmt: skip
            said = []
            node = NodeProcess(config, clock=clock, rng=Random(number), network=WebsocketNetwork(), say=said.append)
            nodes.append(node)
            tasks.create_task(node.run())
            async with asyncio.timeout(5.0):
                while not any(event["event"] == "ready" for event in said):
                    await asyncio.sleep(0.005)
            links = next(event for event in said if event["event"] == "ready")["links"]
            hubs = hubs or (HubAddress(key=seed_signer(seed)[0], urls=tuple(links)),)
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False, connector=connector))
        yield Doors(authority, nodes, [node.door.at for node in nodes], session, clock.wall())
