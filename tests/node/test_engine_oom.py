"""The kernel's count of processes it killed for want of memory."""

from pathlib import Path

from node.engine.oom import count_in, counters, oom_kills


def test_the_counter_of_a_unified_group_is_read_where_the_process_is():
    assert list(counters("0::/user.slice/job_7\n")) == [
        Path("/sys/fs/cgroup/user.slice/job_7/memory.events"),
        Path("/sys/fs/cgroup/memory.events"),
    ]


def test_the_counter_of_an_older_group_is_read_in_its_controller():
    groups = "5:cpu:/x\n4:memory:/slurm/uid_1/job_7\n0::/\n"
    assert next(iter(counters(groups))) == Path("/sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.oom_control")


def test_a_path_that_leads_outside_is_not_followed():
    assert list(counters("0::/../../etc\n")) == []


def test_both_forms_of_the_file_have_the_counter():
    assert count_in("low 0\nhigh 0\noom 3\noom_kill 2\noom_group_kill 0\n") == 2
    assert count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n") == 1


def test_a_file_without_the_counter_has_none():
    assert count_in("") is None
    assert count_in("oom_kill many\n") is None


def test_here_it_is_a_number():
    assert oom_kills() >= 0
