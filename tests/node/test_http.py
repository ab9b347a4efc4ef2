"""The door against clients that are slow, large or wrong, on raw sockets."""

import asyncio
import json

import pytest
import uvicorn

from node import http
from node.http import MAX_HEAD_B, MAX_HEADERS, DoorProtocol
from node.server import bind


async def app(scope, receive, send):
    body = (await receive())["body"] or b"ok"
    size = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": body})


def talk(script):
    """Run a script with `say(bytes) -> answer until the end of the connection or the answer`."""

    async def main():
        listening = bind("127.0.0.1:0")
        server = uvicorn.Server(uvicorn.Config(app, http=DoorProtocol, ws="none", lifespan="off", log_config=None))
        task = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await script(listening.getsockname())
        finally:
            server.should_exit = True
            await task
            listening.close()

    asyncio.run(main())


async def ask(address, *parts, pause=0.0, within=3.0, until=None):
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(within):
            for part in parts:
                writer.write(part)
                await asyncio.sleep(pause)
            return await (reader.read(-1) if until is None else reader.readuntil(until))
    except ConnectionError:
        return b""
    finally:
        writer.close()


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def test_a_usual_request_is_served():
    async def script(address):
        assert (await ask(address, HEAD + b"\r\n")).endswith(b"ok")

    talk(script)


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"x: " + b"y" * MAX_HEAD_B + b"\r\n\r\n",
        HEAD + b"".join(b"x%d: y\r\n" % n for n in range(MAX_HEADERS)) + b"\r\n",
        b"GET /" + b"x" * MAX_HEAD_B + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_a_head_over_the_bounds_is_a_431_that_names_them(head):
    async def script(address):
        answer = await ask(address, head)
        assert answer.startswith(b"HTTP/1.1 431 ")
        error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
        assert (error["code"], str(MAX_HEAD_B) in error["message"]) == ("headers_too_large", True)

    talk(script)


@pytest.mark.parametrize(
    "raw", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
def test_what_cannot_be_parsed_is_a_400_in_the_usual_shape(raw):
    async def script(address):
        answer = await ask(address, raw)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "bad_request"

    talk(script)


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade"])
def test_an_offer_to_upgrade_is_ignored_and_the_body_is_kept(name):
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n" + name + b": h2c\r\n"

    async def script(address):
        asked = head + b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 11\r\n\r\nupgrade: me"
        assert (await ask(address, asked, within=1.0, until=b"upgrade: me")).endswith(b"upgrade: me")

    talk(script)


def test_a_head_that_drips_and_a_client_that_says_nothing_are_closed_in_time(monkeypatch):
    monkeypatch.setattr(http, "HEAD_S", 0.2)

    async def script(address):
        drip = [bytes((byte,)) for byte in HEAD * 3]
        assert await ask(address, *drip[:20], pause=0.02) == b""
        assert await ask(address) == b""
        kept = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await ask(address, kept, b"GET / HT", pause=0.05)).endswith(b"ok")

    talk(script)
