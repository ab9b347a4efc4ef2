"""What a result of each family looks like, and what a trial makes of answers."""

import asyncio
import json

import aiohttp
import pytest

from node.engine.child import free_port
from node.engine.demo import EngineOptions, demo_engine
from node.engine.families import FAMILIES, PATHS, is_result, smallest_question
from node.engine.fetch import Target
from node.engine.trial import Trial, pause_s, try_families
from node.tunnel import PATHS as SERVED
from tests.node.demo_client import MODEL, run

CHAT = b'{"choices":[{"index":0,"message":{"role":"assistant","content":null}}],"usage":null}'
TEXT = b'{"choices":[{"index":0,"text":"","finish_reason":"length"}]}'
VECTOR = b'{"data":[{"embedding":[0.5,1]}]}'


@pytest.mark.parametrize(
    ("family", "body"),
    [("chat", CHAT), ("completions", TEXT), ("embeddings", VECTOR), ("embeddings", b'{"data":[{"embedding":"AACA"}]}')],
)
def test_a_result_is_known(family, body):
    assert is_result(family, body)


@pytest.mark.parametrize(
    ("family", "body"),
    [
        ("chat", TEXT),
        ("completions", CHAT),
        ("embeddings", CHAT),
        ("chat", VECTOR),
        ("chat", b'{"choices":[]}'),
        ("chat", b'{"error":"no"}'),
        ("chat", b"<html>"),
        ("chat", b"[" * 100_000),
        ("embeddings", b'{"data":[]}'),
        ("embeddings", b'{"data":[{"embedding":[]}]}'),
        ("embeddings", b'{"data":[{"id":"m"}]}'),
    ],
)
def test_anything_else_is_none(family, body):
    assert not is_result(family, body)


def test_what_is_tried_is_what_is_served():
    assert set(PATHS) == set(FAMILIES)
    assert set(PATHS.values()) <= set(SERVED)
    assert json.loads(smallest_question("chat", "m"))["max_tokens"] == 1


def trial_of(options, **more):
    found = []

    async def ask() -> None:
        async with demo_engine(options) as place, aiohttp.ClientSession() as session:
            found.append(await try_families(session, Target(place.url), MODEL, **{"timeout_s": 5.0} | more))

    run(ask)
    return found[0]


def test_every_family_that_works_is_found():
    assert trial_of(EngineOptions()) == Trial(families=FAMILIES)


def test_one_result_is_enough_to_begin_with():
    assert trial_of(EngineOptions(), stop_at_first=True) == Trial(families=("chat",))


def test_what_is_not_there_is_refused_and_settled():
    trial = trial_of(EngineOptions(families=frozenset({"embeddings"})))
    assert trial == Trial(families=("embeddings",), refusals=("chat 404", "completions 404"))


def test_what_fails_now_may_work_another_time():
    trial = trial_of(EngineOptions(is_failing=True))
    assert (trial.families, trial.unsettled) == ((), FAMILIES)
    assert trial.phase == "loading, no result: chat 500, completions 500, embeddings 500"


def test_an_engine_that_wants_a_key_is_told_apart():
    assert trial_of(EngineOptions(api_key="k")).wants_key


def test_a_silent_engine_ends_the_trial():
    found = []

    async def ask() -> None:
        held: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
        async with server, aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            found.append(await try_families(session, Target(url), MODEL, timeout_s=0.02))
            for writer in held:
                writer.close()

    run(ask)
    assert found == [Trial(refusals=("chat silent",), unsettled=FAMILIES)]


def test_an_engine_that_is_gone_is_refused():
    found = []

    async def ask() -> None:
        async with aiohttp.ClientSession() as session:
            target = Target(f"http://127.0.0.1:{free_port()}")
            found.append(await try_families(session, target, MODEL, timeout_s=5.0))

    run(ask)
    assert found[0].refusals == ("chat refused", "completions refused", "embeddings refused")


def test_it_is_asked_ever_more_slowly():
    waits = [pause_s(n) for n in range(1, 12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1.0, 30.0)
