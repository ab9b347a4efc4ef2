"""`tela service` with programs in place of systemd's and cron's own."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.commands.boot import service
from node.platform import surroundings
from registry.errors import TelaError

SYSTEMCTL = 'echo "$@" >> "$CALLS"; case "$*" in *show*--property*) echo active; echo enabled;; esac'
MACHINE = os.uname().nodename
HOST = MACHINE.partition(".")[0]
CRONTAB = 'case "$1" in -l) [ -f "$TAB" ] && cat "$TAB";; -) cat > "$TAB";; esac'


@pytest.fixture
def account(tmp_path, monkeypatch):
    """An account that belongs to a fabric, on a host with nothing on it."""
    for name in ("TELA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "bin"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "TELA_FABRIC"):
        monkeypatch.delenv(name, raising=False)
    for program in ("cat", "env", "sh", "echo"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("TAB", str(tmp_path / "tab"))
    monkeypatch.setattr(surroundings, "CONTAINERS", ())
    monkeypatch.setattr(surroundings, "LINGER", tmp_path / "linger")
    monkeypatch.chdir(tmp_path)
    belong(tmp_path, "lab")
    return tmp_path


def belong(account, fabric):
    (account / "XDG_CONFIG_HOME" / "tela" / "fabrics" / fabric).mkdir(parents=True)
    (account / "XDG_CONFIG_HOME" / "tela" / "fabrics" / fabric / "records").touch()


def put(account, **scripts):
    for name, script in scripts.items():
        path = account / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@pytest.fixture
def systemd(account):
    """A host whose services outlive logins."""
    put(account, systemctl=SYSTEMCTL, loginctl="echo Linger=yes")
    return account


@pytest.fixture
def cron(account, monkeypatch):
    """A host with cron, where tela itself is a script that writes down what it was told."""
    put(account, crontab=CRONTAB)
    shutil.copy("/bin/sleep", account / "cron")
    monkeypatch.setattr("console.commands.boot._tela", lambda: (str(account / "bin" / "tela"),))
    put(account, tela=f'echo "$@" > {account}/started; exit ${{FAILS:-0}}')
    with subprocess.Popen([account / "cron", "60"]) as running:
        yield account
        running.kill()


def run(*words):
    return CliRunner().invoke(service, list(words))


def unit(account):
    return account / "XDG_CONFIG_HOME" / "systemd" / "user" / f"tela-lab-{HOST}.service"


def test_a_unit_is_written_enabled_and_started(systemd):
    done = run("install", "--", "--process", "vllm serve m --port {port}", "--drain", "40")
    assert done.exit_code == 0, done.output
    text = unit(systemd).read_text()
    assert '"start" "--fabric" "lab" "--process" "vllm serve m --port {port}" "--drain" "40"\n' in text
    assert f"WorkingDirectory={systemd}\n" in text
    assert "TimeoutStopSec=100\n" in text
    assert unit(systemd).stat().st_mode & 0o777 == 0o600
    calls = (systemd / "calls").read_text().splitlines()
    assert calls[-2:] == ["--user daemon-reload", f"--user enable --now tela-lab-{HOST}.service"]


def test_what_would_be_written_is_printed_and_nothing_is(systemd):
    done = run("install", "--dry-run", "--", "--role", "observer", "--slot", "2")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"# {unit(systemd).with_name(f'tela-lab-{HOST}-2.service')}\n# made by tela")
    assert not unit(systemd).parent.exists()
    assert "enable" not in (systemd / "calls").read_text()


def test_a_unit_goes_away_again(systemd):
    run("install", "--", "--role", "observer")
    assert json.loads(run("status", "--json").stdout) == {
        "name": f"lab-{HOST}",
        "by": "systemd",
        "state": "active, enabled",
    }
    assert run("remove").exit_code == 0
    assert not unit(systemd).exists()
    assert f"--user disable tela-lab-{HOST}.service" in (systemd / "calls").read_text()


def test_a_unit_of_another_host_that_shares_the_home_is_left_alone(systemd):
    run("install", "--", "--role", "observer")
    text = unit(systemd).read_text()
    unit(systemd).write_text(text.replace(f"ConditionHost={MACHINE}", "ConditionHost=node17"))
    assert text != unit(systemd).read_text()
    done = run("remove")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "no_service"
    assert unit(systemd).exists()


def test_a_file_of_somebody_else_stays_as_it_is(systemd):
    unit(systemd).parent.mkdir(parents=True)
    unit(systemd).write_text("[Unit]\n")
    done = run("install", "--", "--role", "observer")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "not_ours"
    assert unit(systemd).read_text() == "[Unit]\n"


def test_without_linger_cron_runs_it_and_it_is_started_at_once(cron):
    (cron / "tab").write_text("0 3 * * * backup\n")
    done = run("install", "--", "--process", "e 50% {port}")
    assert done.exit_code == 0, done.output
    script = cron / "XDG_CONFIG_HOME" / "tela" / "boot" / f"lab-{HOST}.sh"
    assert (cron / "tab").read_text() == (
        f"0 3 * * * backup\n@reboot {script} # made by tela service install: lab-{HOST}\n"
    )
    assert script.stat().st_mode & 0o777 == 0o700
    assert (cron / "started").read_text() == "start --fabric lab --process e 50% {port} --detach\n"


def test_a_crontab_loses_our_line_alone(cron):
    (cron / "tab").write_text("0 3 * * * backup\n")
    run("install", "--", "--role", "observer")
    assert run("status").stdout == f"lab-{HOST}  cron  after a boot\n"
    assert run("remove", f"lab-{HOST}").exit_code == 0
    assert (cron / "tab").read_text() == "0 3 * * * backup\n"
    assert not list((cron / "XDG_CONFIG_HOME" / "tela" / "boot").iterdir())


def test_one_that_is_installed_but_does_not_start_says_so(cron, monkeypatch):
    monkeypatch.setenv("FAILS", "1")
    done = run("install", "--", "--role", "observer")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "not_started"


def test_while_a_node_runs_here_a_second_one_is_not_started(cron):
    from node.statedir import StateDir, boot_id, process_start

    state = StateDir.claim(
        cron / "TELA_HOME", "lab", "h1", slot=None, boot_id=boot_id(), pid=os.getpid(), start=process_start(os.getpid())
    )
    done = run("install", "--", "--role", "observer")
    state.release()
    assert "with the next boot" in done.stderr
    assert not (cron / "started").exists()


def test_where_nothing_would_start_it_the_reasons_are_said(account):
    done = run("install", "--", "--role", "observer")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "no_boot"
    assert "no service manager" in done.exception.hint
    assert "no crontab" in done.exception.hint


def test_in_a_job_nothing_is_installed(systemd, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    done = run("install", "--", "--role", "observer")
    assert isinstance(done.exception, TelaError)
    assert "Slurm job 7" in done.exception.hint
    assert not unit(systemd).exists()


@pytest.mark.parametrize("options", [["--no-such"], ["--detach"], ["--slot", "x"]])
def test_options_that_start_would_refuse_are_refused_now_and_not_at_the_next_boot(systemd, options):
    assert run("install", "--", *options).exit_code == 2
    assert not unit(systemd).exists()


def test_which_fabric_must_be_clear(systemd):
    belong(systemd, "other")
    done = run("install", "--", "--role", "observer")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "which_fabric"
    assert run("install", "--", "--fabric", "other").exit_code == 0
    assert '"start" "--fabric" "other"\n' in unit(systemd).with_name(f"tela-other-{HOST}.service").read_text()


def test_a_program_that_refuses_is_quoted(systemd):
    put(systemd, systemctl='case "$*" in *enable*) echo "Access denied" >&2; exit 1;; esac')
    done = run("install", "--", "--role", "observer")
    assert isinstance(done.exception, TelaError)
    assert "Access denied" in done.exception.message


def test_nothing_installed_is_said(account):
    for words in (["status"], ["remove"]):
        done = run(*words)
        assert isinstance(done.exception, TelaError)
        assert done.exception.code == "no_service"


def test_the_program_is_named_by_a_path():
    from console.commands.boot import _tela

    assert Path(_tela()[0]).is_absolute()
