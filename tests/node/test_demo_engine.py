"""The demo engine's answers, seen from its socket."""

import base64
import hashlib
import json
import struct

import pytest

from node.engine.demo import EngineOptions
from node.engine.demo_metrics import Histogram
from node.engine.demo_text import WORDS, tokens_of
from tests.node.demo_client import (
    ASK,
    CHAT,
    DEFAULTS,
    MODEL,
    answer,
    client,
    events_of,
    on_the_wire,
    refusal,
    run,
)


def test_health_is_503_while_the_model_loads() -> None:
    status, error = refusal("/health", b"", EngineOptions(load_s=3600), method="GET")
    assert (status, error["type"]) == (503, "ServiceUnavailableError")


def test_health_becomes_200_when_the_model_is_loaded() -> None:
    async def scenario() -> None:
        async with client(EngineOptions(load_s=0.02)) as session:
            while True:
                async with session.get("/health") as response:
                    if response.status == 200:
                        return

    run(scenario)


def test_models_are_listed_and_found_by_ids_with_slashes() -> None:
    async def scenario() -> None:
        async with client(EngineOptions(models=("a/b/c", "d"), context_tokens=99)) as session:
            async with session.get("/v1/models") as response:
                cards = (await response.json())["data"]
            async with session.get("/v1/models/a/b/c") as response:
                card = await response.json()
        assert [c["id"] for c in cards] == ["a/b/c", "d"]
        assert card == cards[0]
        assert (card["object"], card["max_model_len"]) == ("model", 99)

    run(scenario)


def test_chat_answers_with_a_message_and_its_usage() -> None:
    got = json.loads(answer(CHAT, ASK, EngineOptions(natural_tokens=7)))
    (choice,) = got["choices"]
    assert got["object"] == "chat.completion"
    assert len(choice["message"]["content"].split()) == 7
    assert choice["finish_reason"] == "stop"
    assert got["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


@pytest.mark.parametrize("stream", [False, True])
def test_two_engines_answer_with_the_same_bytes(stream: bool) -> None:
    ask = {**ASK, "stream": stream}
    assert answer(CHAT, ask) == answer(CHAT, ask)


def test_the_answer_depends_on_model_and_messages_but_not_on_white_space() -> None:
    options = EngineOptions(models=("a", "b"))

    async def scenario() -> None:
        async with client(options) as session:
            said: list[str] = []
            for model, text in (("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
                body = {"model": model, "messages": [{"role": "user", "content": text}]}
                data = json.dumps(body, indent=len(said))
                async with session.post(CHAT, data=data) as response:
                    said.append((await response.json())["choices"][0]["message"]["content"])
        assert len(set(said)) == 3
        assert said[0] == said[3]

    run(scenario)


def test_a_stream_is_framed_event_by_event_as_vllm_does() -> None:
    options = {"include_usage": True}
    got = answer(CHAT, {**ASK, "stream": True, "stream_options": options, "max_tokens": 2})
    *chunks, done = events_of(got)
    assert done == b"[DONE]"
    role, first, second, finish, usage = map(json.loads, chunks)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert list(first["choices"][0]["delta"]) == list(second["choices"][0]["delta"]) == ["content"]
    assert finish["choices"][0]["finish_reason"] == "length"
    assert [chunk["usage"] for chunk in (role, first, second, finish)] == [None] * 4
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2
    assert {c["id"] for c in (role, first, second, finish, usage)} == {role["id"]}


def test_a_stream_has_no_usage_unless_asked() -> None:
    assert b"usage" not in answer(CHAT, {**ASK, "stream": True})


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_says_what_the_body_says(n: int) -> None:
    ask = {**ASK, "n": n}
    whole = json.loads(answer(CHAT, ask))["choices"]
    said = [""] * n
    for event in events_of(answer(CHAT, {**ask, "stream": True}))[:-1]:
        for choice in json.loads(event)["choices"]:
            said[choice["index"]] += choice["delta"].get("content", "")
    assert said == [choice["message"]["content"] for choice in whole]
    assert len(set(said)) == n


def test_every_event_is_a_chunk_of_its_own() -> None:
    assert on_the_wire("truncate=22", stream=True).count(b"\r\ndata: ") == 22


@pytest.mark.parametrize(
    ("limits", "tokens", "reason"),
    [
        ({"max_tokens": 4}, 4, "length"),
        ({"max_tokens": 40}, 20, "stop"),
        ({"max_tokens": 9, "max_completion_tokens": 3}, 3, "length"),
        ({"max_tokens": 200, "ignore_eos": True}, 200, "length"),
        ({"stop": ["the"], "temperature": 0.3, "unheard_of": {"a": [1]}}, 20, "stop"),
    ],
)
def test_limits_decide_length_and_finish_reason(limits: dict[str, object], tokens: int, reason: str) -> None:
    got = json.loads(answer(CHAT, {**ASK, **limits}))
    assert got["usage"]["completion_tokens"] == tokens
    assert got["choices"][0]["finish_reason"] == reason


def test_completions_answer_each_prompt_n_times() -> None:
    body = {"model": MODEL, "prompt": ["a b", "c", [7, 8, 9]], "n": 2, "max_tokens": 2}
    got = json.loads(answer("/v1/completions", body))
    assert [choice["index"] for choice in got["choices"]] == list(range(6))
    assert got["usage"]["prompt_tokens"] == 6
    assert got["usage"]["completion_tokens"] == 12


def test_completions_stream_text() -> None:
    body = {"model": MODEL, "prompt": "a b", "max_tokens": 3}
    whole = json.loads(answer("/v1/completions", body))["choices"][0]["text"]
    events = events_of(answer("/v1/completions", {**body, "stream": True}))[:-1]
    assert "".join(json.loads(event)["choices"][0]["text"] for event in events) == whole


def test_embeddings_are_unit_vectors_in_both_formats() -> None:
    body = {"model": MODEL, "input": ["a b", "c"], "dimensions": 8}
    plain = json.loads(answer("/v1/embeddings", body))
    packed = json.loads(answer("/v1/embeddings", {**body, "encoding_format": "base64"}))
    vectors = [item["embedding"] for item in plain["data"]]
    assert [sum(x * x for x in vector) for vector in vectors] == pytest.approx([1.0, 1.0])
    assert [list(struct.unpack("<8f", base64.b64decode(item["embedding"]))) for item in packed["data"]] == vectors
    assert plain["usage"]["prompt_tokens"] == 3


def test_an_embedding_depends_on_its_text_alone() -> None:
    both = json.loads(answer("/v1/embeddings", {"model": MODEL, "input": ["x", "y"]}))["data"]
    alone = json.loads(answer("/v1/embeddings", {"model": MODEL, "input": "y"}))["data"]
    assert both[1]["embedding"] == alone[0]["embedding"] != both[0]["embedding"]


def test_tokenize_counts_words_as_usage_does() -> None:
    by_prompt = json.loads(answer("/tokenize", {"model": MODEL, "prompt": "a b a"}))
    by_chat = json.loads(answer("/tokenize", ASK))
    assert by_prompt["count"] == 3
    assert by_prompt["tokens"][0] == by_prompt["tokens"][2] != by_prompt["tokens"][1]
    assert by_chat["count"] == 5


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (CHAT, b"{", 400, None),
        (CHAT, b'{"model": "\xff"}', 400, None),
        (CHAT, b'{"model": "tela/demo"}', 400, None),
        (CHAT, b'{"model": "tela/demo", "messages": "hi"}', 400, None),
        (CHAT, b"[" * 100_000, 400, None),
        (CHAT, b'{"model": "tela/demo", "messages": [], "max_tokens": 0}', 400, "max_tokens"),
        (CHAT, b'{"model": "tela/demo", "messages": [], "max_tokens": 9999}', 400, "max_tokens"),
        (CHAT, b'{"model": "tela/demo", "messages": [], "n": 129}', 400, "n"),
        (CHAT, b'{"model": "other", "messages": []}', 404, "model"),
        ("/v1/completions", b'{"model": "tela/demo", "prompt": []}', 400, None),
        ("/v1/completions", b'{"model": "tela/demo", "prompt": [1, "a"]}', 400, None),
        ("/v1/embeddings", b'{"model": "tela/demo", "input": "", "dimensions": 0}', 400, "dimensions"),
        ("/tokenize", b'{"model": "other", "prompt": ""}', 404, "model"),
        ("/v1/nothing", b"", 404, None),
    ],
)
def test_a_bad_request_gets_an_error_object(path: str, body: bytes, status: int, param: str | None) -> None:
    got, error = refusal(path, body)
    assert (got, error["param"]) == (status, param)


def test_a_prompt_beyond_the_context_is_refused() -> None:
    body = json.dumps({"model": MODEL, "prompt": "a b c d"}).encode()
    status, error = refusal("/v1/completions", body, EngineOptions(context_tokens=4))
    assert status == 400
    assert "maximum context length is 4 tokens" in str(error["message"])


def test_an_unknown_model_card_is_404() -> None:
    assert refusal("/v1/models/no/such", b"", method="GET")[0] == 404


def test_a_wrong_method_is_405_and_names_the_right_one() -> None:
    async def scenario() -> None:
        async with client(DEFAULTS) as session, session.get(CHAT) as response:
            assert (response.status, response.headers["allow"]) == (405, "POST")

    run(scenario)


def test_the_api_key_guards_v1_and_nothing_else() -> None:
    async def scenario() -> None:
        async with client(EngineOptions(api_key="k")) as session:
            statuses = []
            for path, key in (("/v1/models", "no"), ("/v1/models", "k"), ("/health", "no")):
                headers = {"authorization": f"Bearer {key}"}
                async with session.get(path, headers=headers) as response:
                    statuses.append(response.status)
        assert statuses == [401, 200, 200]

    run(scenario)


def test_echo_body_proves_which_bytes_arrived() -> None:
    async def scenario() -> None:
        data = json.dumps(ASK, indent=3).encode() + b"  \n"
        digest = hashlib.sha256(data).hexdigest()
        async with client(DEFAULTS) as session:
            headers = {"x-tela-echo": "body"}
            async with session.post(CHAT, data=data, headers=headers) as response:
                got = await response.json()
            assert response.headers["x-echo-sha256"] == digest
            assert got["choices"][0]["message"]["content"] == digest

    run(scenario)


def test_echo_headers_lists_what_arrived_in_order() -> None:
    got = answer(CHAT, {**ASK, "stream": True}, x_tela_echo="headers", x_probe="ü")
    said = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events_of(got)[:-1])
    assert ["x-tela-echo", "headers"] in json.loads(said)
    assert ["x-probe", "ü".encode().decode("latin-1")] in json.loads(said)


def test_metrics_count_in_the_names_of_vllm() -> None:
    async def scenario() -> None:
        async with client(DEFAULTS) as session:
            async with session.post(CHAT, json={**ASK, "max_tokens": 3, "stream": True}) as got:
                await got.read()
            async with session.get("/metrics") as response:
                text = await response.text()
        label = f'{{engine="0",model_name="{MODEL}"'
        for line in (
            f"vllm:num_requests_running{label}}} 0.0",
            f"vllm:kv_cache_usage_perc{label}}} 0.0",
            f"vllm:prompt_tokens_total{label}}} 5.0",
            f"vllm:generation_tokens_total{label}}} 3.0",
            f'vllm:request_success_total{label},finished_reason="length"}} 1.0',
            f"vllm:time_to_first_token_seconds_count{label}}} 1",
            f"vllm:e2e_request_latency_seconds_count{label}}} 1",
        ):
            assert line in text.splitlines()

    run(scenario)


def test_a_shorter_text_is_a_prefix_of_a_longer_one() -> None:
    long = tokens_of(b"seed", 0, 300)
    assert tokens_of(b"seed", 0, 70) == long[:70]
    assert tokens_of(b"seed", 1, 70) != long[:70]
    assert set(json.loads(b'"%s"' % b"".join(long)).split()) <= set(WORDS)


def test_there_is_a_word_for_each_of_six_bits() -> None:
    assert len(set(WORDS)) == 64


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram((1.0, 2.0))
    for seconds in (1.0, 1.5, 9.0):
        histogram.observe(seconds)
    assert [line.rsplit(" ")[1] for line in histogram.lines("h", "")] == ["1", "2", "3", "11.5", "3"]
