"""Where a command's errors end."""

import errno
import os
import stat
import subprocess
import sys

import click
import pytest

from console.edge import REPORT, edge
from registry.errors import TelaError
from tests.console.founded import account

__all__ = ["account"]


def ended(error, capsys, command="drain"):
    """The exit code and what was said on stderr when a command ends with an error."""
    with pytest.raises(SystemExit) as caught, edge(command):
        raise error
    out, err = capsys.readouterr()
    assert not out
    return caught.value.code, err


@pytest.mark.parametrize(("code", "exit_code"), [("no_node", 1), ("usage", 2), ("config", 2)])
def test_an_error_for_people_is_shown_with_what_to_do_next(capsys, account, code, exit_code):
    error = TelaError("no node runs here", hint="tela start", code=code)
    assert ended(error, capsys) == (exit_code, "tela: no node runs here\n      tela start\n")


def test_an_error_without_advice_is_one_line(capsys, account):
    assert ended(TelaError("that is how it is"), capsys) == (1, "tela: that is how it is\n")


def test_what_came_from_elsewhere_cannot_drive_the_terminal(capsys, account):
    _, err = ended(TelaError("\x1b[2J", hint="a\nb\u202e"), capsys)
    assert len(err.splitlines()) == 2
    assert all(line.isprintable() for line in err.splitlines())


def test_of_several_tasks_that_failed_one_error_is_shown(capsys, account):
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", [TelaError("the port is taken", code="usage")])])
    assert ended(group, capsys) == (2, "tela: the port is taken\n")


def test_what_nobody_expected_is_said_in_a_line_and_written_down(capsys, account):
    code, err = ended(KeyError("\x1bsurprise"), capsys)
    assert code == 1
    assert "drain broke: KeyError" in err
    assert "Traceback" not in err
    report = account / "state" / REPORT
    assert str(report) in err
    assert "Traceback" in report.read_text()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


def test_a_group_with_something_unexpected_in_it_is_unexpected(capsys, account):
    code, err = ended(ExceptionGroup("tasks", [TelaError("known"), ValueError("not known")]), capsys)
    assert code == 1
    assert "ExceptionGroup" in err


def test_a_report_holds_no_arguments_for_they_may_be_secrets(capsys, account, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tela", "join", "tela_invite_secret"])
    ended(RuntimeError("x"), capsys, "join")
    assert "tela_invite_secret" not in (account / "state" / REPORT).read_text()


def test_where_nothing_can_be_written_it_is_said_all_the_same(capsys, account):
    (account / "state").write_text("in the way")
    code, err = ended(RuntimeError("x"), capsys)
    assert code == 1
    assert "RuntimeError: x" in err
    assert "TELA_DEBUG=1" in err


def test_whoever_asks_sees_the_traceback(capsys, account, monkeypatch):
    monkeypatch.setenv("TELA_DEBUG", "1")
    assert "Traceback" in ended(RuntimeError("x"), capsys)[1]
    assert "Traceback" in ended(TelaError("x"), capsys)[1]


def test_ctrl_c_ends_quietly(capsys, account):
    assert ended(KeyboardInterrupt(), capsys) == (130, "")


def test_ctrl_c_in_a_question_ends_quietly_too(capsys, account):
    abort = click.Abort()
    abort.__context__ = KeyboardInterrupt()
    assert ended(abort, capsys) == (130, "")


@pytest.mark.parametrize("error", [click.Abort(), click.UsageError("x"), click.exceptions.Exit(3)])
def test_what_click_says_by_itself_is_left_to_click(error):
    with pytest.raises(type(error)), edge("x"):
        raise error


def test_a_reader_that_left_is_no_fault():
    with pytest.raises(BrokenPipeError), edge("x"):
        raise BrokenPipeError(errno.EPIPE, "")


def tela(*words, env):
    return subprocess.run(
        [sys.executable, "-m", "console", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


def test_the_program_itself_shows_no_traceback_when_its_files_are_not_what_they_should_be(account):
    (account / "config" / "tela").mkdir(parents=True)
    (account / "config" / "tela" / "config.toml").write_bytes(b"\xff")
    done = tela("status", env={})
    assert done.returncode == 2
    assert done.stderr.startswith("tela: ")
    assert "config.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistyped_command_is_used_wrongly_and_the_nearest_is_named(account):
    done = tela("statsu", env={})
    assert done.returncode == 2
    assert "There is no command 'statsu'. Did you mean status" in done.stderr
