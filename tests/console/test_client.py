"""The console's client: what it makes of answers, good and bad, and which socket it takes."""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from console import client
from console.client import Control, find
from registry.errors import TelaError


@pytest.fixture
def runtime():
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:  # a socket's path has to be short
        yield Path(name)


@contextmanager
def answering(path, *answers):
    """A socket that gives each connection the next answer, in the parts it consists of, and closes."""
    asked = []

    def serve():
        for parts in answers:
            connection, _ = listening.accept()
            with connection:
                asked.append(connection.recv(65_536))
                for part in parts:
                    connection.sendall(part)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(5.0)


def ok(body, head=b""):
    return b"HTTP/1.1 200 OK\r\n" + head + b"content-length: %d\r\n\r\n" % len(body) + body


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def about(name, **more):
    return ok(json.dumps({"fabric": {"id": "f", "name": name}, **more}).encode())


def test_an_answer_may_come_in_any_pieces(runtime):
    whole = ok(b'{"a": 1}')
    for size in (1, 3, 7, 1000):
        path = runtime / f"{size}.sock"
        with answering(path, [whole[at : at + size] for at in range(0, len(whole), size)]):
            assert Control(path).get("/view") == {"a": 1}


def test_a_question_is_plain_http(runtime):
    with answering(runtime / "s", [ok(b"{}")]) as asked:
        Control(runtime / "s").post("/records", {"records": []})
    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"POST /records HTTP/1.1"
    assert body == b'{"records": []}'
    assert b"Content-Length: 15" in head


def test_a_stream_yields_each_line_whatever_the_chunks(runtime):
    text = CHUNKED + b'4\r\n{"a"\r\n6\r\n: 1}\n\n\r\n9\r\n{"a": 2}\n\r\n0\r\n\r\n'
    for size in (1, 5, 1000):
        path = runtime / f"{size}.sock"
        with answering(path, [text[at : at + size] for at in range(0, len(text), size)]):
            assert list(Control(path).stream("/watch")) == [{"a": 1}, {"a": 2}]


def test_raw_bytes_come_as_they_are(runtime):
    with answering(runtime / "s", [CHUNKED + b"3\r\n\x00\xff\n\r\n0\r\n\r\n"]):
        assert b"".join(Control(runtime / "s").raw("/ask", {})) == b"\x00\xff\n"


def test_what_the_node_refuses_becomes_its_own_words(runtime):
    error = b'{"error": {"code": "no_such_act", "message": "no act", "hint": "look"}}'
    answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n" % len(error) + error
    with answering(runtime / "s", [answer]), pytest.raises(TelaError) as caught:
        Control(runtime / "s").get("/act?hash=00")
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("no_such_act", "no act", "look")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n",
        ok(b"nonsense"),
        ok(b"[1]"),
        ok(b"[" * 100_000),
        CHUNKED + b"zz\r\n",
        CHUNKED + b"2\r\n{}",
        b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_an_error_in_words(runtime, answer):
    with answering(runtime / "s", [answer]), pytest.raises(TelaError):
        Control(runtime / "s").get("/view")


def test_a_stream_that_breaks_is_said_to_have_broken(runtime):
    with answering(runtime / "s", [CHUNKED + b'9\r\n{"a": 1}\n\r\n']):
        lines = Control(runtime / "s").stream("/watch")
        assert next(lines) == {"a": 1}
        with pytest.raises(TelaError, match="ended early"):
            next(lines)


def test_a_node_that_does_not_answer_is_not_waited_for(runtime):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / "s"))
        listening.listen()
        with pytest.raises(TelaError) as caught:
            Control(runtime / "s").get("/view", timeout_s=0.05)
    assert caught.value.code == "no_answer"


@pytest.fixture
def crowded(runtime):
    """A socket whose queue is full, and a way to take everybody in it."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(runtime / "s"))
        listening.listen(1)
        waiting = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.setblocking(False)
                connection.connect(str(runtime / "s"))
                waiting += 1

        def take():
            for _ in range(waiting):
                listening.accept()[0].close()
            asked, _ = listening.accept()
            with asked:
                asked.recv(65_536)
                asked.sendall(ok(b"{}"))

        yield take


def test_a_node_whose_queue_is_full_is_asked_again(runtime, crowded):
    taking = threading.Timer(0.1, crowded)
    taking.start()
    assert Control(runtime / "s").get("/view") == {}
    taking.join()


def test_a_node_whose_queue_stays_full_does_not_answer(runtime, crowded, monkeypatch):
    monkeypatch.setattr(client, "AGAIN_S", 0.001)
    with pytest.raises(TelaError) as caught:
        Control(runtime / "s").get("/view")
    assert caught.value.code == "no_answer"


def test_the_node_of_the_lowest_slot_is_found(runtime):
    with (
        answering(runtime / "lab-h-10.sock", [about("lab")]),
        answering(runtime / "lab-h-2.sock", [about("lab", pid=2)]),
    ):
        control = find(SimpleNamespace(runtime=runtime), "lab")
        assert control.path.name == "lab-h-2.sock"
        assert control.about["pid"] == 2
        Control(runtime / "lab-h-10.sock").get("/self")


def test_a_dead_socket_is_passed_over(runtime):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(runtime / "lab-h-0.sock"))
    with answering(runtime / "lab-h-1.sock", [about("lab")]):
        assert find(SimpleNamespace(runtime=runtime), "lab").path.name == "lab-h-1.sock"


def test_a_fabric_whose_name_begins_alike_is_another(runtime):
    with answering(runtime / "lab-two-h-0.sock", [about("lab-two")]), pytest.raises(TelaError) as caught:
        find(SimpleNamespace(runtime=runtime), "lab")
    assert caught.value.code == "no_node"


@pytest.mark.parametrize("made", [True, False])
def test_no_node_is_said_with_what_to_do(runtime, made):
    place = runtime if made else runtime / "missing"
    (runtime / "lab-h-x.sock").touch()
    (runtime / "lab-h-0.sock.new").touch()
    with pytest.raises(TelaError) as caught:
        find(SimpleNamespace(runtime=place), "lab")
    assert caught.value.message == "no node of fabric lab runs here"
    assert "tela start" in caught.value.hint


def test_it_imports_nothing_heavy():
    code = "import sys; import console.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "msgspec", "http.client", "nacl", "ssl", "rich"} & set(done.stdout.split())
