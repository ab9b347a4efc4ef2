"""How long an end may take."""

from node.platform.limits import linger_s, warn_at
from registry.kinds import Platform

JOB = Platform(kind="slurm", job="7", ends_at=1000.0)


def test_an_ordinary_host_leaves_what_was_asked_for():
    assert linger_s(None, 300.0) == 300.0


def test_a_platform_that_kills_leaves_less_than_it_waits():
    assert linger_s(JOB, 300.0) == 25.0
    assert linger_s(Platform(kind="kubernetes"), 300.0) == 25.0


def test_a_short_drain_is_not_made_longer():
    assert linger_s(JOB, 3.0) == 3.0


def test_a_drain_begins_early_enough_before_the_end_of_the_job():
    assert warn_at(JOB, 60.0) == 935.0


def test_without_an_end_there_is_nothing_to_begin():
    assert warn_at(None, 60.0) is None
    assert warn_at(Platform(kind="slurm"), 60.0) is None
