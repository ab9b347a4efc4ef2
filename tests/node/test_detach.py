"""A process in the background, as whoever started it sees it: real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

HEAD = """
import os, sys, time, logging, click
from pathlib import Path
from node.clock import SystemClock
from node.detach import detached
from registry.errors import TelaError
home = Path(sys.argv[1])
log = home / "node.log"
def begin(background):
    (home / "pid").write_text(f"{os.getpid()} {os.getppid()} {os.getsid(0)} {sys.stdin.read()!r}")
    background.log_to(log)
"""
TAIL = """
try:
    sys.exit(detached(run, now=SystemClock().now, wait_s=float(sys.argv[2])))
except TelaError as error:
    print(f"{error.code}: {error.message} ({error.hint})", file=sys.stderr)
    sys.exit(1)
"""


def started(tmp_path, body, wait_s=20, **options):
    script = HEAD + "def run(background):\n" + "".join(f"    {line}\n" for line in body.strip().splitlines()) + TAIL
    command = [sys.executable, "-c", script, str(tmp_path), str(wait_s)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def until(holds, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def logged(tmp_path):
    return [json.loads(line) for line in (tmp_path / "node.log").read_text().splitlines()]


def test_what_it_says_until_it_is_up_is_shown_and_the_rest_is_logged(tmp_path):
    done = started(
        tmp_path,
        """
        begin(background)
        click.echo("engine loading")
        click.echo("note", err=True)
        background.ready({})
        click.echo("engine serves m")
        click.echo('{"event": "left", "served": 3}')
        """.replace("        ", ""),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "engine loading\n"
    assert done.stderr.startswith("note\nin the background, pid ")
    assert str(tmp_path / "node.log") in done.stderr
    until(lambda: len(logged(tmp_path)) == 2)
    assert logged(tmp_path)[0]["text"] == "engine serves m"
    assert (logged(tmp_path)[1]["event"], logged(tmp_path)[1]["served"]) == ("left", 3)


def test_it_belongs_to_no_terminal_and_is_nobodys_child(tmp_path):
    script = "begin(background)\nbackground.ready()"
    assert started(tmp_path, script, stdin=subprocess.DEVNULL).returncode == 0
    pid, _, session, text = (tmp_path / "pid").read_text().split()
    assert session not in {pid, str(os.getsid(0))}
    assert text == "''"


def test_a_failure_is_shown_with_its_hint_and_its_code(tmp_path):
    done = started(tmp_path, "raise TelaError('slot 0 is taken', hint='give --slot', code='slot_taken')")
    assert (done.returncode, done.stderr) == (1, "slot_taken: slot 0 is taken (give --slot)\n")


def test_a_failure_inside_tasks_is_shown_as_itself(tmp_path):
    done = started(tmp_path, "raise ExceptionGroup('tasks', [TelaError('port 80 is taken', hint='another')])")
    assert done.stderr == "error: port 80 is taken (another)\n"


def test_a_fault_of_ours_shows_no_traceback_but_logs_it(tmp_path):
    done = started(tmp_path, "begin(background)\nraise KeyError('x')")
    assert done.returncode == 1
    assert "KeyError" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "Traceback" in logged(tmp_path)[0]["traceback"]


def test_the_exit_code_is_that_of_what_ran(tmp_path):
    assert started(tmp_path, "raise SystemExit(2)").returncode == 2


def test_a_process_that_is_killed_before_it_is_up_is_not_waited_for(tmp_path):
    done = started(tmp_path, "os.kill(os.getpid(), 9)")
    assert done.returncode == 1
    assert "ended before it was up" in done.stderr


def test_one_that_is_late_goes_on_and_may_still_speak(tmp_path):
    done = started(
        tmp_path,
        "begin(background)\n"
        "while os.path.exists(home / 'wait') is False: time.sleep(0.01)\n"
        "click.echo('at last')\nbackground.ready()\nclick.echo('up')",
        wait_s=0.5,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("slow: not up after 0.5 s; it goes on, pid ")
    (tmp_path / "wait").touch()
    until(lambda: [line["text"] for line in logged(tmp_path)] == ["at last", "up"])


@pytest.mark.parametrize("after", ["", "time.sleep(60)"])
def test_an_engine_that_holds_its_streams_open_does_not_keep_whoever_waits(tmp_path, after):
    body = f"begin(background)\nif os.fork() == 0: time.sleep(3); os._exit(0)\nbackground.ready()\n{after}"
    begun = time.monotonic()
    done = started(tmp_path, body)
    assert done.returncode == 0
    assert time.monotonic() - begun < 3
    with_pid = int((tmp_path / "pid").read_text().split()[0])
    try:
        os.kill(with_pid, signal.SIGKILL)
    except ProcessLookupError:
        assert not after


def test_ctrl_c_while_waiting_ends_it(tmp_path):
    script = (
        HEAD + "def run(background):\n    begin(background)\n    click.echo('loading')\n    time.sleep(60)\n" + TAIL
    )
    command = [sys.executable, "-c", script, str(tmp_path), "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "loading\n"
        pid = (tmp_path / "pid").read_text().split()[0]
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(20) != 0
    until(lambda: not is_alive(pid))


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
