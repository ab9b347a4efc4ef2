from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.route.guard import FIRST_S, LAST_S, Guard
from node.route.pick import Policy, pick
from node.route.retry import (
    DEADLINE_S,
    MAX_ATTEMPTS,
    Budget,
    Failure,
    failure_of_status,
    is_replicas_fault,
    may_retry,
)

NAMES = ["a", "b", "c"]


def chosen(policy, *, times=3000, in_flight=None, weights=None, names=NAMES):
    rng = Random(1)
    picks = (
        pick(policy, names, in_flight=in_flight or {}, weights=weights or {}, turn=turn, rng=rng)
        for turn in range(times)
    )
    return Counter(names[index] for index in picks)


def test_round_robin_gives_each_the_same():
    assert chosen(Policy.ROUND_ROBIN) == {"a": 1000, "b": 1000, "c": 1000}


def test_uniform_gives_each_about_the_same():
    assert all(900 < count < 1100 for count in chosen(Policy.UNIFORM).values())


def test_least_in_flight_takes_the_idlest_and_shares_ties_alike():
    counts = chosen(Policy.LEAST_IN_FLIGHT, in_flight={"a": 2, "b": 1, "c": 1})
    assert "a" not in counts
    assert abs(counts["b"] - counts["c"]) < 250


def test_weights_are_shares_and_zero_gets_nothing():
    counts = chosen(Policy.WEIGHTED, weights={"a": 3.0, "b": 1.0, "c": 0.0})
    assert "c" not in counts
    assert 2.6 < counts["a"] / counts["b"] < 3.4


def test_weights_that_are_all_zero_fall_back_to_uniform():
    assert len(chosen(Policy.WEIGHTED, weights=dict.fromkeys(NAMES, 0.0))) == 3


@given(st.sampled_from(list(Policy)), st.lists(st.text(), min_size=1, max_size=5), st.integers(0), st.randoms())
def test_a_pick_is_always_one_of_the_candidates(policy, names, turn, rng):
    assert 0 <= pick(policy, names, in_flight={}, weights={}, turn=turn, rng=rng) < len(names)


def test_a_failed_replica_rests_longer_each_time_and_a_new_run_starts_clean():
    guard = Guard()
    guard.failed("r", 1, 100.0)
    assert guard.objection("r", 1, 100.0 + FIRST_S - 0.01)
    assert guard.objection("r", 1, 100.0 + FIRST_S) is None
    assert guard.objection("r", 2, 100.0) is None
    guard.failed("r", 1, 101.0)
    assert "2 time(s)" in str(guard.objection("r", 1, 101.0 + FIRST_S))
    for _ in range(20):
        guard.failed("r", 1, 200.0)
    assert guard.objection("r", 1, 200.0 + LAST_S) is None


def test_a_served_request_forgets_the_failures_before_it():
    guard = Guard()
    guard.failed("r", 1, 0.0)
    guard.served("r")
    assert guard.objection("r", 1, 0.0) is None


@pytest.mark.parametrize("failure", list(Failure))
def test_nothing_is_tried_beyond_the_budget(failure):
    assert not may_retry(failure, Budget(attempts=MAX_ATTEMPTS, engine_errors=0, elapsed_s=0.0))
    assert not may_retry(failure, Budget(attempts=1, engine_errors=0, elapsed_s=DEADLINE_S))


def test_the_budget_is_the_one_that_was_configured():
    assert not may_retry(Failure.LOST, Budget(attempts=1, engine_errors=0, elapsed_s=5.0, deadline_s=5.0))
    assert may_retry(Failure.LOST, Budget(attempts=1, engine_errors=0, elapsed_s=DEADLINE_S, deadline_s=2 * DEADLINE_S))


def test_an_engines_own_error_is_tried_on_one_other_node_only():
    assert may_retry(Failure.ENGINE_5XX, Budget(attempts=1, engine_errors=1, elapsed_s=0.0))
    assert not may_retry(Failure.ENGINE_5XX, Budget(attempts=2, engine_errors=2, elapsed_s=0.0))


def test_a_lost_attempt_is_repeated_and_a_timeout_is_not():
    spent = Budget(attempts=1, engine_errors=0, elapsed_s=1.0)
    assert may_retry(Failure.LOST, spent)
    assert not may_retry(Failure.TIMEOUT, spent)


def test_statuses_are_classed():
    assert failure_of_status(200) is failure_of_status(400) is None
    assert failure_of_status(500) is failure_of_status(502) is Failure.ENGINE_5XX
    assert failure_of_status(429) is failure_of_status(503) is Failure.ENGINE_BUSY


def test_an_engine_that_answers_is_not_put_to_rest():
    assert {failure for failure in Failure if is_replicas_fault(failure)} == {
        Failure.LOST,
        Failure.NOT_SENT,
        Failure.GARBAGE,
    }
