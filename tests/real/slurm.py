"""A real Slurm of one node on loopback, from Debian's packages, for the time of the tests. Needs root.

It brings its own munge, its own ports and its own configuration, all in one directory: a cluster that this machine
belongs to already is not touched. Commands find it by `SLURM_CONF`.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
CPUS = 8  # advertised, whatever the host has: eight tasks run at once
CONF = """\
ClusterName=tela
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/d
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
AuthType=auth/munge
AuthInfo=socket={state}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={state}/prolog
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=30
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 Port={d_port} CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
# A job has the environment of the login it was submitted from, but no login of its own where it runs: the runtime
# directory that is named there does not exist, and only root could make it. In /proc not even root can.
PROLOG = """\
#!/bin/sh
echo export XDG_RUNTIME_DIR=/proc/run/user/$(id -u)
"""


class Slurm:
    """A running cluster of one node.

    Attributes:
        env: what a command needs in its environment to find it.
    """

    def __init__(self, conf: Path) -> None:
        self.env = {"SLURM_CONF": str(conf)}

    def run(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **self.env})
        assert done.returncode == 0, f"{words[0]}: {done.stderr}"
        return done.stdout

    def tasks(self) -> dict[str, str]:
        """The state of every array task that is queued, runs or ends, as `12_3`: by its job and index."""
        words = self.run("squeue", "-h", "-r", "-o", "%i %T").split()
        return dict(zip(words[::2], words[1::2], strict=True))

    def kill_outright(self, tasks: Iterable[str]) -> None:
        """SIGKILL for every process of array tasks, as when a host dies; a `scancel` would begin with SIGTERM."""
        words = self.run("squeue", "-h", "-r", "-o", "%i %A").split()
        jobs = {job for task, job in zip(words[::2], words[1::2], strict=True) if task in set(tasks)}
        for line in self.run("scontrol", "listpids").splitlines()[1:]:
            pid, job, *_ = line.split()
            if job in jobs:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def reason_not_here() -> str:
    """Why a Slurm cannot be run on this machine; empty when it can, and then it is installed."""
    if os.geteuid() != 0:
        return "its daemons need root"
    if _is_installed():
        return ""
    if shutil.which("apt-get") is None:
        return "it is not installed, and there is no apt-get"
    return _install()


@contextmanager
def running() -> Iterator[Slurm]:
    """A cluster whose daemons and jobs live as long as the block."""
    state = Path(tempfile.mkdtemp(prefix="tela-slurm-"))  # not pytest's own: a socket's path has to be short
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, state, ignore_errors=True)
        yield _started(state, stack)


def _is_installed() -> bool:
    return all(shutil.which(program) for program in PROGRAMS)


def _install() -> str:
    for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(["apt-get", "-qq", *words], capture_output=True, text=True, check=False, env=env)
        if done.returncode != 0:
            return f"apt-get {words[0]}: {done.stderr[-300:]}"
    return ""


def _started(state: Path, stack: ExitStack) -> Slurm:
    for name in ("ctld", "d", "munge"):
        (state / name).mkdir()
    state.chmod(0o755)
    (state / "prolog").write_text(PROLOG)
    (state / "prolog").chmod(0o755)
    conf = state / "slurm.conf"
    ports = dict(zip(("ctld_port", "d_port"), free_ports(2), strict=True))
    conf.write_text(CONF.format(host=socket.gethostname().partition(".")[0], state=state, cpus=CPUS, **ports))
    slurm = Slurm(conf)
    _munge(state / "munge", stack)
    _daemon(stack, state / "slurmctld.log", "slurmctld", "-D", "-f", str(conf))
    _until(lambda: "UP" in slurm.run("scontrol", "ping"), state / "slurmctld.log")
    _daemon(stack, state / "slurmd.log", "slurmd", "-D", "-f", str(conf))
    _until(lambda: slurm.run("sinfo", "-h", "-o", "%t").strip() == "idle", state / "slurmd.log")
    stack.callback(_end_jobs, slurm)
    return slurm


def _munge(where: Path, stack: ExitStack) -> None:
    key = where / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    places = [f"--{name}-file={where / name}" for name in ("key", "pid", "seed", "log")]
    _daemon(stack, where / "out", "munged", "-F", "-f", f"--socket={where / 'socket'}", *places)
    _until((where / "socket").exists, where / "out")


def _daemon(stack: ExitStack, log: Path, *words: str) -> None:
    with log.open("w") as out:
        child = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def end() -> None:
        child.terminate()
        try:
            child.wait(10.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    stack.callback(end)


def _end_jobs(slurm: Slurm) -> None:
    """End what still runs; Slurm kills what is there `KillWait` later."""
    if slurm.tasks():
        slurm.run("scancel", "--user=root")
        deadline = time.monotonic() + 40.0
        while slurm.tasks() and time.monotonic() < deadline:
            time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Ports of this host that nobody holds now, all different."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return [probe.getsockname()[1] for probe in probes]


def _until(holds: Callable[[], bool], log: Path, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not _is_so(holds):
        assert time.monotonic() < deadline, f"Slurm did not come up:\n{log.read_text()[-2000:]}"
        time.sleep(0.1)


def _is_so(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except AssertionError:  # a command that cannot reach its daemon yet
        return False
