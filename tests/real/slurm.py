"""A real one-node Slurm on loopback, from Debian's packages, for the time of the tests. Needs root.

`running()` installs what is missing, starts munged, slurmctld and slurmd, and stops what it started.
"""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
CPUS = 8  # advertised, whatever the host has: eight tasks run at once
CONF = """\
ClusterName=tela
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/d
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.log
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=10
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
"""


class Slurm:
    """A running cluster of one node."""

    def submit(self, script: Path, *options: str, env: dict[str, str] | None = None) -> str:
        """Submit a job; returns its id."""
        done = _run("sbatch", "--parsable", *options, str(script), env=env)
        return done.strip().partition(";")[0]

    def cancel(self, job: str, *options: str) -> None:
        """`scancel`."""
        _run("scancel", *options, job)

    def states(self, job: str) -> list[str]:
        """The states of a job's tasks that Slurm still knows of."""
        done = subprocess.run(
            ["squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%T"], capture_output=True, text=True, check=False
        )
        return done.stdout.split()


def reason_not_here() -> str:
    """Why a Slurm cannot be run on this machine; empty when it can."""
    if os.geteuid() != 0:
        return "needs root for its daemons"
    if shutil.which("slurmctld") is None and shutil.which("apt-get") is None:
        return "no slurmctld, and no apt-get to install it"
    return ""


@contextmanager
def running(state: Path):
    """A cluster whose daemons live as long as the block."""
    _install()
    _start(state)
    try:
        yield Slurm()
    finally:
        for name in ("slurmd", "slurmctld"):
            pidfile = state / f"{name}.pid"
            if pidfile.exists():
                subprocess.run(["kill", pidfile.read_text().strip()], check=False)


def _install() -> None:
    if shutil.which("slurmctld") and shutil.which("slurmd") and shutil.which("munged"):
        return
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], check=True, **quiet)
    subprocess.run(["apt-get", "install", "-y", "-qq", *PACKAGES], check=True, **quiet)


def _start(state: Path) -> None:
    for name in ("ctld", "d"):
        (state / name).mkdir(parents=True, exist_ok=True)
    _munge()
    host = socket.gethostname().partition(".")[0]
    conf = Path("/etc/slurm/slurm.conf")
    conf.parent.mkdir(exist_ok=True)
    conf.write_text(CONF.format(host=host, state=state, cpus=CPUS))
    subprocess.run(["slurmctld"], check=True)
    _until(lambda: _ok("scontrol", "ping"))
    subprocess.run(["slurmd"], check=True)
    _until(lambda: any(word in _out("sinfo", "-h", "-o", "%t") for word in ("idle", "mix", "alloc")))


def _munge() -> None:
    if _ok("munge", "-n"):
        return
    for directory in ("/run/munge", "/var/lib/munge", "/var/log/munge", "/etc/munge"):
        Path(directory).mkdir(exist_ok=True)
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
    for directory in ("/run/munge", "/var/lib/munge", "/var/log/munge", "/etc/munge"):
        subprocess.run(["chown", "-R", "munge:", directory], check=True)
    key.chmod(0o400)
    Path("/run/munge").chmod(0o755)
    subprocess.run(["runuser", "-u", "munge", "--", "/usr/sbin/munged"], check=True)
    _until(lambda: _ok("munge", "-n"))


def _until(holds, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "Slurm did not come up"
        time.sleep(0.2)


def _ok(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _out(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _run(*words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr
    return done.stdout
