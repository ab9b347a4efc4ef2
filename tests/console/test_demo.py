"""The commands as a person runs them: real processes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.cli import cli

TELA = [sys.executable, "-I", "-m", "console"]


def tela(*words, timeout=60):
    return subprocess.run([*TELA, *words], capture_output=True, text=True, timeout=timeout, check=False)


def processes_of(directory_mark):
    """Command lines of processes that still run out of a demo's directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if directory_mark in line:
            found.append(line)
    return found


def of_demo(demo, word):
    """The process ids of a demo's nodes whose specification is called so."""
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
    return [int(child) for child in children if word in Path(f"/proc/{child}/cmdline").read_text()]


def until(is_so, within=20):
    end = time.monotonic() + within
    while not is_so() and time.monotonic() < end:
        time.sleep(0.05)
    assert is_so()


@pytest.fixture
def temp(monkeypatch):
    """Where demos of one test have their directories; short, for there are sockets in them."""
    with tempfile.TemporaryDirectory(prefix="t") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)
        until(lambda: not processes_of(directory))


@contextmanager
def demo_running(*options, until_said="Ctrl-C ends it"):
    """A demo that has said something, and all it said until then."""
    command = [*TELA, "demo", "--workers", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while until_said not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        try:
            yield demo, said
        finally:
            demo.kill()


def test_the_demos_check_holds_and_reports_each_step_as_json():
    done = tela("demo", "--check", "--json", timeout=300)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert done.returncode == 0, done.stdout
    assert {"key revoked", "worker drained", "order out of scope", "hub killed under load"} <= {
        step["name"] for step in steps
    }
    assert all(step["ok"] for step in steps)
    assert events[-1] == {"event": "checked", "ok": True, "steps": 18, "failed": 0}


def test_the_demo_serves_says_how_to_call_it_and_ends_with_ctrl_c_and_a_count(temp):
    with demo_running() as (demo, said):
        url, key = re.search(r"http://[\d.:]+", said)[0], re.search(r"tela_sk_\w+", said)[0]
        asked = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as answer:
            assert json.load(answer)["data"][0]["id"] == "tela/demo-chat"
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=40)
        assert demo.returncode == 0
    assert re.fullmatch(r"\d+ requests, none lost, no streams ended with an error event", rest.splitlines()[-1])
    assert not list(temp.iterdir())


def test_a_demo_whose_whole_answers_failed_says_how_many_and_exits_with_1(temp):
    with demo_running("--json", "--seconds", "2", until_said='"serving"') as (demo, _):
        for pid in of_demo(demo, "worker-1.json"):
            os.kill(pid, signal.SIGKILL)
        said, narrated = demo.communicate(timeout=40)
        assert demo.returncode == 1
    ended = json.loads(said.splitlines()[-1])
    assert ended["event"] == "ended"
    assert ended["failed_whole"] > 0
    (kept,) = temp.iterdir()
    assert f"the logs are kept in {kept}" in narrated


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [[], ["--check", "--workers", "3", "--json"]])
def test_a_demo_that_is_told_to_end_while_it_starts_leaves_nothing_behind(temp, number, options):
    with demo_running(*options, until_said="ingress") as (demo, _):
        demo.send_signal(number)
        said, narrated = demo.communicate(timeout=40)
        assert demo.returncode == 1
    assert "SERVING" not in said
    assert "Traceback" not in narrated
    assert "ended before it was done; nothing is left." in narrated
    assert not list(temp.iterdir())
    assert not processes_of(str(temp))


def test_a_demo_that_is_told_twice_waits_for_nobody(temp):
    with demo_running() as (demo, _):
        (worker,) = of_demo(demo, "worker-1.json")
        os.kill(worker, signal.SIGSTOP)  # so it would be waited for
        try:
            demo.send_signal(signal.SIGINT)
            while "stopping" not in demo.stderr.readline():
                pass
            demo.send_signal(signal.SIGINT)
            assert demo.wait(14) == 1  # told once, it waits for 15 s
        finally:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
    assert not list(temp.iterdir())


def test_a_demo_that_is_killed_takes_its_nodes_and_engines_with_it(temp):
    with demo_running() as (demo, _):
        assert len(processes_of(str(temp))) == 2
        demo.kill()
        until(lambda: not processes_of(str(temp)))


def test_a_port_in_use_is_one_line_and_what_to_do_and_keeps_only_the_logs(temp):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tela("demo", "--port", str(port))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"tela: ingress did not start: cannot serve HTTP at 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "name a free one" in done.stderr
    (kept,) = temp.iterdir()
    assert f"the logs are kept in {kept}" in done.stderr
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["ingress.log"]


@pytest.mark.parametrize(
    "words", [["demo", "--workers", "0"], ["demo", "--check", "--workers", "2"], ["nope"], ["demo", "--x"]]
)
def test_wrong_use_exits_with_2_and_says_so(words):
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "Error" in done.output


@pytest.mark.parametrize(
    ("text", "says"), [("{", "not a node specification"), ('{"host": 7}', "host"), ('{"hots": "x"}', "hots")]
)
def test_a_bad_specification_names_the_file_and_the_field(tmp_path, text, says):
    spec = tmp_path / "spec.json"
    spec.write_text(text)
    done = tela("run-node", str(spec))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert says in done.stderr
    assert str(spec) in done.stderr
