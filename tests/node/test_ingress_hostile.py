"""The request path with engines and clients that do what they should not, on real sockets."""

import asyncio
import json
import socket

import aiohttp
import pytest

from tests.node.fabric import MODEL, chat
from tests.node.hostile import CHUNK, DONE, behind, error_of, events, whole

REDIRECT = b"location: http://169.254.169.254/\r\n"


@pytest.mark.parametrize("status", [b"302 Found", b"307 Temporary Redirect", b"401 Unauthorized"])
def test_a_redirect_or_a_refused_key_of_the_engine_is_not_the_clients_business(tmp_path, status):
    async def script(door, _):
        async with door.post(json=chat(), headers={}) as response:
            assert (await error_of(response))[:2] == (502, "upstream_disconnect")
            assert "location" not in response.headers

    behind(tmp_path, whole(status=status, head=REDIRECT), script)


def test_an_event_stream_in_capitals_is_one(tmp_path):
    async def script(door, engine):
        async with door.post(json=chat(stream=True)) as response:
            assert await response.read() == CHUNK + DONE
        assert len(engine.seen) == 1

    behind(tmp_path, events(CHUNK, DONE, kind=b"Text/Event-Stream"), script)


@pytest.mark.parametrize("last", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\r"])
def test_an_end_mark_without_its_empty_line_is_an_end_mark(tmp_path, last):
    async def script(door, _):
        async with door.post(json=chat(stream=True)) as response:
            assert await response.read() == CHUNK + last
        (row,) = await door.rows(1)
        assert row.outcome == "ok"

    behind(tmp_path, events(CHUNK, last), script)


def test_what_an_engine_does_after_the_end_mark_changes_nothing(tmp_path):
    async def answer(writer):
        await events(CHUNK, DONE)(writer)
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def script(door, _):
        async with door.post(json=chat(stream=True)) as response:
            assert await response.read() == CHUNK + DONE
        (row,) = await door.rows(1)
        assert (row.outcome, row.status) == ("ok", 200)

    behind(tmp_path, answer, script)


def test_a_head_without_a_body_is_a_504_within_the_deadline(tmp_path):
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n")

    async def script(door, _):
        async with door.post(json=chat()) as response:
            assert (await error_of(response))[:2] == (504, "upstream_timeout")

    behind(tmp_path, answer, script, deadline_s=0.5)


def test_an_engine_gets_our_request_id_since_clients_may_share_theirs(tmp_path):
    async def script(door, engine):
        async with door.post(json=chat(), headers={"x-request-id": "shared"}) as response:
            assert response.headers["x-request-id"] == "shared"
        (row,) = await door.rows(1)
        assert f"x-request-id: {row.rid}".encode() in engine.seen[0].lower().replace(
            row.rid.lower().encode(), row.rid.encode()
        )
        assert b"shared" not in engine.seen[0]

    behind(tmp_path, whole(), script)


def test_a_long_answer_is_passed_on_as_it_comes_and_its_usage_is_read(tmp_path):
    body = b'{"data":"' + b"x" * 20_000_000 + b'","usage":{"prompt_tokens":7,"total_tokens":7}}'

    async def script(door, _):
        async with door.post("/v1/embeddings", json={"model": MODEL, "input": "a"}) as response:
            assert await response.read() == body
        (row,) = await door.rows(1)
        assert (row.outcome, row.prompt_tokens, row.bytes_out) == ("ok", 7, len(body))

    behind(tmp_path, whole(body), script)


def test_a_long_answer_that_breaks_breaks_the_connection(tmp_path):
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 30000000\r\n\r\n")
        writer.write(b'{"data":"' + b"x" * 15_000_000)
        await writer.drain()
        writer.transport.abort()

    async def script(door, _):
        with pytest.raises(aiohttp.ClientPayloadError):
            async with door.post(json=chat()) as response:
                await response.read()
        (row,) = await door.rows(1)
        assert row.outcome == "truncated"

    behind(tmp_path, answer, script)


def test_an_engine_that_dies_on_a_fresh_connection_is_asked_once_per_attempt(tmp_path):
    async def answer(writer):
        writer.transport.abort()

    async def script(door, engine):
        async with door.post(json=chat()) as response:
            assert response.status == 502
        assert len(engine.seen) == 1

    behind(tmp_path, answer, script)


def test_clients_that_do_not_read_do_not_stop_the_others(tmp_path):
    long = [CHUNK * 2000] * 30

    async def script(door, _):
        host, port = door.url.removeprefix("http://").split(":")
        body = json.dumps(chat(stream=True)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.key}\r\n"
        stalled = []
        for _ in range(20):
            client = socket.create_connection((host, int(port)))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            stalled.append(client)
        await asyncio.sleep(1.0)
        async with asyncio.timeout(4.0), door.post(json=chat(stream=True)) as response:
            assert len(await response.content.read(1000)) == 1000
        for client in stalled:
            client.close()

    behind(tmp_path, events(*long, DONE), script)


# --- time


def test_a_row_ends_with_its_answer_and_not_with_the_engines_connection(tmp_path):
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + CHUNK + DONE)
        await asyncio.sleep(5.0)

    async def script(door, _):
        async with door.post(json=chat(stream=True)) as response:
            assert await response.read() == CHUNK + DONE
        (row,) = await door.rows(1)
        assert 0.0 <= row.ts_end - row.ts_first < 0.5

    behind(tmp_path, answer, script)


def dripping(*begun, each=b"x", pause_s=0.05):
    """An engine that goes on in small pieces and never comes to an end."""

    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + b"".join(begun))
        while not writer.is_closing():
            writer.write(each)
            await asyncio.sleep(pause_s)

    return answer


def test_half_an_event_that_drips_is_silence(tmp_path):
    async def script(door, _):
        door.ingress.door.relay._quiet_s = 0.4
        async with asyncio.timeout(4.0), door.post(json=chat(stream=True)) as response:
            body = await response.read()
        assert body.startswith(CHUNK)
        assert b"brought nothing for too long" in body[len(CHUNK) :]
        assert b"xx" not in body
        (row,) = await door.rows(1)
        assert (row.status, row.outcome) == (200, "truncated")

    behind(tmp_path, dripping(CHUNK, b"data: "), script)


def test_half_an_event_that_drips_from_the_start_is_a_504_within_the_deadline(tmp_path):
    async def script(door, _):
        async with asyncio.timeout(4.0), door.post(json=chat(stream=True)) as response:
            assert (await error_of(response))[:2] == (504, "upstream_timeout")

    behind(tmp_path, dripping(b"data: "), script, deadline_s=0.6)


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'


@pytest.mark.parametrize("sign", [b": still here\n\n", USAGE], ids=["comment", "event that tela cuts"])
def test_an_engine_that_shows_signs_of_life_is_waited_for(tmp_path, sign):
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + CHUNK)
        for _ in range(8):
            await asyncio.sleep(0.15)
            writer.write(sign)
        writer.write(CHUNK + DONE)
        writer.close()

    async def script(door, _):
        door.ingress.door.relay._quiet_s = 0.6
        async with door.post(json=chat(stream=True)) as response:
            assert (await response.read()).replace(sign, b"") == CHUNK + CHUNK + DONE

    behind(tmp_path, answer, script)


def test_a_client_that_takes_nothing_is_given_up_and_its_engine_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr("node.ingress.passage.TAKE_S", 0.3)
    monkeypatch.setattr("node.http.STALL_S", 0.3)
    left = asyncio.Event()

    async def answer(writer):
        try:
            await events(*[CHUNK * 2000] * 1000)(writer)
        except ConnectionError:
            pass
        finally:
            left.set()

    async def script(door, _):
        host, port = door.url.removeprefix("http://").split(":")
        body = json.dumps(chat(stream=True)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.key}\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            async with asyncio.timeout(8.0):
                await left.wait()
            (row,) = await door.rows(1)
            assert (row.status, row.outcome) == (200, "client_disconnect")
            assert not door.ingress.door.relay._guard._ejected

    behind(tmp_path, answer, script)
