"""A lock that is a file: one holder, and a dead one's is taken over by exactly one."""

import os
import subprocess
import sys

import pytest

from node import lockfile
from node.lockfile import Attempt, Live, Lock, decode, encode, read, release, take
from tests.confined import DEADLINE_S, ROOT

MINE = Lock("alpha", "alpha.lab", 100, "boot-1", 5000)
OTHER = Lock("alpha", "alpha.lab", 200, "boot-1", 6000)


def live(**running):
    """A machine where these pids run, as p100=5000."""
    return Live("alpha.lab", "boot-1", lambda pid: running.get(f"p{pid}", 0))


BOTH = live(p100=5000, p200=6000)


def test_a_free_lock_is_taken_and_a_held_one_is_not(tmp_path):
    assert take(tmp_path / "lock", OTHER, BOTH) == Attempt(True, OTHER)
    assert take(tmp_path / "lock", MINE, BOTH) == Attempt(False, OTHER)
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]


def test_a_process_does_not_get_a_lock_twice(tmp_path):
    take(tmp_path / "lock", MINE, BOTH)
    assert take(tmp_path / "lock", MINE, BOTH) == Attempt(False, MINE)


def test_a_released_lock_is_free(tmp_path):
    take(tmp_path / "lock", OTHER, BOTH)
    release(tmp_path / "lock", OTHER)
    assert take(tmp_path / "lock", MINE, BOTH).is_ours


def test_releasing_what_is_anothers_does_nothing(tmp_path):
    take(tmp_path / "lock", OTHER, BOTH)
    release(tmp_path / "lock", MINE)
    assert decode(read(tmp_path / "lock")) == OTHER


@pytest.mark.parametrize(
    "machine",
    [
        live(p100=5000),  # no such process
        live(p100=5000, p200=7000),  # the pid is another process now
        Live("alpha.lab", "boot-2", lambda pid: {100: 5000, 200: 6000}[pid]),  # it ran before the last boot
    ],
)
def test_the_lock_of_the_dead_is_taken_over(tmp_path, machine):
    take(tmp_path / "lock", OTHER, BOTH)
    assert take(tmp_path / "lock", MINE, machine) == Attempt(True, MINE)
    assert decode(read(tmp_path / "lock")) == MINE
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]


def test_the_lock_of_another_machine_is_never_taken(tmp_path):
    take(tmp_path / "lock", OTHER._replace(machine="beta.lab", boot_id="boot-9"), BOTH)
    assert not take(tmp_path / "lock", MINE, live(p100=5000)).is_ours


def test_the_slower_of_two_who_saw_a_dead_lock_does_not_replace_the_fasters(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    take(path, Lock("alpha", "alpha.lab", 300, "boot-0", 1), BOTH)
    reads = []

    def read_late(where):
        content = read(where)
        if not reads:  # between the slower one's look and its act the faster one is done
            reads.append(where)
            monkeypatch.setattr(lockfile, "read", read)
            assert take(path, OTHER, BOTH).is_ours
        return content

    monkeypatch.setattr(lockfile, "read", read_late)
    assert take(path, MINE, BOTH) == Attempt(False, OTHER)
    assert decode(read(path)) == OTHER
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]


def test_who_died_while_taking_over_holds_nobody_up(tmp_path):
    path = tmp_path / "lock"
    dead = Lock("alpha", "alpha.lab", 300, "boot-0", 1)
    take(path, dead, BOTH)
    over = path.with_name(f"lock.over-{__import__('zlib').crc32(encode(dead)):08x}")
    over.write_bytes(encode(Lock("alpha", "alpha.lab", 301, "boot-0", 2)))
    assert take(path, MINE, BOTH).is_ours


def test_who_is_taking_over_now_is_named(tmp_path):
    path = tmp_path / "lock"
    dead = Lock("alpha", "alpha.lab", 300, "boot-0", 1)
    take(path, dead, BOTH)
    over = path.with_name(f"lock.over-{__import__('zlib').crc32(encode(dead)):08x}")
    over.write_bytes(encode(OTHER))
    assert take(path, MINE, BOTH) == Attempt(False, OTHER)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff", b'{"host":1,"machine":2,"pid":"x"}'])
def test_a_lock_without_sense_is_left_alone_while_it_may_be_being_written_and_taken_when_old(tmp_path, content):
    path = tmp_path / "lock"
    path.write_bytes(content)
    assert take(path, MINE, BOTH) == Attempt(False, None)
    os.utime(path, (0, 0))
    assert take(path, MINE, BOTH).is_ours


@pytest.mark.parametrize(
    "fields", [{"pid": "1"}, {"pid": True}, {"started": 1.5}, {"host": None}, {"boot_id": 7}, {"extra": 1}]
)
def test_what_is_not_exactly_a_lock_is_none(fields):
    import json

    assert decode(json.dumps(MINE._asdict() | fields).encode()) is None


def test_a_link_planted_there_is_refused_and_not_followed(tmp_path):
    (tmp_path / "theirs").write_bytes(encode(OTHER))
    (tmp_path / "lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic links"):
        take(tmp_path / "lock", MINE, BOTH)
    assert (tmp_path / "theirs").read_bytes() == encode(OTHER)


def test_a_dangling_link_planted_there_makes_no_file_elsewhere(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        take(tmp_path / "lock", MINE, BOTH)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_hard_links_will_do(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    assert take(tmp_path / "lock", OTHER, BOTH).is_ours
    assert not take(tmp_path / "lock", MINE, BOTH).is_ours
    assert take(tmp_path / "lock", MINE, live(p100=5000)).is_ours


def test_a_lock_whose_making_was_answered_wrongly_is_ours(tmp_path, monkeypatch):
    link = os.link

    def link_and_lose_the_answer(written, path):  # NFS sends the call again, and the second one finds the first's file
        link(written, path)
        raise FileExistsError

    monkeypatch.setattr(os, "link", link_and_lose_the_answer)
    assert take(tmp_path / "lock", MINE, BOTH) == Attempt(True, MINE)


RACE = """
import os, sys
from pathlib import Path
from node.lockfile import Lock, take
from node.statedir import boot_id, process_start, this_machine

path = Path(sys.argv[1])
live = this_machine()
pid = os.getpid()
mine = Lock("alpha", live.machine, pid, boot_id(), process_start(pid))
print("ready", flush=True)
sys.stdin.readline()
print("won" if take(path, mine, live).is_ours else "lost", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("round_", range(5))
def test_of_many_processes_at_one_dead_lock_exactly_one_wins(tmp_path, round_):
    path = tmp_path / "lock"
    path.write_bytes(encode(Lock("alpha", os.uname().nodename, 300 + round_, "boot-0", 1)))
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(path)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(6)
    ]  # fmt: skip
    try:
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 6
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.stdout.readline().strip() for racer in racers]
        assert sorted(said) == ["lost"] * 5 + ["won"]
        assert decode(read(path)).pid == racers[said.index("won")].pid
    finally:
        for racer in racers:
            racer.communicate("end\n", timeout=DEADLINE_S)
