"""What every node sees of the others, on real links in one process."""

import asyncio
import json

import pytest

from gossip.muxevents import ResetCode
from gossip.stream import StreamReset
from node.engine.demo import EngineOptions
from node.engine.demo_play import Pace
from node.tunnel import REQUEST, RequestHead, encode_head
from registry.lifecycle import Rank
from registry.views import ModelState
from tests.node.fabric import MODEL, chat, fabric

SEEN_WITHIN_S = 2.0


def through(tmp_path, script, **options):
    async def main():
        async with fabric(tmp_path, **options) as door:
            await script(door)

    asyncio.run(main())


def everyone(door):
    return [door.ingress, *door.workers]


async def all_see(door, seen, within=SEEN_WITHIN_S):
    await door.until(lambda: all(seen(node.view()) for node in everyone(door)), within)


def test_a_dead_engine_is_seen_by_everyone_within_two_seconds(tmp_path):
    async def script(door):
        await all_see(door, lambda view: view.models[MODEL].state is ModelState.UP, within=5.0)
        await door.engines[0].stop()
        async with asyncio.timeout(10.0):
            while door.workers[0].view().models[MODEL].state is ModelState.UP:
                async with door.post(json=chat()) as response:  # one finds out, and is answered elsewhere
                    assert response.status == 200
        await all_see(door, lambda view: view.models[MODEL].state is ModelState.DEGRADED)

    through(tmp_path, script, workers=3)


def test_a_closed_link_is_seen_by_everyone_within_two_seconds(tmp_path):
    async def script(door):
        victim = door.workers[0]
        await all_see(door, lambda view: len(view.nodes) == 4, within=5.0)
        victim.mesh._known = tuple  # it does not dial again
        for link in list(victim.mesh._links.values()):
            link.abort("cable pulled")
        await door.until(
            lambda: all(node.view().nodes[victim.id].suspect for node in (door.ingress, *door.workers[1:])),
            SEEN_WITHIN_S,
        )
        async with door.post(json=chat()) as response:
            assert response.status == 200
            assert response.headers["x-tela-node"] != "worker0@demo"

    through(tmp_path, script, workers=3)


def test_a_node_told_to_stop_finishes_its_requests_and_takes_no_more(tmp_path):
    slow = EngineOptions(models=(MODEL,), pace=Pace(first_s=0.0, token_s=0.02), natural_tokens=40)

    async def script(door):
        async def call():
            async with door.post(json=chat(stream=True)) as response:
                return (await response.read()).endswith(b"data: [DONE]\n\n")

        calls = [asyncio.ensure_future(call()) for _ in range(8)]
        await door.until(lambda: door.workers[0].engines.in_flight > 0)
        door.workers[0].stop()
        assert all(await asyncio.gather(*calls))
        await door.until(lambda: door.ingress.view().nodes[door.workers[0].id].rank is Rank.LEFT)
        assert await call()
        assert not list(door.ingress.replica.of_kind("doubt"))

    through(tmp_path, script, workers=2, options=slow)


def test_a_member_that_is_no_ingress_gets_nothing_from_a_worker(tmp_path):
    async def script(door):
        asker, asked = door.workers
        await all_see(door, lambda view: len(view.routable.get(MODEL, ())) == 2, within=5.0)
        (row,) = [row for row in asker.view().routable[MODEL] if row.node.id == asked.id]
        assert not asked._is_ingress(asker.id)
        assert asked._is_ingress(door.ingress.id)
        head = RequestHead("e0", row.record.order.run, "/v1/chat/completions", "rid", [])
        asked.engines.worker._granted = asked.engines.worker._granted._replace(
            is_ingress=lambda _: asked._is_ingress(asker.id)
        )
        stream = door.ingress.mesh.open(asked.id, REQUEST, encode_head(head))
        stream.write(json.dumps(chat()).encode())
        stream.end()
        with pytest.raises(StreamReset) as refused:
            await stream.reply_head()
        assert refused.value.reset_code == ResetCode.REFUSED

    through(tmp_path, script, workers=2)
