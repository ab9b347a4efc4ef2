"""The commands as a person runs them: real processes."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
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


def test_the_demos_check_holds_and_reports_each_step_as_json():
    done = tela("demo", "--check", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert done.returncode == 0, done.stdout
    assert len(steps) == 11
    assert all(step["ok"] for step in steps)
    assert events[-1] == {"event": "checked", "ok": True, "steps": 11, "failed": 0}


@contextmanager
def demo_running():
    """A demo that serves, and what it said."""
    command = [*TELA, "demo", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C ends it" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        try:
            yield demo, said
        finally:
            demo.kill()


def test_the_demo_serves_says_how_to_call_it_and_ends_with_ctrl_c():
    with demo_running() as (demo, said):
        url, key = re.search(r"http://[\d.:]+", said)[0], re.search(r"tela_sk_\w+", said)[0]
        asked = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked) as answer:
            assert json.load(answer)["data"][0]["id"] == "tela/demo-chat"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(20) == 0


def test_a_demo_that_is_killed_takes_its_nodes_and_engines_with_it():
    with demo_running() as (demo, _):
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        nodes = [Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[-2].decode() for child in children]
        mark = str(Path(nodes[0]).parent)
        assert len(processes_of(mark)) == 2
    end = time.monotonic() + 15
    while processes_of(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert not processes_of(mark)


def test_a_port_in_use_is_one_line_and_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tela("demo", "--port", str(port))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"tela: ingress did not start: cannot serve HTTP at 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "name a free one" in done.stderr


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
