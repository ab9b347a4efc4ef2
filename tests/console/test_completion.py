"""What a shell completes, and how long it waits."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import click
import pytest
from click.testing import CliRunner

from console.cli import cli
from console.commands.completion import completion, model_names, node_names

FABRIC_ID = "ab" * 32
SELF = {"fabric": {"id": FABRIC_ID, "name": "lab"}}
VIEW = {
    "models": [{"id": "org/small"}, {"id": "org/large"}, {"id": "other"}, {"id": "org/\x1b[2J"}],
    "nodes": [{"name": "h1@lab"}, {"name": "h2@lab"}],
}


@pytest.fixture
def group():
    """The program as it stands, with this command in it."""
    whole = click.Group("tela", commands={"completion": completion})
    whole.add_command(click.Command("stop"))
    return whole


@pytest.fixture
def account(tmp_path, monkeypatch):
    """An account that belongs to one fabric."""
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("TELA_FABRIC", raising=False)
    (tmp_path / "XDG_CONFIG_HOME/tela/fabrics/lab").mkdir(parents=True)
    (tmp_path / "XDG_CONFIG_HOME/tela/fabrics/lab/records").touch()
    (tmp_path / "XDG_CONFIG_HOME/tela/fabrics/lab/id").write_text(FABRIC_ID)
    (tmp_path / "XDG_RUNTIME_DIR/tela").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def listening(account):
    """A control socket that a test may answer on."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(account / "XDG_RUNTIME_DIR/tela/lab-h1-0.sock"))
        server.listen()
        yield server


@pytest.fixture
def node(listening):
    """A node that answers."""

    def answer():
        for _ in range(2):
            asked, _ = listening.accept()
            with asked:
                about = SELF if b"/self" in asked.recv(4096) else VIEW
                body = json.dumps(about).encode()
                asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join(10)


def named(what, begun):
    return what(click.Context(cli), click.Argument(["name"]), begun)


def test_models_that_begin_so_are_offered_and_nothing_that_is_no_name(node):
    assert named(model_names, "org/") == ["org/large", "org/small"]


def test_nodes_are_offered_by_the_name_people_type(node):
    assert named(node_names, "h") == ["h1@lab", "h2@lab"]


def test_without_a_node_nothing_is_offered(account):
    assert named(model_names, "") == []


def test_without_a_fabric_nothing_is_offered(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert named(node_names, "") == []


def test_a_node_that_does_not_answer_is_not_waited_for(listening):
    begun = time.monotonic()
    assert named(model_names, "") == []
    assert time.monotonic() - begun < 2


def test_of_several_nodes_that_do_not_answer_none_is_waited_for(listening, account):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(account / "XDG_RUNTIME_DIR/tela/lab-h1-1.sock"))
        other.listen()
        begun = time.monotonic()
        assert named(model_names, "") == []
        assert time.monotonic() - begun < 1.5


def test_the_program_itself_completes_a_node(node, account):
    env = {**os.environ, "_TELA_COMPLETE": "bash_complete", "COMP_WORDS": "tela drain h", "COMP_CWORD": "2"}
    words = [sys.executable, "-m", "console"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["plain,h1@lab", "plain,h2@lab"], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_own_text(group, shell):
    done = CliRunner().invoke(group, ["completion", shell], prog_name="tela")
    assert done.exit_code == 0, done.output
    assert f"_TELA_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_read_its_text(group, shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    text = CliRunner().invoke(group, ["completion", shell], prog_name="tela").stdout
    done = subprocess.run([program, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_used_wrongly(group):
    assert CliRunner().invoke(group, ["completion", "tcsh"]).exit_code == 2


def test_a_mistyped_command_is_completed_with_nothing_and_no_error():
    done = CliRunner().invoke(
        cli,
        [],
        prog_name="tela",
        env={"_TELA_COMPLETE": "bash_complete", "COMP_WORDS": "tela statsu v", "COMP_CWORD": "2"},
    )
    assert done.exit_code == 0
    assert "Traceback" not in done.output
    assert not isinstance(done.exception, Exception)
