"""The door against clients that are slow, large or wrong, on raw sockets."""

import asyncio
import json

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from node import http
from node.http import MAX_HEAD_B, MAX_HEADERS, DoorProtocol, hide_upgrade
from node.server import bind


async def app(scope, receive, send):
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    body += b"".join(value for name, value in scope["headers"] if name == b"x-shown") or b"ok" * (not body)
    size = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": body})


def talk(script, served=app):
    """Run a script with the address of a server."""

    async def main():
        listening = bind("127.0.0.1:0")
        server = uvicorn.Server(uvicorn.Config(served, http=DoorProtocol, ws="none", lifespan="off", log_config=None))
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


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade", b"UPGRADE", b"uPGRADE"])
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


# --- the same bytes in other pieces


class Wire(asyncio.Transport):
    """The server's end of a connection whose bytes a test brings as it likes."""

    def __init__(self):
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data):
        assert not self.closed
        self.sent += data

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


def answers(*parts, served=app):
    """What a server sends for bytes that come in these pieces, and whether it closes."""

    async def main():
        wire, config = Wire(), uvicorn.Config(served, http=DoorProtocol, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        protocol = DoorProtocol(config=config, server_state=state, app_state={})
        protocol.connection_made(wire)
        for part in parts:
            if not wire.closed:
                protocol.data_received(part)
            while state.tasks and not protocol.cycle.more_body:
                await asyncio.wait(state.tasks)
                await asyncio.sleep(0)
        for task in state.tasks:
            task.cancel()
        await asyncio.sleep(0)
        sent, is_closed = wire.sent, wire.closed
        protocol.connection_lost(None)
        return sent, is_closed

    return asyncio.run(main())


OFFER = (
    b"POST / HTTP/1.1\r\nHost: x\r\nupgrade-insecure-requests: 1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"UpGrade: h2c\r\nUpgrade: foo\r\nContent-Length: 22\r\n\r\na\r\nupgrade: b\r\n\r\nGET /"
)


@pytest.mark.parametrize("at", range(1, len(OFFER)))
def test_an_offer_to_upgrade_is_ignored_wherever_its_bytes_are_cut(at):
    sent, is_closed = answers(OFFER[:at], OFFER[at:])
    assert (sent.count(b"HTTP/1.1 "), is_closed) == (1, False)
    assert sent.endswith(b"\r\n\r\na\r\nupgrade: b\r\n\r\nGET /")


def test_an_offer_that_comes_byte_by_byte_is_ignored():
    sent, _ = answers(*(OFFER[at : at + 1] for at in range(len(OFFER))))
    assert sent.endswith(b"\r\n\r\na\r\nupgrade: b\r\n\r\nGET /")


def test_a_connection_is_used_again_after_an_offer():
    sent, is_closed = answers(OFFER, OFFER)
    assert (sent.count(b"HTTP/1.1 200 "), is_closed) == (2, False)


def test_an_offer_that_could_not_be_hidden_is_no_way_to_smuggle_a_request():
    first = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nA"
    sent, is_closed = answers(first + OFFER[: OFFER.index(b"a\r\nup")], b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (sent.count(b"HTTP/1.1 "), sent[-1:], is_closed) == (1, b"A", True)


@given(st.binary(max_size=60), st.booleans())
def test_hiding_offers_changes_no_length_and_nothing_after_the_head(raw, at_line):
    body = b"\r\n\r\nupgrade: x\r\n"
    data = bytearray(raw + body)
    hide_upgrade(data, at_line=at_line)
    assert len(data) == len(raw) + len(body)
    assert data.endswith(body)


@pytest.mark.parametrize(
    ("head", "hidden"),
    [
        (b"GET / HTTP/1.1\r\nUPGRADE: a\r\n", b"GET / HTTP/1.1\r\nx-ignor: a\r\n"),
        (b"a: b\r\nupgrade:a\r\nUpgrade: b", b"a: b\r\nx-ignor:a\r\nx-ignor: b"),
        (b"upgrade: a", b"x-ignor: a"),
        (b"x: upgrade: a\r\nupgrade-x: 1", b"x: upgrade: a\r\nupgrade-x: 1"),
        (b"\r\nupgrade: a", b"\r\nupgrade: a"),
        (b"", b""),
    ],
)
def test_only_headers_of_that_name_are_hidden(head, hidden):
    data = bytearray(head)
    hide_upgrade(data, at_line=True)
    assert data == hidden


def test_what_does_not_begin_with_a_line_is_hidden_from_its_next_line():
    data = bytearray(b"upgrade: a\r\nupgrade: b\r\n")
    hide_upgrade(data, at_line=False)
    assert data == b"upgrade: a\r\nx-ignor: b\r\n"


# --- what is never ended


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nx: ",
        b"GET /",
        CHUNKED + b"0\r\nx: ",
        CHUNKED + b"5;x=",
        CHUNKED + b"0000000000",
        b"\r\n" * 10,
    ],
    ids=["header", "target", "trailer", "extension", "size", "empty lines"],
)
def test_a_line_without_end_is_refused_before_it_takes_memory(begun):
    piece = (begun[-2:] if begun.endswith(b"\n") else b"0") * 1000
    sent, is_closed = answers(begun, *[piece] * 100)
    assert is_closed
    assert sent == b"" or sent.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    assert len(sent) < 500


def test_a_long_body_is_no_line_without_end():
    body = b"y" * (4 * MAX_HEAD_B)
    sent, is_closed = answers(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    assert (sent.endswith(body), is_closed) == (True, False)
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    sent, is_closed = answers(CHUNKED, chunk, chunk, b"0\r\n\r\n")
    assert (sent.endswith(b"hello" + body * 2), is_closed) == (True, False)


def test_a_trailer_is_no_header():
    sent, _ = answers(CHUNKED + b"0\r\nx-shown: trailer\r\n\r\n")
    assert sent.endswith(b"\r\n\r\nhello")
    sent, _ = answers(CHUNKED.replace(b"Host: x", b"x-shown: header") + b"0\r\n\r\n")
    assert sent.endswith(b"\r\n\r\nhelloheader")


def test_too_many_trailers_are_refused():
    sent, is_closed = answers(CHUNKED + b"0\r\n" + b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n")
    assert (sent[:13], is_closed) == (b"HTTP/1.1 431 ", True)


# --- refusals are never taken for the answer to something else


async def early(scope, receive, send):
    """Answers before it has read anything."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


def test_what_cannot_be_parsed_after_a_request_does_not_answer_it():
    sent, is_closed = answers(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")
    assert (sent.startswith(b"HTTP/1.1 200 "), sent.count(b"HTTP/1.1 "), is_closed) == (True, 1, True)


def test_what_cannot_be_parsed_in_a_body_after_its_answer_is_no_second_answer():
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"

    async def script(address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(head)
        assert (await reader.readuntil(b"no")).startswith(b"HTTP/1.1 401 ")
        writer.write(b"nonsense\r\n")
        async with asyncio.timeout(3.0):
            assert await reader.read() == b""
        writer.close()

    talk(script, served=early)


def test_a_body_that_goes_on_after_its_answer_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(http, "REST_S", 0.2)

    async def script(address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert (await reader.readuntil(b"no")).startswith(b"HTTP/1.1 401 ")
        ended = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(3.0):
            while not ended.done():  # it drips on, so that no idle time ever ends
                writer.write(b"x")
                await asyncio.wait([ended], timeout=0.02)
        assert ended.exception() is not None or ended.result() == b""
        writer.close()

    talk(script, served=early)


def test_a_body_that_ends_after_its_answer_leaves_the_connection_in_use(monkeypatch):
    monkeypatch.setattr(http, "REST_S", 0.1)

    async def script(address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        await reader.readuntil(b"no")
        writer.write(b"hello")
        await asyncio.sleep(0.3)  # long after the rest was due
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(3.0):
            assert (await reader.readuntil(b"no")).startswith(b"HTTP/1.1 401 ")
        writer.close()

    talk(script, served=early)


# --- clients that do not read


def test_a_client_that_takes_nothing_is_cut_off_and_its_request_ends(monkeypatch):
    monkeypatch.setattr(http, "STALL_S", 0.2)
    ended = asyncio.Event()

    async def endless(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def pour():
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
                await asyncio.sleep(0)

        pouring = asyncio.ensure_future(pour())
        assert (await receive())["type"] == "http.disconnect"
        pouring.cancel()
        ended.set()

    async def script(address):
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5.0):
            await ended.wait()
        assert not (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()

    talk(script, served=endless)


def test_a_client_that_reads_again_in_time_is_kept(monkeypatch):
    monkeypatch.setattr(http, "STALL_S", 1.0)
    body = b"x" * 30_000_000

    async def long(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    async def script(address):
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(HEAD + b"\r\n")
        await asyncio.sleep(0.3)
        assert (await reader.read()).count(b"x") == len(body)
        writer.close()

    talk(script, served=long)
