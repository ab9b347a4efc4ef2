"""The `openai` client against a real vLLM behind a node, and the engine killed under it."""

import asyncio
import time
from random import Random

import pytest
from openai import APIError, AsyncOpenAI, AuthenticationError, NotFoundError

from node.demo import DemoFabric
from tests.real import vllm

pytestmark = pytest.mark.real

START_S = 400.0  # a cold start on two cores takes up to three minutes


@pytest.fixture(scope="module", autouse=True)
def _engine():
    vllm.install()


def test_the_openai_client_talks_to_a_real_vllm_behind_a_node(tmp_path):
    asyncio.run(_drive(tmp_path))


async def _drive(tmp_path):
    fabric = DemoFabric(tmp_path, workers=1, rng=Random(11), now=time.time(), engine=vllm.command(), model=vllm.MODEL)
    async with fabric.running():
        await fabric.serving(1, START_S)
        async with AsyncOpenAI(base_url=f"{fabric.url}/v1", api_key=fabric.authority.secret, max_retries=0) as client:
            await _until_listed(client)
            await _models(client)
            await _whole(client)
            await _streamed(client)
            await _completions(client)
            await _refusals(client, fabric)
            await _killed(client, fabric)


async def _until_listed(client):
    async with asyncio.timeout(10.0):
        while vllm.MODEL not in [model.id async for model in client.models.list()]:
            await asyncio.sleep(0.1)


def _hello(**more):
    return {
        "model": vllm.MODEL,
        "messages": [{"role": "user", "content": "hello fabric"}],
        "max_tokens": 12,
        "temperature": 0.0,
        "extra_body": {"ignore_eos": True},
        **more,
    }


async def _models(client):
    model = await client.models.retrieve(vllm.MODEL)
    assert model.id == vllm.MODEL
    assert model.model_dump()["max_model_len"] == 1024


async def _whole(client):
    answer = await client.chat.completions.create(**_hello())
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    again = await client.chat.completions.create(**_hello())
    assert again.choices[0].message.content == answer.choices[0].message.content


async def _streamed(client):
    plain = [chunk async for chunk in await client.chat.completions.create(**_hello(stream=True))]
    assert plain[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in plain)
    asked = await client.chat.completions.create(**_hello(stream=True, stream_options={"include_usage": True}))
    chunks = [chunk async for chunk in asked]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 12
    text = lambda these: "".join(c.choices[0].delta.content or "" for c in these if c.choices)  # noqa: E731
    assert text(plain) == text(chunks) != ""


async def _completions(client):
    answer = await client.completions.create(
        model=vllm.MODEL, prompt="a node", max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert answer.usage.completion_tokens == 5


async def _refusals(client, fabric):
    with pytest.raises(NotFoundError, match="does not exist"):
        await client.chat.completions.create(**_hello(model="tiny/other"))
    with pytest.raises(APIError) as refused:  # the engine's own words about its own limits
        await client.chat.completions.create(**_hello(max_tokens=100_000))
    assert refused.value.status_code == 400
    async with AsyncOpenAI(base_url=f"{fabric.url}/v1", api_key="tela_sk_no", max_retries=0) as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.models.list()


async def _killed(client, fabric):
    stream = await client.chat.completions.create(**_hello(stream=True, max_tokens=900))
    await anext(aiter(stream))
    died = asyncio.get_running_loop().time()
    fabric.kill_engine(0)
    with pytest.raises(APIError, match="ended early"):
        async for _ in stream:
            pass
    with pytest.raises(APIError) as refused:
        await client.chat.completions.create(**_hello())
    assert refused.value.status_code in {502, 503}
    async with asyncio.timeout(2.0):
        while fabric.workers[0].engine_state == "SERVING":
            await asyncio.sleep(0.02)
    assert asyncio.get_running_loop().time() - died < 4.0
    async with asyncio.timeout(2.0):
        while vllm.MODEL in [model.id async for model in client.models.list()]:
            await asyncio.sleep(0.05)
    with pytest.raises(APIError) as unserved:
        await client.chat.completions.create(**_hello())
    assert unserved.value.status_code == 503
    assert unserved.value.response.headers["retry-after"]
