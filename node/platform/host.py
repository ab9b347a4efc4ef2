"""Reads what this host is: its platform, GPUs and memory. A tool that is missing, broken or hung means: not known."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from node.platform import gpu, kubernetes, memory, slurm
from registry.kinds import GpuGroup, Platform

GPU_DEADLINE_S = 5.0  # a driver that does not answer in this time is broken, and the node starts without it
REAP_S = 1.0
MAX_FILE_B = 65_536


class Facts(NamedTuple):
    """What a node record says of its host."""

    platform: Platform | None  # None: an ordinary host
    gpus: tuple[GpuGroup, ...]
    memory_b: int  # 0: not known


async def facts(env: Mapping[str, str], now: float) -> Facts:
    """Everything; takes up to `GPU_DEADLINE_S`.

    Args:
        env: the environment of this process.
        now: unix seconds.
    """
    in_job = slurm.read(env, now)
    return Facts(
        platform=in_job or kubernetes.read(env, _texts(kubernetes.FILES)),
        gpus=await read_gpus(env),
        memory_b=read_memory(slurm.memory_b(env) if in_job is not None else 0),
    )


async def read_gpus(env: Mapping[str, str], deadline_s: float = GPU_DEADLINE_S) -> tuple[GpuGroup, ...]:
    """The NVIDIA GPUs this process may use; none without a driver that answers in time."""
    try:
        async with asyncio.timeout(deadline_s):
            csv = await _smi(f"--query-gpu={gpu.QUERY}", "--format=csv,noheader,nounits")
            listing = await _smi("-L") if "Enabled" in csv else ""
            seen = len(csv.splitlines())
            topo = await _smi("topo", "-m") if seen > 1 else ""
    except TimeoutError:
        return ()
    return gpu.parse(csv, topo, listing, gpu.wanted(env, seen))


def read_memory(share_b: int = 0) -> int:
    """Bytes of memory that are ours; see `node.platform.memory`."""
    limits = _texts(memory.limit_files(_text("/proc/self/cgroup")))
    return memory.memory_b(_text("/proc/meminfo"), limits.values(), share_b)


async def _smi(*words: str) -> str:
    """What nvidia-smi says; nothing when it is missing or fails."""
    try:
        child = await asyncio.create_subprocess_exec(
            "nvidia-smi",
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        out, _ = await child.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(TimeoutError):  # one that hangs in the driver cannot even be killed
            await asyncio.wait_for(child.wait(), REAP_S)
        raise
    return out.decode(errors="replace") if child.returncode == 0 else ""


def _texts(paths: Iterable[str]) -> dict[str, str]:
    return {path: text for path in paths if (text := _text(path))}


def _text(path: str) -> str:
    """A small file's text; empty when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_FILE_B).decode(errors="replace")
    except OSError:
        return ""
