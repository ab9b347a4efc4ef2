"""The request path as a client meets it: real HTTP, real links, the demo engine, faults and bad input."""

import asyncio
import hashlib
import json
import socket

import pytest

from node.engine.demo import EngineOptions
from node.engine.demo_play import Pace
from tests.node.fabric import MODEL, chat, fabric
from tests.node.hostile import error_of


def through(tmp_path, script, **options):
    async def main():
        async with fabric(tmp_path, **options) as door:
            await script(door)

    asyncio.run(main())


async def pieces(raw):
    for start in range(0, len(raw), 262_144):
        yield raw[start : start + 262_144]


# --- what works


def test_the_model_list_and_one_model_with_a_slash_in_its_name(tmp_path):
    async def script(door):
        async with door.get("/v1/models") as response:
            (model,) = (await response.json())["data"]
        assert (model["id"], model["object"], model["max_model_len"]) == (MODEL, "model", 8192)
        async with door.get(f"/v1/models/{MODEL}") as response:
            assert await response.json() == model
        async with door.get("/v1/models/demo/other") as response:
            assert (await error_of(response))[:2] == (404, "model_not_found")

    through(tmp_path, script)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat()),
        ("/v1/completions", {"model": MODEL, "prompt": "hello"}),
        ("/v1/embeddings", {"model": MODEL, "input": ["a", "b c"]}),
    ],
)
def test_a_whole_answer_is_the_engines_byte_for_byte(tmp_path, path, body):
    async def script(door):
        async with door.session.post(door.engines[0].url + path, json=body) as response:
            direct = await response.read()
        async with door.post(path, json=body) as response:
            assert await response.read() == direct
            assert response.status == 200
            assert response.headers["x-tela-node"] == "worker0@demo"
            assert response.headers["content-type"].startswith("application/json")
        (row,) = await door.rows(1)
        assert (row.outcome, row.status, row.model, row.attempts) == ("ok", 200, MODEL, 1)
        assert row.family == path.removeprefix("/v1/").partition("/")[0]
        assert row.prompt_tokens == json.loads(direct)["usage"]["prompt_tokens"]
        assert row.tokens_source == "engine"

    through(tmp_path, script)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("options", [None, {"include_usage": True}, {"include_usage": False}])
def test_a_stream_is_the_engines_byte_for_byte_and_usage_is_known_all_the_same(tmp_path, path, options):
    body = {**chat(stream=True), "prompt": "hello"}
    if path == "/v1/completions":
        del body["messages"]
    if options is not None:
        body["stream_options"] = options

    async def script(door):
        async with door.session.post(door.engines[0].url + path, json=body) as response:
            direct = await response.read()
        async with door.post(path, json=body) as response:
            assert await response.read() == direct
            assert response.headers["x-accel-buffering"] == "no"
            assert "content-length" not in response.headers
        assert (b'"usage"' in direct) == bool(options and options["include_usage"])
        (row,) = await door.rows(1)
        assert (row.outcome, row.stream, row.completion_tokens) == ("ok", True, 20)

    through(tmp_path, script)


def test_the_engine_gets_the_clients_bytes_and_not_its_key(tmp_path):
    raw = b'{ "model" : "demo/model",\n "messages":[{"role":"user","content":"\\u00e9\xc3\xa9"}], "x":1.0e2, "y":[] }'

    async def script(door):
        async with door.post(data=raw, headers={"x-tela-echo": "body"}) as response:
            assert response.headers["x-echo-sha256"] == hashlib.sha256(raw).hexdigest()
        echo = {"x-tela-echo": "headers", "x-custom": "kept", "Cookie": "secret=1", "x-api-key": door.key}
        async with door.post(json=chat(), headers=echo) as response:
            got = (await response.json())["choices"][0]["message"]["content"]
        assert "x-custom" in got
        assert door.key not in got
        assert "secret=1" not in got

    through(tmp_path, script)


def test_a_request_id_is_kept_when_sane_and_made_otherwise(tmp_path):
    async def script(door):
        async with door.post(json=chat(), headers={"x-request-id": "mine-1"}) as response:
            assert response.headers["x-request-id"] == "mine-1"
        async with door.post(json=chat(), headers={"x-request-id": "no good"}) as response:
            assert len(response.headers["x-request-id"]) == 26
        rows = await door.rows(2)
        assert len({row.rid for row in rows}) == 2

    through(tmp_path, script)


def test_one_client_id_used_twice_is_two_requests(tmp_path):
    async def script(door):
        for _ in range(2):
            async with door.post(json=chat(), headers={"x-request-id": "again"}) as response:
                assert response.status == 200
        assert len(await door.rows(2)) == 2

    through(tmp_path, script)


def test_slashes_too_many_are_no_redirect(tmp_path):
    async def script(door):
        async with door.post("//v1//chat/completions/", json=chat()) as response:
            assert response.status == 200
            assert not response.history

    through(tmp_path, script)


def test_a_body_of_many_windows_reaches_the_engine_whole(tmp_path):
    raw = json.dumps(chat("x" * 9_000_000)).encode()

    async def script(door):
        async with door.post(data=pieces(raw), headers={"x-tela-echo": "body"}) as response:
            assert response.headers["x-echo-sha256"] == hashlib.sha256(raw).hexdigest()

    through(tmp_path, script)


# --- bad input


@pytest.mark.parametrize(
    ("raw", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"[1]", "invalid_json", None),
        (b'{"model":"demo/model"', "invalid_json", None),
        (b'{"model":"demo/model","x":"\xff"}', "not_utf8", None),
        (b'{"messages":[]}', "missing_model", "model"),
        (b'{"model":7}', "invalid_type", "model"),
        (b'{"model":"demo/model","model":"demo/other"}', "duplicate_key", "model"),
        (b'{"model":"demo/model","stream":"yes"}', "invalid_type", "stream"),
        (b'{"model":"demo/model","kv_transfer_params":{}}', "unsupported_parameter", "kv_transfer_params"),
        (
            b'{"model":"demo/model","chat_template_kwargs":{"chat_template":"x"}}',
            "unsupported_parameter",
            "chat_template_kwargs.chat_template",
        ),
        (b"[" * 100_000, "invalid_json", None),
    ],
)
def test_a_bad_body_is_a_400_that_names_the_field(tmp_path, raw, code, param):
    async def script(door):
        async with door.post(data=raw) as response:
            status, got, error = await error_of(response)
        assert (status, got, error["param"]) == (400, code, param)

    through(tmp_path, script)


@pytest.mark.parametrize("name", ["X-Vllm-Priority", "x-data-parallel-rank"])
def test_a_header_that_reaches_past_the_engines_door_is_a_400_that_names_it(tmp_path, name):
    async def script(door):
        async with door.post(json=chat(), headers={name: "0"}) as response:
            status, code, error = await error_of(response)
        assert (status, code, error["param"]) == (400, "unsupported_parameter", name.lower())

    through(tmp_path, script)


def test_an_unknown_model_is_a_404_that_names_the_nearest(tmp_path):
    async def script(door):
        async with door.post(json={**chat(), "model": "model"}) as response:
            status, code, error = await error_of(response)
        assert (status, code, error["param"]) == (404, "model_not_found", "model")
        assert MODEL in error["message"]

    through(tmp_path, script)


def test_keys_are_checked_before_anything_is_said(tmp_path):
    async def script(door):
        bodies = set()
        for given in ({"Authorization": ""}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}):
            async with door.post(json=chat(), headers=given) as response:
                assert response.status == 401
                assert response.headers["www-authenticate"] == "Bearer"
                bodies.add(await response.text())
        assert len(bodies) == 1
        async with door.get("/v1/models", headers={"Authorization": "Bearer x"}) as response:
            assert response.status == 401
        async with door.post(json=chat(), headers={"Authorization": "", "x-api-key": door.key}) as response:
            assert response.status == 200
        async with door.post(json=chat(), headers={"Authorization": f"bearer {door.key}"}) as response:
            assert response.status == 200

    through(tmp_path, script)


def test_unknown_routes_and_wrong_methods_have_openai_bodies(tmp_path):
    async def script(door):
        async with door.get("/v1/nothing") as response:
            assert (await error_of(response))[:2] == (404, "unknown_route")
        async with door.get("/v1/chat/completions") as response:
            assert (await error_of(response))[:2] == (405, "method_not_allowed")
            assert response.headers["allow"] == "POST"
        async with door.post("/v1/models", json={}) as response:
            assert (await error_of(response))[:2] == (405, "method_not_allowed")
        async with door.get("/health") as response:
            assert response.status == 200

    through(tmp_path, script)


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_body_over_the_limit_is_a_413_with_the_limit(tmp_path, is_declared):
    raw = b" " * (65 * 1024 * 1024)
    declared = {"Content-Length": str(len(raw))} if is_declared else {}

    async def script(door):
        async with door.post(data=pieces(raw), headers=declared) as response:
            status, code, error = await error_of(response)
        assert (status, code) == (413, "request_too_large")
        assert "67108864" in error["message"]
        async with door.post(json=chat()) as response:
            assert response.status == 200

    through(tmp_path, script)


def test_a_compressed_body_is_a_415(tmp_path):
    async def script(door):
        async with door.post(data=b"x", headers={"Content-Encoding": "gzip"}) as response:
            assert (await error_of(response))[:2] == (415, "unsupported_encoding")

    through(tmp_path, script)


def test_an_engine_that_lists_another_model_serves_nothing_and_says_so(tmp_path):
    async def script(door):
        await door.until(lambda: door.ingress.view().replicas)
        await door.until(
            lambda: "demo/model" in str([row.replica.phase for row in door.ingress.view().replicas.values()])
        )
        async with door.post(json=chat()) as response:
            assert response.status == 404
        assert door.ingress.view().models == {}

    through(tmp_path, script, models={0: "demo/wanted"})


# --- faults


FAULT = "x-tela-fault"


@pytest.mark.parametrize("fault", ["reset", "truncate", "500", "503", "garbage"])
def test_a_fault_of_one_replica_is_tried_elsewhere_and_the_client_sees_nothing(tmp_path, fault):
    async def script(door):
        broken = EngineOptions(models=(MODEL,), faults=(await faults(fault)), fault_every=1)
        door.engines[0].engine.options = broken
        for _ in range(6):
            async with door.post(json=chat()) as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-tela-node"] == "worker1@demo"
        assert max(row.attempts for row in await door.rows(6)) == 2

    through(tmp_path, script, workers=2)


async def faults(text):
    from node.engine.demo_faults import parse_faults

    return parse_faults(text)


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("reset", 502, "upstream_disconnect"),
        ("truncate", 502, "upstream_disconnect"),
        ("garbage", 502, "upstream_disconnect"),
    ],
)
def test_when_every_attempt_fails_the_client_is_told_and_should_not_multiply_it(tmp_path, fault, status, code):
    async def script(door):
        async with door.post(json=chat(), headers={FAULT: fault}) as response:
            assert (await error_of(response))[:2] == (status, code)
            assert response.headers["x-should-retry"] == "false"
        (row,) = await door.rows(1)
        assert (row.outcome, row.attempts, row.completion_tokens) == ("upstream_error", 2, None)

    through(tmp_path, script, workers=2)


def test_an_engines_own_error_is_delivered_as_it_is(tmp_path):
    async def script(door):
        async with door.session.post(
            door.engines[0].url + "/v1/chat/completions", json=chat(), headers={FAULT: "500"}
        ) as response:
            direct = await response.read()
        async with door.post(json=chat(), headers={FAULT: "500"}) as response:
            assert response.status == 500
            assert await response.read() == direct

    through(tmp_path, script, workers=2)


@pytest.mark.parametrize("fault", ["truncate=3", "eof=3"])
def test_a_stream_that_breaks_ends_with_an_error_event_and_no_end_mark(tmp_path, fault):
    async def script(door):
        async with door.post(json=chat(stream=True), headers={FAULT: fault}) as response:
            assert response.status == 200
            body = await response.read()
        *events, last = body.strip().split(b"\n\n")
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert error["code"] == "upstream_disconnect"
        assert len(events) == 3
        assert b"[DONE]" not in body
        assert b'finish_reason":"' not in body
        (row,) = await door.rows(1)
        assert (row.outcome, row.status) == ("truncated", 200)
        assert row.replica in door.ingress.door.relay._guard._ejected

    through(tmp_path, script, workers=2)


def test_a_busy_engines_answer_says_when_to_come_back(tmp_path):
    async def script(door):
        async with door.post(json=chat(), headers={FAULT: "503"}) as response:
            assert response.status == 503
            assert response.headers["retry-after"] == "1"
            assert "x-should-retry" not in response.headers

    through(tmp_path, script)


@pytest.mark.parametrize("fault", ["reset", "truncate=0", "eof=0"])
def test_a_stream_that_breaks_before_its_first_byte_is_tried_elsewhere(tmp_path, fault):
    async def script(door):
        broken = EngineOptions(models=(MODEL,), faults=(await faults(fault)), fault_every=1)
        door.engines[0].engine.options = broken
        for _ in range(4):
            async with door.post(json=chat(stream=True)) as response:
                assert (await response.read()).endswith(b"data: [DONE]\n\n")

    through(tmp_path, script, workers=2)


def test_a_hung_engine_is_a_504_within_the_deadline(tmp_path):
    async def script(door):
        async with door.post(json=chat(), headers={FAULT: "hang"}) as response:
            assert (await error_of(response))[:2] == (504, "upstream_timeout")
        await door.until(lambda: running(door.engines[0].engine) == 0)

    through(tmp_path, script, deadline_s=0.3)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine_at_once(tmp_path, stream):
    slow = EngineOptions(models=(MODEL,), pace=Pace(first_s=0.0, token_s=0.2), natural_tokens=500)

    async def script(door):
        engine = door.engines[0].engine
        host, port = door.url.removeprefix("http://").split(":")
        body = json.dumps(chat(stream=stream)).encode()
        client = socket.create_connection((host, int(port)))
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + door.key.encode()
            + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )  # fmt: skip
        await door.until(lambda: running(engine) == 1)
        if stream:
            client.setblocking(False)
            assert b"200 OK" in await asyncio.get_running_loop().sock_recv(client, 1000)
        client.close()
        left = asyncio.get_running_loop().time()
        await door.until(lambda: running(engine) == 0)
        assert asyncio.get_running_loop().time() - left < 1.0
        (row,) = await door.rows(1)
        assert (row.status, row.outcome) == (200 if stream else 499, "client_disconnect")  # what the client saw
        assert not door.ingress.door.relay._guard._ejected  # the replica did nothing wrong
        assert door.ingress.door.relay.in_flight == {door.workers[0].author.id + "/e0": 0}

    through(tmp_path, script, options=slow)


def running(engine):
    return engine.metrics[MODEL].running


def test_without_a_replica_it_is_a_503_that_says_why_and_when_to_come_back(tmp_path):
    async def script(door):
        await door.engines[0].stop()
        async with door.post(json=chat()) as response:
            assert response.status in {502, 503}
        await door.until(lambda: not door.ingress.view().routable.get(MODEL))
        async with door.post(json=chat()) as response:
            status, code, error = await error_of(response)
            assert response.headers["retry-after"]
        assert (status, code) == (503, "no_healthy_provider")
        assert "DOWN" in error["message"]
        async with door.get("/v1/models") as response:
            assert (await response.json())["data"] == []

    through(tmp_path, script)


def test_a_ledger_that_cannot_write_refuses_before_anything_is_forwarded(tmp_path):
    async def script(door):
        door.ingress.door.ledger.close()
        async with door.post(json=chat()) as response:
            assert (await error_of(response))[:2] == (503, "ledger_unavailable")
            assert response.headers["retry-after"]

    through(tmp_path, script)


# --- bounds


def test_a_body_that_never_comes_is_a_408(tmp_path, monkeypatch):
    monkeypatch.setattr("node.ingress.edge.BODY_S", 0.2)

    async def script(door):
        host, port = door.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            + door.key.encode() + b"\r\nContent-Length: 5\r\n\r\n"
        )  # fmt: skip
        async with asyncio.timeout(2.0):
            assert b" 408 " in await reader.readline()
        writer.close()

    through(tmp_path, script)


def test_more_streams_than_a_link_takes_are_told_to_come_back(tmp_path):
    async def script(door):
        link = next(iter(door.ingress.mesh._links.values()))
        link._mux._max_streams = 0
        async with door.post(json=chat()) as response:
            assert (await error_of(response))[:2] == (503, "no_healthy_provider")
            assert response.headers["retry-after"]
        link._mux._max_streams = 10
        async with door.post(json=chat()) as response:
            assert response.status == 200

    through(tmp_path, script)
