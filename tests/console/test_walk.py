"""One fabric through the program itself, as an operator and a member type it: real processes in a home of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

TELA = [sys.executable, "-I", "-m", "console"]
ENGINE = f"{sys.executable} -I -m node.engine.demo --port {{port}} --model org/m"
OURS = ("TELA_", "XDG_", "SLURM_")


class Home:
    """An account of its own, with the program in it."""

    def __init__(self, path):
        self.path = path
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        runtime = path / "run"
        runtime.mkdir(mode=0o700)
        self.env = {**kept, "HOME": str(path), "XDG_RUNTIME_DIR": str(runtime)}

    def tela(self, *words, stdin=""):
        return subprocess.run(
            [*TELA, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.env,
            input=stdin,
            cwd=self.path,
        )

    def said(self, *words, **more):
        """What a command that has to succeed says on stdout."""
        done = self.tela(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def rows(self, *words):
        return [json.loads(line) for line in self.said(*words, "--json").splitlines()]

    def until(self, condition, within=30.0):
        ends = time.monotonic() + within
        while not (found := condition()):
            assert time.monotonic() < ends, (self.tela("status").stdout, self.tela("events").stdout)
            time.sleep(0.1)
        return found

    def serving(self):
        return self.until(lambda: [row for row in self.rows("models") if row["state"] == "UP"])

    def worker(self):
        return self.until(lambda: [row for row in self.rows("nodes") if row["roles"] == ["worker"]])[0]

    def texts(self):
        return [f"{row['subject']} {row['text']}" for row in self.rows("events", "--limit", "1000")]


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def home():
    """A fabric: a hub with a door, and a worker on a demo engine, both in the background."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        home = Home(Path(name))
        links = f"127.0.0.1:{free_port()}"
        home.said("init", "lab", "--listen", links, "--operator", "ada", "--no-passphrase")
        try:
            home.said(
                "start", "--role", "ingress,relay", "--listen", links, "--http", f"127.0.0.1:{free_port()}", "--detach"
            )
            home.said("start", "--process", ENGINE, "--detach")
            home.serving()
            yield home
        finally:
            ended = home.tela("stop", "--all", "--now")
            left = list(_processes_of(name))
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert ended.returncode == 0, ended.stderr
        assert not left


def _processes_of(home):
    """What still runs with this home in its environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"HOME={home}\0".encode() in path.read_bytes():
                yield int(path.parent.name)


def test_whoever_looks_sees_node_model_and_engine(home):
    home.serving()
    assert "org/m UP 1/1" in home.said("status")
    assert "org/m" in home.said("nodes")
    assert home.rows("models", "--replicas")[0]["engine"] == "demo"
    assert home.said("logs", home.worker()["id"])


def test_a_key_is_offered_claimed_used_and_revoked(home):
    home.serving()
    offer = json.loads(home.said("keys", "create", "--for", "kim", "--json"))
    kept = json.loads(home.said("keys", "claim", "-", "--url", offer["url"], "--json", stdin=offer["claim"]))
    assert kept["models"] == ["org/m"]
    assert home.said("try").split() == ["org/m"]
    assert json.loads(home.said("try", "org/m", "--json"))["text"]
    again = home.tela("keys", "claim", "-", "--url", offer["url"], "--no-keep", stdin=offer["claim"])
    assert again.returncode == 1
    home.said("keys", "revoke", offer["id"], "--yes")
    home.until(lambda: home.tela("try").returncode == 1, within=10.0)
    assert [row["state"] for row in home.rows("keys", "list", "--all") if row["id"] == offer["id"]] == ["revoked"]


def test_a_node_drains_and_takes_requests_again_and_the_events_say_who_said_so(home):
    worker = home.worker()
    home.serving()
    assert home.said("drain", worker["id"], "--reason", "new driver") == f"drain {worker['name']}: DONE\n"
    home.until(lambda: home.rows("models")[0]["state"] == "DOWN")
    assert home.said("undrain", worker["id"]) == f"undrain {worker['name']}: DONE\n"
    home.serving()
    assert f"{worker['name']} drain by a member of lab: new driver" in home.texts()


def test_engines_are_started_anew_by_order(home):
    home.serving()
    before = home.rows("models", "--replicas")[0]["run"]
    done = json.loads(home.said("restart", home.worker()["id"], "--json", "--wait", "30"))
    assert done["state"] == "DONE"
    home.serving()
    runs = [row["run"] for row in home.rows("models", "--replicas") if row["state"] == "SERVING"]
    assert runs
    assert min(runs) > before


def test_an_evicted_node_says_so_itself_and_may_be_let_in_again(home):
    worker = home.worker()
    log = home.path / ".local/state/tela/lab" / f"{worker['host']}-{worker['slot']}" / "node.log"
    home.said("evict", worker["id"], "--yes", "--reason", "it lies")
    try:
        home.until(lambda: '"event": "evicted", "text": "evicted by ada: it lies"' in log.read_text())
        assert [row["evicted"] for row in home.rows("nodes") if row["id"] == worker["id"]] == [True]
        about = _about(home, worker)
        assert [each["code"] for each in about["warnings"]] == ["evicted"]
        assert about["warnings"][0]["text"] == "this node was evicted by ada: it lies"
    finally:
        home.said("evict", worker["id"], "--lift")
    home.until(lambda: not _about(home, worker)["warnings"])
    home.serving()


def _about(home, row):
    """What a node says of itself, asked at its own socket."""
    source = "import sys, json; from pathlib import Path; from console.client import Control\n"
    source += "print(json.dumps(Control(Path(sys.argv[1])).get('/self')))"
    path = home.path / "run" / "tela" / f"lab-{row['host']}-{row['slot']}.sock"
    done = subprocess.run([sys.executable, "-I", "-c", source, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_start_that_is_refused_leaves_nothing_behind(home):
    state = home.path / ".local/state/tela/lab"
    before = sorted(state.iterdir())
    done = home.tela("start", "--process", "vllm serve m", "--detach")
    assert done.returncode == 2
    assert "{port}" in done.stderr
    assert sorted(state.iterdir()) == before


def test_ctrl_c_makes_a_node_in_the_foreground_leave_with_a_farewell(home):
    words = [*TELA, "start", "--role", "observer"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=home.env) as node:
        assert node.stderr is not None
        line = ""
        while not line.startswith("up as "):
            line = node.stderr.readline()
            assert line
        node.send_signal(signal.SIGINT)
        out, err = node.communicate(timeout=30.0)
    assert (node.returncode, out) == (0, "")
    assert "left after" in err
    assert "Traceback" not in err
