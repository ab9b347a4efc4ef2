"""What an engine says of itself, and what follows: judged with values, asked over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.engine.aliases import read_aliases
from node.engine.child import free_port
from node.engine.demo import EngineOptions, demo_engine
from node.engine.families import FAMILIES
from node.engine.fetch import Target
from node.engine.readiness import MAX_LISTING_B, MAX_OFFERS, Probe, advice_on, judge, probe, read_models
from registry.kinds import Cause, Offer, Replica, encode_body
from registry.record import Draft, seal, seed_signer
from tests.node.demo_client import run

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def offers(*names: str) -> tuple[Offer, ...]:
    return tuple(Offer(id=name) for name in names)


def listing(*cards: object) -> bytes:
    return json.dumps({"object": "list", "data": cards}).encode()


def with_body(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@asynccontextmanager
async def canned(health: bytes, models: bytes = b"") -> AsyncIterator[str]:
    """A server that answers with given bytes and closes; the URL of it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(health if head.startswith(b"GET /health ") else models)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def look(url: str, timeout_s: float = 5.0) -> Probe:
    async with aiohttp.ClientSession() as session:
        return await probe(session, url, timeout_s=timeout_s)


def seen_of(health: bytes, models: bytes = b"") -> Probe:
    seen = []

    async def ask() -> None:
        async with canned(health, models) as url:
            seen.append(await look(url))

    run(ask)
    return seen[0]


def test_a_ready_engine_is_healthy_and_lists_its_models():
    async def ask() -> None:
        async with demo_engine(EngineOptions(models=("org/m", "org/n"), context_tokens=4096)) as place:
            seen = await look(place.url)
        assert seen.healthy
        assert not seen.phase
        assert [(o.id, o.families, o.context_tokens) for o in seen.models or ()] == [
            ("org/m", FAMILIES, 4096),
            ("org/n", FAMILIES, 4096),
        ]

    run(ask)


def test_a_loading_engine_shows_its_status():
    async def ask() -> None:
        async with demo_engine(EngineOptions(load_s=60)) as place:
            assert await look(place.url) == Probe(healthy=False, phase="/health 503")

    run(ask)


def test_a_port_where_nobody_listens_is_refused():
    async def ask() -> None:
        assert await look(f"http://127.0.0.1:{free_port()}") == Probe(healthy=False, phase="/health refused")

    run(ask)


def test_an_engine_that_does_not_answer_is_silent():
    async def ask() -> None:
        async with await asyncio.start_server(lambda _, writer: open_ones.append(writer), "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            assert await look(url, 0.02) == Probe(healthy=False, phase="/health silent")
            for writer in open_ones:
                writer.close()

    open_ones: list[asyncio.StreamWriter] = []
    run(ask)


def test_a_redirect_is_not_followed():
    moved = b"HTTP/1.1 307 x\r\nlocation: /v1/models\r\ncontent-length: 0\r\n\r\n"
    assert seen_of(moved, OK) == Probe(healthy=False, phase="/health 307")


@pytest.mark.parametrize(
    ("answer", "word"), [(b"", "reset"), (b"SSH-2.0-x\r\n\r\n", "garbled"), (b"HTTP/1.1 200 OK\r\n", "reset")]
)
def test_an_answer_that_is_no_http_is_not_health(answer, word):
    seen = seen_of(answer)
    assert not seen.healthy
    assert seen.phase in {f"/health {word}", "/health garbled"}


def test_a_refused_list_is_shown():
    unauthorized = b"HTTP/1.1 401 x\r\ncontent-length: 0\r\n\r\n"
    assert seen_of(OK, unauthorized) == Probe(healthy=True, phase="no model list, /v1/models 401", wants_key=True)


def test_a_list_that_is_no_list_is_shown():
    assert seen_of(OK, with_body(b"<html>")) == Probe(healthy=True, phase="no model list, /v1/models garbled")


def test_a_list_over_the_limit_is_not_read():
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MAX_LISTING_B + 1)
    assert seen_of(OK, endless) == Probe(healthy=True, phase="no model list, /v1/models too large")


def test_a_list_of_just_the_limit_is_read():
    padded = listing({"id": "m"}).ljust(MAX_LISTING_B)
    assert [offer.id for offer in seen_of(OK, with_body(padded)).models or ()] == ["m"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        listing({"id": 7}),
        listing({"id": "m", "max_model_len": -1}),
        listing({"id": "m", "max_model_len": 2**60}),
        listing({"id": "m", "created": "now"}),
        b"[" * 100_000,
    ],
)
def test_what_is_no_listing_is_not_guessed_at(body):
    assert read_models(body) is None


def test_a_length_that_is_not_told_is_not_invented():
    assert read_models(listing({"id": "m", "max_model_len": None, "created": 3})) == (
        Offer(id="m", families=FAMILIES, created=3),
    )


def test_unusable_names_are_left_out_and_each_name_stands_once():
    cards = [{"id": "/models/x"}, {"id": "m", "created": 1}, {"id": "m", "created": 2}, {"id": "\x1b[2J"}]
    assert [(offer.id, offer.created) for offer in read_models(listing(*cards)) or ()] == [("m", 1)]


@given(st.binary() | st.builds(lambda value: json.dumps(value).encode(), st.dictionaries(st.text(), st.integers())))
def test_no_bytes_make_reading_raise(body):
    read_models(body)


def test_an_unhealthy_engine_is_loading():
    verdict = judge(Probe(healthy=False, phase="/health refused"), None)
    assert (verdict.ready, verdict.phase) == (False, "loading, /health refused")


def test_an_engine_that_has_served_is_unhealthy_and_not_loading():
    verdict = judge(Probe(healthy=False, phase="/health silent"), None, has_served=True)
    assert (verdict.ready, verdict.phase) == (False, "unhealthy, /health silent")


def test_health_without_a_list_is_not_ready():
    verdict = judge(Probe(healthy=True, phase="no model list, /v1/models 404"), None)
    assert (verdict.ready, verdict.phase) == (False, "no model list, /v1/models 404")


def test_an_empty_list_is_not_ready():
    verdict = judge(Probe(healthy=True, models=()), None)
    assert (verdict.ready, verdict.phase) == (False, "lists nothing with a usable name")


def test_another_model_than_the_wanted_one_is_not_ready_and_both_are_named():
    verdict = judge(Probe(healthy=True, models=offers("a", "b")), "c")
    assert (verdict.ready, verdict.offers) == (False, ())
    assert verdict.phase == "wrong model: wanted c, lists a, b"


def test_a_phase_fits_a_record_and_names_what_was_wanted():
    names = [f"{n}".rjust(128, "m") for n in range(9)]
    verdict = judge(Probe(healthy=True, models=offers(*names)), "w" * 128)
    assert len(verdict.phase) <= 256
    assert "w" * 128 in verdict.phase


def test_all_that_is_listed_is_offered_the_wanted_first():
    verdict = judge(Probe(healthy=True, models=offers("a", "b", "c")), "b")
    assert verdict.ready
    assert [offer.id for offer in verdict.offers] == ["b", "a", "c"]


def test_more_models_than_a_record_holds_are_cut_and_counted():
    verdict = judge(Probe(healthy=True, models=offers(*map(str, range(20)))), "19")
    assert [offer.id for offer in verdict.offers] == ["19", *map(str, range(MAX_OFFERS - 1))]
    assert verdict.phase == "4 more models are not offered"


def test_the_longest_names_fit_a_record():
    names = [f"{n}".rjust(128, "m") for n in range(MAX_OFFERS)]
    longest = tuple(Offer(id=name, families=FAMILIES, context_tokens=2**53, created=2**53) for name in names)
    offered = judge(Probe(healthy=True, models=longest), None).offers
    cause = Cause(reason="r" * 128, exit_code=-(2**31), signal=2**31)
    body = Replica(
        node_run=2**63, engine="e" * 128, models=offered, phase="p" * 256, draining=True, cause=cause, started=1e15 / 3
    )
    key, sign = seed_signer(bytes(32))
    draft = Draft("replica", "s" * 128, encode_body(body), run=2**63, rank=3, seq=2**63)
    assert seal(draft, key, sign).body == encode_body(body)
    assert len(offered) > 8


def test_an_engine_is_asked_with_its_key():
    async def ask() -> None:
        async with demo_engine(EngineOptions(api_key="sesame")) as place, aiohttp.ClientSession() as session:
            assert (await probe(session, Target(place.url))).wants_key
            seen = await probe(session, Target(place.url, "sesame"))
            assert seen.models is not None

    run(ask)


def test_an_engine_that_wants_a_key_says_what_can_be_done():
    seen = Probe(healthy=True, phase="no model list, /v1/models 401", wants_key=True)
    assert judge(seen, None, key_advice="give it").phase == "the engine wants an API key: give it"
    assert judge(seen, None).phase == "the engine wants an API key"


def test_the_model_an_engine_served_is_gone_when_others_are_listed():
    assert judge(Probe(healthy=True, models=offers("a")), "b", has_served=True).is_gone
    assert not judge(Probe(healthy=True, models=offers("a")), "b").is_gone
    assert not judge(Probe(healthy=False, phase="/health 503"), "b", has_served=True).is_gone


def test_models_are_offered_under_their_aliases_and_tried_by_their_own_names():
    verdict = judge(Probe(healthy=True, models=offers("a", "b")), "b", aliases=read_aliases(["nice"]))
    assert [offer.id for offer in verdict.offers] == ["nice", "a"]
    assert (verdict.names, verdict.models) == ({"nice": "b"}, ("b", "a"))


def test_an_alias_without_a_model_is_said():
    verdict = judge(Probe(healthy=True, models=offers("a")), None, aliases=read_aliases(["x=later"]))
    assert (verdict.ready, verdict.phase) == (True, "no model for the alias x")


@pytest.mark.parametrize(
    ("phase", "is_ours", "advice"),
    [
        ("loading, /health refused", True, "is --port {port} passed? see the log"),
        ("loading, /health refused", False, "does it listen there?"),
        ("loading, /health 404", False, "is this an OpenAI-compatible engine with /health?"),
        ("wrong model: wanted a, lists b", True, "see --model and the engine's --served-model-name"),
        ("loading, no result: chat 500", True, "see the log"),
        ("loading, no result: chat 500", False, ""),
        ("the engine wants an API key: do x", True, ""),
    ],
)
def test_an_engine_that_stays_unready_is_a_thing_to_look_at(phase, is_ours, advice):
    assert advice_on(phase, is_ours=is_ours) == advice
