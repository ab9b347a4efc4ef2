"""`tela stop` against processes that hold a node's directory, as a node does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.commands import stop as module
from console.commands.stop import choose, farewell_in, stop
from node.statedir import Holder
from registry.errors import TelaError

NODE = """
import json, os, signal, socket, sys, threading, time
from pathlib import Path
from node.statedir import StateDir, boot_id, process_start
fabric, slot, left = sys.argv[1], int(sys.argv[2]), sys.argv[3]
state = StateDir.claim(Path(os.environ["TELA_HOME"]), fabric, "h1", slot=slot, boot_id=boot_id(),
                       pid=os.getpid(), start=process_start(os.getpid()))
log, end, heard = state.path / "node.log", threading.Event(), []
log.write_text(json.dumps({"event": "left", "served": 99}) + "\\n")  # of an earlier run
def control():
    runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "tela"
    runtime.mkdir(exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(runtime / f"{fabric}-h1-{slot}.sock"))
    server.listen()
    while True:
        asked, _ = server.accept()
        asked.recv(4096)
        body = b'{"engines": [{"in_flight": 2}, {"in_flight": 1}]}'
        asked.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
        asked.close()
        if left == "drains": end.set()
def told(number, _):
    heard.append(number)
    if left in {"at once", "mute"} or len(heard) == 2: end.set()
signal.signal(signal.SIGTERM, told), signal.signal(signal.SIGINT, told)
if left != "silent": threading.Thread(target=control, daemon=True).start()
print("up", flush=True)
while not end.wait(0.01): pass
if left == "mute": sys.exit(0)
with log.open("a") as file:
    file.write("not json\\n" + json.dumps({"event": "left", "lived_s": 12.0, "served": 45, "cut": 0}) + "\\n")
state.release()
"""


@pytest.fixture
def account(tmp_path, monkeypatch):
    """Directories of an account of its own."""
    for name in ("TELA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(module, "LOOK_S", 0.1)


@pytest.fixture
def node(account):
    """Start nodes; what is left of them is ended."""
    running = []

    def start(fabric="lab", slot=0, left="at once"):
        words = [sys.executable, "-c", NODE, fabric, str(slot), left]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        return child

    yield start
    for child in running:
        child.kill()
        child.wait()
        child.stdout.close()


def run(*words):
    return CliRunner().invoke(stop, list(words))


def test_the_only_node_needs_no_name_and_its_farewell_is_told(node):
    child = node()
    done = run()
    assert done.exit_code == 0, done.output
    assert done.stdout == "h1-0 of lab: left after 12 s: 45 requests served, none cut off\n"
    assert child.wait(10) == 0


def test_the_farewell_of_an_earlier_run_is_not_taken_for_this_one(node):
    node(left="mute")
    assert run().stdout == "h1-0 of lab: stopped\n"


def test_what_it_waits_for_is_said_meanwhile(node):
    node(left="drains")
    done = run()
    assert "3 requests under way" in done.stderr
    assert done.exit_code == 0


def test_a_program_gets_the_farewell_as_json(node):
    pid = node().pid
    told = json.loads(run("--json").stdout)
    assert told == {"event": "stopped", "node": "h1-0 of lab", "pid": pid, "lived_s": 12.0, "served": 45, "cut": 0}


def test_now_tells_it_twice(node):
    assert node(left="never").poll() is None
    assert run("--now", "--wait", "20").exit_code == 0


def test_one_that_does_not_end_is_named_and_goes_on(node):
    child = node(left="silent")
    done = run("--wait", "0.3")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "still_running"
    assert str(child.pid) in done.exception.hint
    assert child.poll() is None


def test_of_several_none_is_stopped_unless_one_is_named(node):
    children = [node(slot=0), node(slot=1)]
    done = run()
    assert done.exit_code == 2
    assert "h1-0, h1-1" in done.output
    assert [child.poll() for child in children] == [None, None]
    assert run("h1-1").exit_code == 0
    assert children[0].poll() is None
    assert children[1].wait(10) == 0


def test_all_are_stopped_when_all_are_meant(node):
    children = [node(slot=0), node(fabric="other")]
    assert run("--all").exit_code == 0
    assert [child.wait(10) for child in children] == [0, 0]


def test_nodes_of_another_fabric_are_not_meant_when_one_is_named(node):
    children = [node(), node(fabric="other")]
    assert run("--fabric", "other").exit_code == 0
    assert children[0].poll() is None


def test_nothing_to_stop_is_said(account):
    done = run()
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "no_node"


def holder(slot=0, machine="here", host="h1"):
    return Holder("lab", host, slot, 100 + slot, Path("/s"), machine, machine == "here")


@pytest.mark.parametrize("word", ["h1-1", "101", "h1-1@lab", "h1-1@lab/17"])
def test_a_node_is_known_by_any_of_its_names(word):
    both = [holder(0), holder(1)]
    assert choose(both, both, word, every=False) == [both[1]]


def test_a_host_names_its_only_node_as_tela_nodes_writes_it():
    assert choose([holder()], [holder()], "h1@lab/17", every=False) == [holder()]


def test_a_node_that_is_not_here_is_not_taken_for_one_that_is():
    with pytest.raises(TelaError, match="no node 'h2'"):
        choose([holder()], [holder()], "h2", every=False)


def test_nodes_on_other_machines_of_the_same_home_are_told_of():
    with pytest.raises(TelaError) as told:
        choose([], [holder(machine="node17")], None, every=False)
    assert "h1-0 on node17" in told.value.hint


def test_a_log_without_a_farewell_says_nothing():
    assert farewell_in("Traceback\n[1]\n{}\n") == {}
