"""Environments as real Slurm jobs had them (22.05 here; those with an end time from newer clusters), shortened."""

import pytest

from node.platform.slurm import memory_b, read

NOW = 1_772_420_000.0


def env(text):
    return dict(line.split("=", 1) for line in text.split())


BATCH = env("""
SLURMD_NODENAME=n1 SLURM_CLUSTER_NAME=lab SLURM_CPUS_ON_NODE=1 SLURM_GTIDS=0 SLURM_JOBID=1
SLURM_JOB_CPUS_PER_NODE=1(x2) SLURM_JOB_ID=1 SLURM_JOB_NAME=env.sh SLURM_JOB_NODELIST=n[1-2] SLURM_JOB_NUM_NODES=2
SLURM_JOB_PARTITION=normal SLURM_LOCALID=0 SLURM_MEM_PER_NODE=200 SLURM_NNODES=2 SLURM_NODEID=0 SLURM_NPROCS=2
SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=1(x2) SLURM_TASK_PID=6802
""")
ARRAY_TASK = env("""
SLURMD_NODENAME=n1 SLURM_ARRAY_JOB_ID=2 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_MAX=1
SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_STEP=1 SLURM_CLUSTER_NAME=lab SLURM_CPUS_ON_NODE=1 SLURM_JOBID=7
SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_PARTITION=normal SLURM_NNODES=1 SLURM_PROCID=0
SLURM_STEPID=0 SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1 SLURM_TASK_PID=6841
""")
HET_STEP = env("""
SLURMD_NODENAME=n2 SLURM_CPUS_ON_NODE=2 SLURM_GTIDS=0,1 SLURM_HET_SIZE=2 SLURM_JOBID=4 SLURM_JOB_ID=4
SLURM_JOB_ID_HET_GROUP_0=4 SLURM_JOB_ID_HET_GROUP_1=5 SLURM_JOB_ID_PACK_GROUP_0=4 SLURM_JOB_ID_PACK_GROUP_1=5
SLURM_JOB_NODELIST=n2 SLURM_JOB_NODELIST_HET_GROUP_0=n1 SLURM_JOB_NODELIST_HET_GROUP_1=n2 SLURM_JOB_NUM_NODES=1
SLURM_JOB_NUM_NODES_HET_GROUP_0=1 SLURM_JOB_NUM_NODES_HET_GROUP_1=1 SLURM_JOB_PARTITION=gpu
SLURM_JOB_PARTITION_HET_GROUP_0=normal SLURM_JOB_PARTITION_HET_GROUP_1=gpu SLURM_PACK_SIZE=2 SLURM_PROCID=1
SLURM_STEPID=0 SLURM_TASK_PID=6996
""")
SALLOC = env("""
SLURM_CLUSTER_NAME=lab SLURM_JOBID=6 SLURM_JOB_CPUS_PER_NODE=1 SLURM_JOB_ID=6 SLURM_JOB_NAME=interactive
SLURM_JOB_NODELIST=n1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_PARTITION=normal SLURM_NNODES=1 SLURM_NODELIST=n1
SLURM_NPROCS=1 SLURM_NTASKS=1 SLURM_SUBMIT_HOST=vm
""")
TIMED = env("""
SLURMD_NODENAME=sh04-14n01 SLURM_CLUSTER_NAME=sherlock SLURM_CPUS_ON_NODE=8 SLURM_GPUS=1 SLURM_GPUS_ON_NODE=1
SLURM_JOBID=17552256 SLURM_JOB_CPUS_PER_NODE=8 SLURM_JOB_END_TIME=1772459598 SLURM_JOB_ID=17552256
SLURM_JOB_NODELIST=sh04-14n01 SLURM_JOB_NUM_NODES=1 SLURM_JOB_PARTITION=gpu SLURM_JOB_START_TIME=1772416394
SLURM_MEM_PER_CPU=30720 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_TASK_PID=1
""")


def test_a_batch_job_says_its_id_partition_and_hosts():
    job = read(BATCH, NOW)
    assert (job.kind, job.job, job.partition, job.hosts, job.ends_at) == ("slurm", "1", "normal", 2, None)


def test_a_task_of_an_array_goes_by_the_name_that_squeue_shows_not_by_its_own_number():
    assert read(ARRAY_TASK, NOW).job == "2_0"


def test_a_step_of_a_heterogeneous_job_says_which_component_it_is():
    job = read(HET_STEP, NOW)
    assert (job.job, job.partition, job.hosts) == ("4+1", "gpu", 1)


def test_a_heterogeneous_job_whose_component_cannot_be_told_goes_by_its_id():
    assert read({**HET_STEP, "SLURM_JOB_NODELIST": "n9"}, NOW).job == "4"


def test_a_shell_of_salloc_on_a_login_node_is_not_inside_the_job():
    assert read(SALLOC, NOW) is None


def test_outside_of_slurm_there_is_no_job():
    assert read({"PATH": "/bin"}, NOW) is None


def test_the_end_of_the_job_is_what_slurm_says():
    assert read(TIMED, NOW).ends_at == 1772459598.0


def test_a_job_without_a_limit_has_no_end_although_slurm_writes_one_a_year_away():
    start = int(TIMED["SLURM_JOB_START_TIME"])
    assert read({**TIMED, "SLURM_JOB_END_TIME": str(start + 365 * 86_400)}, NOW).ends_at is None


def test_an_end_that_is_over_says_nothing():
    assert read(TIMED, 1772459598.0).ends_at is None


@pytest.mark.parametrize(
    ("job", "size"), [(BATCH, 200 * 2**20), (TIMED, 8 * 30_720 * 2**20), ({**BATCH, "SLURM_MEM_PER_NODE": "0"}, 0)]
)
def test_the_jobs_memory_is_by_host_or_by_processor_and_none_when_it_is_all(job, size):
    assert memory_b(job) == size


@pytest.mark.parametrize("value", ["", "x", "-3", "1e9", "9" * 40, "٣", "(null)"])
def test_nonsense_in_the_environment_is_as_good_as_nothing(value):
    assert read({**TIMED, "SLURM_JOB_ID": value}, NOW) is None
    job = read({**TIMED, "SLURM_JOB_END_TIME": value, "SLURM_JOB_NUM_NODES": value, "SLURM_HET_SIZE": value}, NOW)
    assert (job.ends_at, job.hosts, job.job) == (None, 1, "17552256")
