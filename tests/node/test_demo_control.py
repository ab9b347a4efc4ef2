"""A demo engine that changes while it runs, and the troubles a request cannot ask for."""

import aiohttp
import pytest

from node.engine.demo import EngineOptions, main
from node.engine.families import TRIAL_ID
from tests.node.demo_client import ASK, CHAT, MODEL, child, client, refusal, run

LORA = {"lora_name": "an/adapter", "lora_path": "/x"}
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


async def listed(session: aiohttp.ClientSession) -> list[str]:
    async with session.get("/v1/models") as response:
        return [card["id"] for card in (await response.json())["data"]]


async def status_of(session: aiohttp.ClientSession, path: str, body: object, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.post(path, json=body, headers=named) as response:
        await response.read()
        return response.status


def test_an_adapter_is_loaded_served_and_unloaded():
    async def scenario() -> None:
        async with client(EngineOptions()) as session:
            assert await status_of(session, LOAD, LORA) == 200
            assert await listed(session) == [MODEL, "an/adapter"]
            assert await status_of(session, CHAT, {**ASK, "model": "an/adapter"}) == 200
            assert await status_of(session, UNLOAD, LORA) == 200
            assert await status_of(session, CHAT, {**ASK, "model": "an/adapter"}) == 404
            assert await listed(session) == [MODEL]

    run(scenario)


def test_an_adapter_is_loaded_once_and_what_is_not_there_not_unloaded():
    async def scenario() -> None:
        async with client(EngineOptions()) as session:
            assert await status_of(session, LOAD, LORA) == 200
            assert await status_of(session, LOAD, LORA) == 400
            assert await status_of(session, UNLOAD, {"lora_name": "other"}) == 404

    run(scenario)


def test_its_models_are_others_when_it_is_told_so():
    async def scenario() -> None:
        async with client(EngineOptions()) as session:
            assert await status_of(session, "/demo", {"models": ["b", "b", "c"]}) == 200
            assert await listed(session) == ["b", "c"]

    run(scenario)


def test_it_may_be_healthy_and_fail():
    async def scenario() -> None:
        async with client(EngineOptions(is_failing=True)) as session:
            async with session.get("/health") as response:
                assert response.status == 200
            assert await status_of(session, CHAT, ASK) == 500
            assert await status_of(session, "/demo", {"is_failing": False}) == 200
            assert await status_of(session, CHAT, ASK) == 200

    run(scenario)


def test_what_it_is_not_told_about_stays():
    async def scenario() -> None:
        async with client(EngineOptions(is_failing=True)) as session:
            assert await status_of(session, "/demo", {"models": ["b"]}) == 200
            assert await status_of(session, CHAT, {**ASK, "model": "b"}) == 500

    run(scenario)


@pytest.mark.parametrize("body", [b"{", b'{"models":7}', b'{"unheard-of":1}', b'{"exit":256}'])
def test_what_it_does_not_understand_is_refused(body):
    assert refusal("/demo", body)[0] == 400


@pytest.mark.parametrize("path", ["/demo", LOAD])
def test_whoever_has_no_key_changes_nothing(path):
    assert refusal(path, b"{}", EngineOptions(api_key="k"))[0] == 401


def test_an_endpoint_that_is_not_served_is_not_there():
    chat = EngineOptions(families=frozenset({"embeddings"}))
    assert refusal(CHAT, b"{}", chat)[0] == 404


def test_a_trial_is_no_request_that_counts():
    async def scenario() -> None:
        async with client(EngineOptions(crash_after=1)) as session:
            for _ in range(3):
                assert await status_of(session, CHAT, ASK, X_Request_Id=TRIAL_ID) == 200
            assert await status_of(session, CHAT, ASK) == 200

    run(scenario)


def test_it_says_its_lines_and_exits(capsys):
    assert main(["--say", "one", "--say", "two", "--exit", "3"]) == 3
    assert capsys.readouterr().err == "one\ntwo\n"


def test_it_says_lines_and_exits_while_it_runs():
    async def ask(url: str) -> None:
        async with aiohttp.ClientSession(url) as session:
            await status_of(session, "/demo", {"lines": ["the end"], "exit": 4})

    with child() as (process, place):

        async def scenario() -> None:
            with pytest.raises(aiohttp.ClientError):
                await ask(place.url)

        run(scenario)
        assert process.wait(10) == 4
        assert process.stderr is not None
        assert process.stderr.read() == b"the end\n"


@pytest.mark.parametrize(("flags", "key"), [((), "sesame"), (("--api-key", "mine"), "mine")])
def test_its_key_is_read_from_its_environment_unless_a_flag_says_another(monkeypatch, flags, key):
    monkeypatch.setenv("TELA_ENGINE_API_KEY", "sesame")
    with child(*flags) as (_, place):

        async def scenario() -> None:
            async with aiohttp.ClientSession(place.url) as session:
                assert await status_of(session, CHAT, ASK) == 401
                assert await status_of(session, CHAT, ASK, Authorization=f"Bearer {key}") == 200

        run(scenario)
