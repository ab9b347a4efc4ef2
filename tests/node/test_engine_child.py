"""One engine process, its group and its log, with real processes."""

import asyncio
import os
import select
import shlex
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from node.engine.child import Child, Exit, free_port
from node.engine.words import words_of
from registry.errors import TelaError
from tests.node.demo_client import DEADLINE_S, run

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
STUBBORN = "sh -c 'trap \"\" TERM; echo up; while :; do sleep 60; done'"
SINGLE = "sh -c 'echo $$; exec sleep 60'"
# Prints the pids of itself and of a grandchild in the same group, then waits.
FAMILY = "sh -c 'sleep 60 & echo $$ $!; wait'"


async def lines_of(log: Path) -> list[str]:
    """What the child wrote, once there is a whole line."""
    while not log.read_text().endswith("\n"):
        await asyncio.sleep(0.005)
    return log.read_text().splitlines()


def members_of(group: int) -> list[int]:
    """The processes of a group that are not zombies of somebody else's parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


async def until_empty(group: int) -> None:
    while members_of(group):
        await asyncio.sleep(0.005)


def exit_of(command: str, log: Path, env: dict[str, str] | None = None) -> Exit:
    ends = []

    async def live() -> None:
        child = await Child.spawn(command, log=log, env=env)
        ends.append(await child.wait())

    run(live)
    return ends[0]


def test_an_exit_code_is_told(tmp_path):
    assert exit_of("sh -c 'exit 3'", tmp_path / "log") == Exit(3, None)


def test_a_signal_is_told(tmp_path):
    assert exit_of("sh -c 'kill -9 $$'", tmp_path / "log") == Exit(None, signal.SIGKILL)


def test_what_it_prints_is_appended_to_its_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    exit_of("sh -c 'echo out; echo err >&2'", log)
    assert log.read_text() == "before\nout\nerr\n"


def test_the_log_is_ours_alone_even_if_it_was_not(tmp_path):
    fresh, shared = tmp_path / "fresh", tmp_path / "shared"
    shared.touch(mode=0o666)
    exit_of("true", fresh)
    exit_of("true", shared)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (fresh, shared)] == [0o600, 0o600]


def test_a_log_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(TelaError) as refused:
        exit_of("true", tmp_path / "link")
    assert refused.value.code == "log_not_writable"
    assert not (tmp_path / "target").exists()


def test_a_port_is_filled_in_and_braces_stay(tmp_path):
    log = tmp_path / "log"
    children = []

    async def live() -> None:
        children.append(await Child.spawn("""sh -c 'echo "$1 $2"' - --port={port} '{"a": 1}'""", log=log))
        await children[0].wait()

    run(live)
    assert log.read_text() == f'--port={children[0].port} {{"a": 1}}\n'


def test_a_key_is_filled_in_where_there_is_a_place_for_it(tmp_path):
    log = tmp_path / "log"

    async def live() -> None:
        child = await Child.spawn("echo --api-key={api_key} {port}", log=log, port=free_port(), api_key="k")
        await child.wait()
        assert log.read_text() == f"--api-key=k {child.port}\n"

    run(live)


def test_a_port_somebody_listens_at_is_refused(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        async def live() -> None:
            with pytest.raises(TelaError) as refused:
                await Child.spawn("true", log=tmp_path / "log", port=taken.getsockname()[1])
            assert refused.value.code == "port_in_use"

        run(live)


def test_where_its_log_begins_is_known(tmp_path):
    (tmp_path / "log").write_text("before\n")

    async def live() -> None:
        child = await Child.spawn("echo now", log=tmp_path / "log")
        await child.wait()
        assert child.log_from_b == 7

    run(live)


def test_it_gets_the_environment_it_is_given(tmp_path):
    env = {"PATH": os.environ["PATH"], "COLOUR": "blue", "LC_ALL": "C.UTF-8"}
    exit_of("sh -c 'echo $COLOUR'", tmp_path / "log", env)
    assert (tmp_path / "log").read_text() == "blue\n"


@ON_LINUX
def test_no_signal_is_ignored_or_blocked_in_it(tmp_path):
    exit_of("grep -E '^Sig(Ign|Blk)' /proc/self/status", tmp_path / "log")
    masks = [int(line.split()[1], 16) for line in (tmp_path / "log").read_text().splitlines()]
    of_libc = 0b11 << 31  # 32 and 33 are its own, and no program can set them
    assert [mask & ~of_libc for mask in masks] == [0, 0]


@ON_LINUX
def test_no_descriptor_of_ours_is_open_in_it(tmp_path):
    inheritable = os.dup2(2, free_descriptor(), inheritable=True)
    try:
        exit_of("sh -c 'cd /proc/$$/fd && echo *'", tmp_path / "log")
    finally:
        os.close(inheritable)
    assert str(inheritable) not in (tmp_path / "log").read_text().split()


def free_descriptor() -> int:
    descriptor = os.dup(2)
    os.close(descriptor)
    return descriptor


def test_a_command_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(TelaError, match="no-such-engine") as refused:
        exit_of("no-such-engine --port {port}", tmp_path / "log")
    assert refused.value.code == "command_not_found"


def test_a_command_that_cannot_run_exits_with_126_and_says_why(tmp_path):
    broken = tmp_path / "engine"
    broken.write_bytes(b"\x7fELF but not really")
    broken.chmod(0o755)
    if sys.platform == "linux":
        assert exit_of(str(broken), tmp_path / "log") == Exit(126, None)
        assert "Exec format error" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("command", ["", "  ", "engine 'half"])
def test_a_command_that_has_no_words_is_refused(command):
    with pytest.raises(TelaError) as refused:
        words_of(command)
    assert refused.value.code == "bad_command"


def test_a_polite_process_ends_by_term(tmp_path):
    async def live() -> None:
        child = await Child.spawn("sleep 60", log=tmp_path / "log")
        assert await child.stop(DEADLINE_S) == Exit(None, signal.SIGTERM)

    run(live)


def test_a_stubborn_process_is_killed_after_its_grace(tmp_path):
    async def live() -> None:
        child = await Child.spawn(STUBBORN, log=tmp_path / "log")
        await lines_of(tmp_path / "log")
        assert await child.stop(0.02) == Exit(None, signal.SIGKILL)

    run(live)


def test_a_kill_ends_a_stop_that_waits(tmp_path):
    async def live() -> None:
        child = await Child.spawn(STUBBORN, log=tmp_path / "log")
        await lines_of(tmp_path / "log")
        stopping = asyncio.ensure_future(child.stop(DEADLINE_S * 2))
        await asyncio.sleep(0)
        child.kill()
        assert await stopping == Exit(None, signal.SIGKILL)

    run(live)


def test_stopping_twice_tells_the_same_end(tmp_path):
    async def live() -> None:
        child = await Child.spawn("sh -c 'exit 5'", log=tmp_path / "log")
        await child.wait()
        assert await child.stop(0) == await child.stop(0) == Exit(5, None)

    run(live)


def test_a_stop_that_is_cancelled_kills_at_once(tmp_path):
    async def live() -> None:
        child = await Child.spawn(STUBBORN, log=tmp_path / "log")
        await lines_of(tmp_path / "log")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await child.stop(DEADLINE_S)
        assert await child.wait() == Exit(None, signal.SIGKILL)

    run(live)


@ON_LINUX
def test_stop_leaves_no_process_in_the_group(tmp_path):
    async def live() -> None:
        child = await Child.spawn(FAMILY, log=tmp_path / "log")
        leader, grandchild = map(int, (await lines_of(tmp_path / "log"))[0].split())
        assert leader == child.pid
        assert {leader, grandchild} <= set(members_of(child.pid))
        await child.stop(DEADLINE_S)
        await until_empty(child.pid)
        with pytest.raises(ChildProcessError):  # reaped: no zombie
            os.waitpid(child.pid, os.WNOHANG)

    run(live)


@ON_LINUX
def test_a_grandchild_does_not_survive_the_death_of_its_leader(tmp_path):
    async def live() -> None:
        child = await Child.spawn(FAMILY, log=tmp_path / "log")
        await lines_of(tmp_path / "log")
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        await until_empty(child.pid)

    run(live)


def test_it_lives_on_the_other_loop_too(tmp_path):
    async def live() -> Exit:
        child = await Child.spawn(FAMILY, log=tmp_path / "log")
        await lines_of(tmp_path / "log")
        return await child.stop(DEADLINE_S)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(live()) == Exit(None, signal.SIGTERM)


@ON_LINUX
def test_it_does_not_survive_a_node_that_is_killed(tmp_path):
    node = (
        "import asyncio, pathlib\n"
        "from node.engine.child import Child\n"
        "async def live():\n"
        f"    child = await Child.spawn({SINGLE!r}, log=pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "    await child.wait()\n"
        "asyncio.run(live())\n"
    )
    log = tmp_path / "log"
    log.touch()
    with subprocess.Popen([sys.executable, "-c", node]) as parent:
        leader = int(asyncio.run(asyncio.wait_for(lines_of(log), DEADLINE_S))[0])
        watched = os.pidfd_open(leader)
        parent.kill()
    try:
        assert select.select([watched], [], [], DEADLINE_S)[0] == [watched]
    finally:
        os.close(watched)


def test_a_free_port_can_be_bound(tmp_path):
    serve = f"import socket; socket.socket().bind(('127.0.0.1', {free_port()}))"
    assert exit_of(f"{shlex.quote(sys.executable)} -c {shlex.quote(serve)}", tmp_path / "log") == Exit(0, None)
