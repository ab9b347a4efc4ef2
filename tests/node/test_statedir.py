"""The directory of a node: one holder, one key, run numbers that only rise."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from node.lockfile import Lock, encode
from node.statedir import StateDir, boot_id, holders, process_start
from registry.errors import TelaError
from tests.confined import DEADLINE_S, ROOT, confined

HERE = os.uname().nodename


def claimed(root, *, slot=None, host="alpha", fabric="lab", pid=None, start=None):
    pid = pid or os.getpid()
    return StateDir.claim(root, fabric, host, slot=slot, boot_id=boot_id(), pid=pid, start=start or process_start(pid))


HOLD = """
import os, sys
from pathlib import Path
from node.statedir import StateDir, boot_id, process_start
from registry.errors import TelaError

pid = os.getpid()
slot = None if sys.argv[3] == "-" else int(sys.argv[3])
root, start = Path(sys.argv[1]), process_start(pid)
state = StateDir.claim(root, "lab", sys.argv[2], slot=slot, boot_id=boot_id(), pid=pid, start=start)
print(state.path.name, state.seed().hex(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def spawn(tmp_path):
    """Start processes that hold a directory until they are told to end."""
    started = []

    def start(host="alpha", slot="-"):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path), host, slot],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.communicate("end\n" if process.poll() is None else None, timeout=DEADLINE_S)


def test_the_first_free_slot_is_taken_and_its_directory_is_private(tmp_path):
    first, second = claimed(tmp_path), claimed(tmp_path)
    assert (first.path, second.path) == (tmp_path / "lab/alpha-0", tmp_path / "lab/alpha-1")
    assert (second.host, second.slot) == ("alpha", 1)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o700


def test_a_released_slot_is_taken_again(tmp_path):
    claimed(tmp_path).release()
    assert claimed(tmp_path).slot == 0


def test_eight_tasks_on_four_hosts_are_eight_nodes(tmp_path, spawn):
    tasks = [spawn(host) for host in ("n1", "n2", "n3", "n4") for _ in range(2)]
    said = [task.stdout.readline().split() for task in tasks]
    assert sorted(name for name, _ in said) == [f"n{host}-{slot}" for host in (1, 2, 3, 4) for slot in (0, 1)]
    assert len({seed for _, seed in said}) == 8


def test_a_slot_that_is_taken_names_pid_directory_and_remedy(tmp_path, spawn):
    other = spawn(slot="0")
    other.stdout.readline()
    with pytest.raises(TelaError) as caught:
        claimed(tmp_path, slot=0)
    assert caught.value.code == "slot_taken"
    assert str(other.pid) in caught.value.message
    assert str(tmp_path / "lab/alpha-0") in caught.value.message
    assert "tela stop" in caught.value.hint


def test_a_killed_holders_slot_is_taken_over_with_its_key(tmp_path, spawn):
    other = spawn()
    name, seed = other.stdout.readline().split()
    other.send_signal(signal.SIGKILL)
    other.wait(DEADLINE_S)
    state = claimed(tmp_path)
    assert (state.path.name, state.seed().hex()) == (name, seed)


def test_a_corpse_nobody_has_buried_holds_nothing(tmp_path, spawn):
    other = spawn()
    other.stdout.readline()
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table of processes
    assert claimed(tmp_path).slot == 0


def lock_of(path, **fields):
    lock = Lock("alpha", HERE, os.getpid(), boot_id(), process_start(os.getpid()))._replace(**fields)
    path.mkdir(parents=True)
    (path / "lock").write_bytes(encode(lock))


def test_a_lock_from_before_the_last_boot_holds_nothing(tmp_path):
    lock_of(tmp_path / "lab/alpha-0", boot_id="another")
    assert claimed(tmp_path).slot == 0


def test_a_pid_that_is_another_process_now_holds_nothing(tmp_path):
    lock_of(tmp_path / "lab/alpha-0", started=1)
    assert claimed(tmp_path).slot == 0


def test_a_machine_of_the_same_name_is_not_robbed(tmp_path):
    lock_of(tmp_path / "lab/alpha-0", machine="alpha.elsewhere", boot_id="another")
    assert claimed(tmp_path).slot == 1
    with pytest.raises(TelaError, match=r"alpha\.elsewhere") as caught:
        claimed(tmp_path, slot=0)
    assert "--host" in caught.value.hint
    assert f"rm {tmp_path / 'lab/alpha-0/lock'}" in caught.value.hint


def test_a_link_planted_at_the_lock_is_refused_by_name(tmp_path):
    (tmp_path / "lab/alpha-0").mkdir(parents=True)
    (tmp_path / "lab/alpha-0/lock").symlink_to("/etc/passwd")
    with pytest.raises(TelaError) as caught:
        claimed(tmp_path)
    assert str(tmp_path / "lab/alpha-0/lock") in caught.value.message
    assert "remove it" in caught.value.hint


def test_a_link_planted_at_the_directory_is_refused(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/alpha-0").symlink_to(tmp_path)
    with pytest.raises(TelaError, match="symbolic link"):
        claimed(tmp_path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a" * 70, "ä", "a\n"])
def test_names_that_are_no_directory_are_refused(tmp_path, name):
    for names in ({"host": name}, {"fabric": name}):
        with pytest.raises(TelaError) as caught:
            claimed(tmp_path, **names)
        assert caught.value.code == "bad_name"
    assert list(tmp_path.iterdir()) == []


def test_the_key_is_made_once_and_is_private(tmp_path):
    state = claimed(tmp_path)
    seed = state.seed()
    assert len(seed) == 32
    assert state.seed() == seed
    assert stat.S_IMODE((state.path / "node.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"00" * 31, b"\xff" * 64])
def test_a_broken_key_is_refused_and_not_replaced(tmp_path, content):
    state = claimed(tmp_path)
    (state.path / "node.key").write_bytes(content)
    (state.path / "node.key").chmod(0o600)
    with pytest.raises(TelaError, match=r"node\.key is no key"):
        state.seed()
    assert (state.path / "node.key").read_bytes() == content


def test_an_exposed_key_is_refused(tmp_path):
    state = claimed(tmp_path)
    state.seed()
    (state.path / "node.key").chmod(0o644)
    with pytest.raises(TelaError) as caught:
        state.seed()
    assert caught.value.hint.startswith("chmod 600")


def test_runs_rise_through_restarts_rollbacks_and_what_the_fabric_knows(tmp_path):
    state = claimed(tmp_path)
    first = state.next_run("node", 0, 1000)
    assert first == 1001
    assert state.next_run("node", 0, 500) == 1002  # the clock went back
    assert state.next_run("node", 5000, 500) == 5001  # the fabric knows more than this disk
    state.release()
    assert claimed(tmp_path).next_run("node", 0, 0) == 5002
    assert state.next_run("e0", 0, 0) == 1


@pytest.mark.parametrize("content", ["", "x", "-5", "9" * 5000])
def test_a_broken_run_number_is_passed_over_for_the_clock(tmp_path, content):
    state = claimed(tmp_path)
    (state.path / "node.run").write_text(content)
    assert state.next_run("node", 0, 1000) == 1001


def test_a_run_of_a_strange_name_is_refused(tmp_path):
    with pytest.raises(TelaError):
        claimed(tmp_path).next_run("../x", 0, 0)


def test_holders_are_the_living_and_those_that_cannot_be_seen_from_here(tmp_path):
    claimed(tmp_path)
    lock_of(tmp_path / "lab/alpha-1", started=1)
    lock_of(tmp_path / "lab/beta-0", host="beta", machine="beta", pid=7)
    lock_of(tmp_path / "other/alpha-0", pid=os.getpid())
    (tmp_path / "lab/alpha-2").mkdir()
    (tmp_path / "lab/alpha-2/lock").write_text("?")
    (tmp_path / "lab/stray").write_text("")
    assert [(each.host, each.slot, each.pid, each.is_here) for each in holders(tmp_path, "lab")] == [
        ("alpha", 0, os.getpid(), True),
        ("beta", 0, 7, False),
    ]
    assert {each.fabric for each in holders(tmp_path, None)} == {"lab", "other"}
    assert holders(tmp_path / "nothing", "lab") == []


def test_a_process_that_is_gone_has_no_start():
    child = subprocess.Popen(["true"])
    child.wait(DEADLINE_S)
    assert process_start(child.pid) == 0
    assert process_start(os.getpid()) > 0


def test_a_process_with_brackets_and_blanks_in_its_name_is_read(tmp_path):
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/cat")
    child = subprocess.Popen([program], stdin=subprocess.PIPE)
    try:
        assert abs(process_start(child.pid) - process_start(os.getpid())) < 10_000_000
        assert process_start(child.pid) > 0
    finally:
        child.communicate(timeout=DEADLINE_S)


REFUSED = """
import os, resource, sys
from pathlib import Path
from node.statedir import StateDir, boot_id, process_start
from registry.errors import TelaError

pid = os.getpid()
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
try:
    StateDir.claim(Path(sys.argv[1]), "lab", "alpha", slot=None, boot_id=boot_id(), pid=pid, start=process_start(pid))
except TelaError as error:
    print(error.code, error.message, "|", error.hint)
"""


def test_a_full_disk_is_told_with_path_and_remedy(tmp_path):
    said = confined(REFUSED, tmp_path, "full")
    assert said.startswith(f"state_unusable {tmp_path / 'lab/alpha-0/lock'}")
    assert "TELA_HOME" in said
    assert list(Path(tmp_path / "lab/alpha-0").iterdir()) == []


def test_a_read_only_directory_is_told_with_path_and_remedy(tmp_path):
    tmp_path.chmod(0o500)
    said = confined(REFUSED, tmp_path, "read-only")
    tmp_path.chmod(0o700)
    assert said.startswith(f"state_unusable {tmp_path / 'lab/alpha-0'}")
    assert "permissions" in said
