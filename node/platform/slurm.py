"""Reads the Slurm job this process is part of from its environment. Pure.

It asks no Slurm daemon: thousands of nodes that poll the controller hurt everybody's jobs. So it sees what was true
when the job started; a time limit that an administrator moved later is not seen.
"""

from collections.abc import Mapping

from registry.kinds import Platform
from registry.text import clean

YEAR_S = 365 * 86_400.0  # the controller sets the end of a job without a limit a year after its start
MAX_HOSTS = 100_000
_INSIDE = ("SLURMD_NODENAME", "SLURM_TASK_PID", "SLURM_PROCID")  # a shell of salloc on a login node has none of them


def read(env: Mapping[str, str], now: float) -> Platform | None:
    """The job, or None outside of one; a login node's shell under `salloc` is outside.

    Args:
        env: the environment of this process.
        now: unix seconds.
    """
    job = env.get("SLURM_JOB_ID", "")
    if not _is_number(job) or not any(env.get(name) for name in _INSIDE):
        return None
    return Platform(
        kind="slurm",
        job=_job(env, job),
        partition=clean(env.get("SLURM_JOB_PARTITION", "")),
        ends_at=_ends_at(env, now),
        hosts=min(max(_number(env, "SLURM_JOB_NUM_NODES"), 1), MAX_HOSTS),
    )


def memory_b(env: Mapping[str, str]) -> int:
    """Bytes of this host's memory that belong to the job; 0 when it does not say, or says all of it."""
    per_host = _number(env, "SLURM_MEM_PER_NODE")
    per_cpu = _number(env, "SLURM_MEM_PER_CPU") * _number(env, "SLURM_CPUS_ON_NODE")
    return (per_host or per_cpu) * 2**20


def _job(env: Mapping[str, str], job: str) -> str:
    """As squeue writes it: 12, 12_3 for a task of an array, 12+1 for a component of a heterogeneous job."""
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    if _is_number(array) and _is_number(task):
        return f"{array}_{task}"
    component = _component(env)
    return clean(job if component is None else f"{job}+{component}")


def _component(env: Mapping[str, str]) -> int | None:
    """Which component of a heterogeneous job this is; every step of it carries the leader's job id."""
    for at in range(min(_number(env, "SLURM_HET_SIZE"), 128)):
        if all(
            env.get(name) == env.get(f"{name}_HET_GROUP_{at}") for name in ("SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION")
        ):
            return at
    return None


def _ends_at(env: Mapping[str, str], now: float) -> float | None:
    end, start = _number(env, "SLURM_JOB_END_TIME"), _number(env, "SLURM_JOB_START_TIME")
    if end <= now or end - (start or now) >= YEAR_S:
        return None
    return float(end)


def _number(env: Mapping[str, str], name: str) -> int:
    value = env.get(name, "")
    return int(value) if _is_number(value) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15
