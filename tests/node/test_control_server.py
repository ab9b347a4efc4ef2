"""The control socket: whose it is, who may connect, and what lies in its place."""

import asyncio
import contextlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
import uvloop

from console.client import Control
from node.control.server import ControlServer, peer_uid
from registry.errors import TelaError
from tests.node.control import Shown, serving


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:  # a socket's path has to be short
        yield Path(name) / "run" / "lab-h-0.sock"


def run(main, *, loop=None):
    async def whole():
        async with asyncio.timeout(20.0), serving(Shown()) as face:
            return await main(face)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(whole())


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_the_socket_and_its_directory_are_its_owner_s_alone(loop):
    async def main(face):
        path = face.server.path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (await face.get("/self"))["version"] == "0"

    run(main, loop=loop)


def test_the_kernel_says_who_connects():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("perl") is None, reason="needs root, to be another user")
@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_another_user_is_turned_away_even_where_the_modes_let_him_in(loop):
    ask = (
        'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die "no way in"; '
        'send(S, "GET /self HTTP/1.1\\r\\nHost: t\\r\\n\\r\\n", 16384); $n = sysread(S, $b, 100); print "got[$b]";'
    )

    async def main(face):
        path = face.server.path
        path.chmod(0o666)
        path.parent.chmod(0o755)
        path.parent.parent.chmod(0o755)
        done = await asyncio.to_thread(
            subprocess.run, ["perl", "-e", ask, str(path)], user=65_534, capture_output=True, text=True, timeout=10
        )
        assert done.stdout == "got[]", done.stderr
        assert (await face.get("/self"))["version"] == "0"

    run(main, loop=loop)


def test_a_socket_nobody_listens_at_is_replaced(place):
    place.parent.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))

    async def main():
        server = ControlServer(Shown().app, place)
        server.close()
        await server.serve()
        assert not place.exists()

    asyncio.run(main())


def test_a_socket_somebody_listens_at_is_left_alone(place):
    place.parent.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(place))
        alive.listen()

        async def main():
            with pytest.raises(TelaError) as caught:
                ControlServer(Shown().app, place)
            assert caught.value.code == "address_in_use"

        asyncio.run(main())
        assert place.exists()


def test_the_socket_of_the_next_start_is_not_removed(place):
    async def main():
        server = ControlServer(Shown().app, place)
        place.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(place))
            server.close()
            await server.serve()
            assert place.exists()

    asyncio.run(main())


def test_a_path_that_is_too_long_is_refused_with_the_remedy(tmp_path):
    async def main():
        with pytest.raises(TelaError) as caught:
            ControlServer(Shown().app, tmp_path / ("x" * 110) / "lab-h-0.sock")
        assert "XDG_RUNTIME_DIR" in caught.value.hint

    asyncio.run(main())


def test_what_is_no_http_ends_the_connection_and_nothing_else():
    async def main(face):
        def shout(noise):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10.0)
                connection.connect(str(face.server.path))
                connection.sendall(noise)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

        for noise in (b"\x00" * 100, b"GET /self HTTP/9.9\r\n\r\n", b"GET " + b"x" * 40_000, b""):
            await asyncio.to_thread(shout, noise)
        assert (await face.get("/self"))["version"] == "0"

    run(main)


def test_many_faces_are_answered_at_once():
    async def main(face):
        controls = [Control(face.server.path) for _ in range(50)]
        answers = await asyncio.gather(*(asyncio.to_thread(each.get, "/view") for each in controls))
        assert len({len(answer["nodes"]) for answer in answers}) == 1

    run(main)


def test_faces_that_come_while_the_node_is_busy_wait_in_its_queue():
    async def main(face):
        with contextlib.ExitStack() as stack:
            for _ in range(200):  # the loop takes none of them meanwhile
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.setblocking(False)
                connection.connect(str(face.server.path))
        assert (await face.get("/self"))["version"] == "0"

    run(main)
