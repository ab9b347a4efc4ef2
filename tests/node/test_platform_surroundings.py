"""Looking at a host, with programs in place of its own."""

import shutil
import subprocess

import pytest

from node.platform import surroundings
from node.platform.surroundings import kills_at_logout, look, run


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs by name, the only ones there are."""
    here = tmp_path / "bin"
    here.mkdir()
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.setattr(surroundings, "CONTAINERS", (tmp_path / "container",))
    monkeypatch.setattr(surroundings, "LINGER", tmp_path / "linger")

    def put(**scripts):
        for name, script in scripts.items():
            (here / name).write_text(f"#!/bin/sh\n{script}\n")
            (here / name).chmod(0o755)

    return put


def test_a_bare_host_has_nothing(programs):
    around = look({}, "me", 0.0)
    assert (around.job, around.is_container, around.lingers, around.has_user_services, around.has_crontab) == (
        ("", False, False, False, False)
    )


def test_linger_is_what_loginctl_says_or_the_file_that_it_makes(programs, tmp_path):
    programs(loginctl='[ "$2" = me ] && echo Linger=yes || echo Linger=no')
    assert look({}, "me", 0.0).lingers
    assert not look({}, "you", 0.0).lingers
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / "you").touch()
    assert look({}, "you", 0.0).lingers


def test_a_service_manager_counts_when_it_answers(programs):
    programs(systemctl="echo 'Failed to connect to bus' >&2; exit 1")
    assert not look({}, "me", 0.0).has_user_services
    programs(systemctl="echo PATH=/bin")
    assert look({}, "me", 0.0).has_user_services


def test_a_cron_that_runs_is_seen(programs, tmp_path):
    sleeper = tmp_path / "crond"
    shutil.copy("/bin/sleep", sleeper)
    with subprocess.Popen([sleeper, "60"]) as cron:
        try:
            assert look({}, "me", 0.0).runs_cron
        finally:
            cron.kill()


def test_a_job_and_a_pod_are_named(programs):
    assert look({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}, "me", 0.0).job == "Slurm job 7"
    assert look({"KUBERNETES_SERVICE_HOST": "h", "HOSTNAME": "p"}, "me", 0.0).job == "the pod p"


def test_a_container_is_seen(programs, tmp_path):
    (tmp_path / "container").touch()
    assert look({}, "me", 0.0).is_container


@pytest.mark.parametrize(
    ("texts", "kills"),
    [
        ([], False),
        (["[Login]\n#KillUserProcesses=yes\n"], False),
        (["[Login]\nKillUserProcesses=yes\n"], True),
        (["[Login]\nKillUserProcesses=yes\n", "[Login]\n KillUserProcesses = no\n"], False),
    ],
)
def test_the_last_file_says_what_happens_at_logout(texts, kills):
    assert kills_at_logout(texts) is kills


def test_a_program_that_is_missing_fails_or_hangs_says_nothing(programs, monkeypatch):
    programs(fails="echo no; exit 3", hangs="exec /bin/sleep 60")
    monkeypatch.setattr(surroundings, "DEADLINE_S", 0.3)
    assert [run([name]) for name in ("missing", "fails", "hangs")] == [None, None, None]
