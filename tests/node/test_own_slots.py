"""One node that is ingress, relay and worker at once: it serves its own slots, and links to nobody for that."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import aiohttp
import pytest

from gossip.muxevents import ResetCode
from gossip.stream import StreamReset
from gossip.websocket import WebsocketNetwork
from node.clock import SystemClock
from node.config import DoorConfig, EngineConfig, NodeConfig
from node.demo import found_authority
from node.engine.demo import EngineOptions
from node.engine.demo_play import Pace
from node.process import NodeProcess
from node.tunnel import REQUEST, RequestHead, encode_head
from registry.lifecycle import Rank
from registry.views import ModelState
from tests.node.fabric import MODEL, Door, Engine, chat

ROLES = ("ingress", "relay", "worker")
SLOW = EngineOptions(models=(MODEL,), pace=Pace(first_s=0.0, token_s=0.02), natural_tokens=500)


@asynccontextmanager
async def alone(tmp_path, *, options=None, engines=1):
    """One running node with every role, whose engines all serve."""
    rng, clock, said = Random(6), SystemClock(), []
    authority = found_authority(rng, clock.wall())
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        wrapped = [await Engine.start(options or EngineOptions(models=(MODEL,))) for _ in range(engines)]
        for each in wrapped:
            stack.push_async_callback(each.stop)
        spec = NodeConfig(
            host="alone", state=str(tmp_path), seed=authority.ingress_seed, roles=ROLES, listen="127.0.0.1:0",
            charter=authority.founding.charter.raw, membership=authority.membership.raw,
            certificate=authority.node(authority.ingress_seed, ROLES)[1].raw, records=(authority.key.raw,),
            door=DoorConfig(address="127.0.0.1:0"), drain_s=5.0,
            engines=tuple(EngineConfig(slot=f"e{at}", url=each.url, model=MODEL) for at, each in enumerate(wrapped)),
        )  # fmt: skip
        node = NodeProcess(spec, clock=clock, rng=Random(1), network=WebsocketNetwork(), say=said.append)
        tasks.create_task(node.run())
        stack.callback(node.stop)
        async with asyncio.timeout(8.0):
            while not any(event["event"] == "ready" for event in said):
                await asyncio.sleep(0.005)
        url = next(event for event in said if event["event"] == "ready")["http"]
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        door = Door(url, authority.secret, session, node, [node], wrapped, tmp_path, authority)
        await door.until(lambda: len(node.view().routable.get(MODEL, ())) == engines)
        yield door


def through(tmp_path, script, **options):
    async def main():
        async with alone(tmp_path, **options) as door:
            await script(door)

    asyncio.run(main())


def running(engine):
    return engine.metrics[MODEL].running


def test_it_answers_with_its_own_engine_byte_for_byte(tmp_path):
    async def script(door):
        assert not door.ingress.mesh.linked()
        async with door.session.post(f"{door.engines[0].url}/v1/chat/completions", json=chat()) as response:
            direct = await response.read()
        async with door.post(json=chat()) as response:
            assert response.status == 200
            assert await response.read() == direct
            assert response.headers["x-tela-node"] == "alone@demo"
        (row,) = await door.rows(1)
        assert (row.status, row.outcome, row.node, row.attempts) == (200, "ok", door.ingress.id, 1)

    through(tmp_path, script)


def test_it_streams_with_every_event_and_its_end(tmp_path):
    async def script(door):
        body = chat(stream=True)
        async with door.session.post(f"{door.engines[0].url}/v1/chat/completions", json=body) as response:
            direct = await response.read()
        async with door.post(json=body) as response:
            got = await response.read()
        assert got.count(b"data:") == direct.count(b"data:") > 5
        assert got.endswith(b"data: [DONE]\n\n")
        (row,) = await door.rows(1)
        assert (row.outcome, row.stream) == ("ok", True)

    through(tmp_path, script)


async def pieces(raw):
    for start in range(0, len(raw), 262_144):
        yield raw[start : start + 262_144]


def test_a_body_of_many_buffers_comes_whole(tmp_path):
    async def script(door):
        body = json.dumps(chat("x" * 3_000_000)).encode()
        async with door.post(data=pieces(body)) as response:
            assert response.status == 200
        (row,) = await door.rows(1)
        assert (row.bytes_in, row.outcome) == (len(body), "ok")

    through(tmp_path, script)


def test_a_stream_whose_engine_dies_ends_with_an_error_and_the_model_is_down(tmp_path):
    async def script(door):
        async with door.post(json=chat(stream=True)) as response:
            await response.content.readany()
            await door.engines[0].stop()
            rest = await response.read()
        assert b"error" in rest
        assert b"[DONE]" not in rest
        (row,) = await door.rows(1)
        assert row.outcome == "truncated"
        await door.until(lambda: door.ingress.view().models[MODEL].state is ModelState.DOWN)
        async with door.post(json=chat()) as response:
            assert response.status == 503

    through(tmp_path, script, options=SLOW)


def test_with_one_of_its_two_engines_dead_the_other_answers(tmp_path):
    async def script(door):
        await door.engines[0].stop()
        for _ in range(6):
            async with door.post(json=chat()) as response:
                assert response.status == 200

    through(tmp_path, script, engines=2)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine_at_once(tmp_path, stream):
    async def script(door):
        async def call():
            async with door.post(json=chat(stream=stream)) as response:
                await response.read()

        calling = asyncio.ensure_future(call())
        await door.until(lambda: door.ingress.engines.in_flight == running(door.engines[0].engine) == 1)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await door.until(lambda: running(door.engines[0].engine) == 0, within=1.0)
        assert door.ingress.engines.in_flight == 0
        (row,) = await door.rows(1)
        assert row.outcome == "client_disconnect"

    through(tmp_path, script, options=SLOW)


def test_told_to_stop_it_finishes_what_is_under_way(tmp_path):
    brief = EngineOptions(models=(MODEL,), pace=Pace(first_s=0.0, token_s=0.02), natural_tokens=40)

    async def script(door):
        async def call():
            async with door.post(json=chat(stream=True)) as response:
                return (await response.read()).endswith(b"data: [DONE]\n\n")

        calls = [asyncio.ensure_future(call()) for _ in range(4)]
        await door.until(lambda: door.ingress.engines.in_flight == 4)
        door.ingress.stop()
        assert all(await asyncio.gather(*calls))
        await door.until(lambda: door.ingress.view().nodes[door.ingress.id].rank is Rank.LEFT)

    through(tmp_path, script, options=brief)


def test_that_it_is_an_ingress_is_asked_of_it_too(tmp_path):
    async def script(door):
        node = door.ingress
        (row,) = node.view().routable[MODEL]
        worker = node.engines.worker
        worker._granted = worker._granted._replace(is_ingress=lambda asking: asking != node.id)
        stream = node.mesh.open(
            node.id, REQUEST, encode_head(RequestHead("e0", row.record.order.run, "/v1/chat/completions", "rid", []))
        )
        stream.write(json.dumps(chat()).encode())
        stream.end()
        with pytest.raises(StreamReset) as refused:
            await stream.reply_head()
        assert refused.value.reset_code == ResetCode.REFUSED

    through(tmp_path, script)
