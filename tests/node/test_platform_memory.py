"""Whose memory: the host's, a cgroup's, the job's."""

from node.platform.memory import limit_files, memory_b

MEMINFO = "MemTotal:       131902288 kB\nMemFree:        10217744 kB\n"
TOTAL = 131902288 * 1024


def test_a_host_without_limits_has_what_it_has():
    assert memory_b(MEMINFO, ["max\n", "9223372036854771712\n"]) == TOTAL


def test_the_tightest_limit_counts():
    assert memory_b(MEMINFO, ["max\n", "34359738368\n", "68719476736\n"]) == 2**35


def test_a_job_that_was_given_less_than_its_cgroup_allows_has_what_it_was_given():
    assert memory_b(MEMINFO, ["max"], share_b=2**30) == 2**30


def test_nothing_known_is_said_as_nothing():
    assert memory_b("", ["", "nonsense"]) == 0


def test_limits_of_version_2_are_looked_for_from_the_inside_out():
    files = limit_files("0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    assert files[0] == "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/memory.max"
    assert files[-1] == "/sys/fs/cgroup/memory.max"
    assert len(files) == 5


def test_limits_of_version_1_are_those_of_the_memory_controller():
    files = limit_files("9:name=systemd:/\n8:pids:/\n4:memory:/slurm/uid_7/job_3\n3:cpuset:/\n")
    assert files[0] == "/sys/fs/cgroup/memory/slurm/uid_7/job_3/memory.limit_in_bytes"
    assert all("/memory/" in path for path in files)


def test_a_path_cannot_lead_out_of_the_tree():
    assert all(".." not in path for path in limit_files("0::/../../etc\n"))
    assert limit_files("garbage\n") != ("garbage",)
