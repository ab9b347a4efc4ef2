"""This host, with programs in place of nvidia-smi."""

import asyncio
import time

import pytest

from node.platform.host import facts, read_gpus, read_memory


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Put a program where nvidia-smi would be."""

    def put(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_gpus_are_read_with_their_links(smi):
    smi(
        """case "$1" in
--query-gpu=*) printf '0, GPU-a, NVIDIA A40, 46068, [N/A]\\n1, GPU-b, NVIDIA A40, 46068, [N/A]\\n';;
topo) printf '\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV4\\nGPU1\\tNV4\\t X \\n';;
esac"""
    )
    [group] = asyncio.run(read_gpus({}))
    assert (group.count, group.memory_b, group.nvlink) == (2, 46068 * 2**20, (2,))


def test_a_host_without_the_program_has_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(read_gpus({})) == ()


def test_a_driver_that_fails_is_no_gpu(smi):
    smi("echo 'NVIDIA-SMI has failed because there is no driver'; exit 9")
    assert asyncio.run(read_gpus({})) == ()


def test_a_driver_that_hangs_is_given_up_and_ended(smi, tmp_path):
    smi(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    begun = time.monotonic()
    assert asyncio.run(read_gpus({}, deadline_s=0.5)) == ()
    assert time.monotonic() - begun < 5
    pid = (tmp_path / "pid").read_text().strip()
    with pytest.raises(FileNotFoundError):
        open(f"/proc/{pid}/stat")  # noqa: PTH123, SIM115


def test_memory_of_this_host_is_known_and_a_share_of_it_counts():
    whole = read_memory()
    assert whole > 2**26
    assert read_memory(2**20) == 2**20


def test_a_job_with_gpus_is_told_in_one_go(smi):
    smi("printf '0, GPU-a, NVIDIA A40, 46068, [N/A]\\n1, GPU-b, NVIDIA A40, 46068, [N/A]\\n'")
    env = {"SLURM_JOB_ID": "9", "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "1", "SLURM_MEM_PER_NODE": "64"}
    told = asyncio.run(facts(env, 0.0))
    assert (told.platform.job, told.gpus[0].count, told.memory_b) == ("9", 1, 64 * 2**20)
