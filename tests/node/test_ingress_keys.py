"""What a key may know of and call, through a whole fabric."""

import asyncio
from random import Random

import msgspec

from accounting.keys import digest, mint
from node.demo import found_authority
from registry.kinds import KeyGrant, audience_of, encode_body
from registry.lifecycle import Rank
from registry.record import Draft, seal
from tests.node.fabric import MODEL, chat, fabric
from tests.node.hostile import error_of


def through(tmp_path, script, **options):
    async def main():
        async with fabric(tmp_path, **options) as door:
            await script(door)

    asyncio.run(main())


def grant(door, key, **fields):
    """Give a key as the operator; returns its secret."""
    authority, secret = found_authority(Random(5), 0.0), mint(key.encode().ljust(32))
    body = KeyGrant(digest=digest(secret), **fields)
    draft = Draft("key", key, encode_body(body), audience_of(body), seq=1)
    record = seal(draft, authority.operator, authority.operator_sign)
    door.ingress.mesh.tell(lambda peer: peer.publish(record))
    return {"Authorization": f"Bearer {secret}"}


def test_a_model_that_is_not_a_keys_does_not_exist_for_it(tmp_path):
    async def script(door):
        mine = grant(door, "k_mine", models=(MODEL,))
        other = grant(door, "k_other", models=("demo/other",))
        none = grant(door, "k_none", models=())
        for headers, there in ((mine, True), (other, False), (none, False)):
            async with door.get("/v1/models", headers=headers) as response:
                assert [each["id"] for each in (await response.json())["data"]] == [MODEL] * there
            async with door.get(f"/v1/models/{MODEL}", headers=headers) as response:
                assert response.status == (200 if there else 404)
            async with door.post(json=chat(), headers=headers) as response:
                assert response.status == (200 if there else 404)
                if not there:
                    error = (await error_of(response))[2]
                    assert (error["code"], "Did you mean" in error["message"]) == ("model_not_found", False)
        (row,) = await door.rows(1)
        assert row.key_id == "k_mine"

    through(tmp_path, script)


def test_a_replica_kept_for_a_project_serves_its_keys_and_is_unknown_to_others(tmp_path):
    async def script(door):
        worker = door.workers[0]
        worker.engines._agent._serve_to = ("project:p",)  # for whatever it says of its engine from now on
        (row,) = worker.view().routable[MODEL]
        kept = msgspec.structs.replace(row.replica, serve_to=("project:p",))
        record = worker.author.write(kept, row.id, rank=row.record.order.rank, run=row.record.order.run)
        worker.mesh.tell(lambda peer: peer.publish(record))
        await door.until(lambda: door.ingress.view().replicas[row.id].replica.serve_to)
        mine, other = grant(door, "k_mine", project="p"), grant(door, "k_other", project="q")
        async with door.post(json=chat(), headers=mine) as response:
            assert response.status == 200
        async with door.get("/v1/models", headers=mine) as response:
            assert len((await response.json())["data"]) == 1
        async with door.post(json=chat(), headers=other) as response:
            assert (await error_of(response))[:2] == (404, "model_not_found")
        async with door.get("/v1/models", headers=other) as response:
            assert (await response.json())["data"] == []

    through(tmp_path, script)


def test_a_refusal_tells_nothing_of_replicas_kept_for_others(tmp_path):
    async def script(door):
        worker = door.workers[0]
        (row,) = worker.view().routable[MODEL]
        order = row.record.order
        hidden = msgspec.structs.replace(row.replica, serve_to=("user:bob",), phase="of bobs alone")
        for body, slot in ((hidden, "e8"), (msgspec.structs.replace(row.replica, phase="of everybody"), "e9")):
            record = worker.author.write(body, f"{worker.id}/{slot}", rank=Rank.DOWN, run=order.run)
            worker.mesh.tell(lambda peer, record=record: peer.publish(record))
        gone = worker.author.write(row.replica, row.id, rank=Rank.LEFT, run=order.run)
        worker.mesh.tell(lambda peer: peer.publish(gone))
        await door.until(lambda: not door.ingress.view().routable.get(MODEL))
        async with door.post(json=chat()) as response:
            status, code, error = await error_of(response)
        assert (status, code) == (503, "no_healthy_provider")
        assert "of everybody" in error["message"]
        assert "bob" not in error["message"]

    through(tmp_path, script)
