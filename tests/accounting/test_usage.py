"""Usage rows: strict reading of what engines say, and which of two rows stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage import MAX_TOKENS, Tokens, UsageRow, better, tokens_from_usage

OUTCOMES = ["ok", "client_disconnect", "upstream_error", "truncated", "refused", "recovered"]
counts = st.integers(0, 3)
maybe = st.none() | counts
times = st.sampled_from([0.0, 1.0, 1.5])
words = st.sampled_from(["", "a", "b"])
rows = st.builds(
    UsageRow,
    rid=st.just("r"),
    ts_start=times,
    ts_first=st.none() | times,
    ts_end=times,
    key_id=words,
    model=words,
    family=words,
    node=words,
    replica=words,
    attempts=counts,
    stream=st.booleans(),
    status=counts,
    outcome=st.sampled_from(OUTCOMES),
    prompt_tokens=maybe,
    cached_tokens=maybe,
    completion_tokens=maybe,
    tokens_source=st.sampled_from(["engine", "none"]),
    bytes_in=counts,
    bytes_out=counts,
)


def row(**changes):
    return UsageRow(
        **{
            "rid": "r",
            "ts_start": 1.0,
            "ts_first": 2.0,
            "ts_end": 3.0,
            "key_id": "k_1",
            "model": "m",
            "family": "chat",
            "node": "n",
            "replica": "x",
            "attempts": 1,
            "stream": True,
            "status": 200,
            "outcome": "ok",
            "prompt_tokens": 10,
            "cached_tokens": None,
            "completion_tokens": 5,
            "tokens_source": "engine",
            "bytes_in": 1,
            "bytes_out": 2,
        }
        | changes
    )


def test_a_chat_answer_gives_all_three_counts():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    assert tokens_from_usage(usage) == Tokens(prompt=10, cached=8, completion=5)


def test_an_embeddings_answer_has_no_completion_count():
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    assert tokens_from_usage(usage) == Tokens(prompt=7)


def test_a_total_alone_is_all_prompt():
    assert tokens_from_usage({"total_tokens": 7}) == Tokens(prompt=7)


def test_a_total_beside_a_spoiled_prompt_count_is_not_used():
    assert tokens_from_usage({"prompt_tokens": "7", "total_tokens": 9}) == Tokens()


def test_zero_is_a_count_and_absence_is_none():
    usage = {"prompt_tokens": 4, "completion_tokens": 0, "prompt_tokens_details": None}
    assert tokens_from_usage(usage) == Tokens(prompt=4, cached=None, completion=0)


@pytest.mark.parametrize("bad", [True, -1, "5", 5.0, None, [5], {}, MAX_TOKENS + 1])
def test_what_is_not_a_plain_count_is_none(bad):
    usage = {"prompt_tokens": bad, "completion_tokens": bad}
    assert tokens_from_usage(usage) == Tokens()


def test_more_cached_than_prompt_tokens_is_no_cached_count():
    usage = {"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    assert tokens_from_usage(usage) == Tokens(prompt=4)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
KEYS = ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"]


@given(json | st.dictionaries(st.sampled_from(KEYS), json))
def test_no_usage_object_can_crash_the_reader(usage):
    tokens = tokens_from_usage(usage)
    for count in (tokens.prompt, tokens.cached, tokens.completion):
        assert count is None or 0 <= count <= MAX_TOKENS


def test_the_source_is_the_engine_as_soon_as_there_is_a_count():
    assert Tokens().source == "none"
    assert Tokens(completion=0).source == "engine"


def test_the_engines_counts_win_over_none():
    none = row(tokens_source="none", prompt_tokens=None, completion_tokens=None, bytes_out=99)
    assert better(none, row()) == row()


def test_the_larger_sum_of_tokens_wins():
    assert better(row(prompt_tokens=11), row(status=500)) == row(prompt_tokens=11)


def test_a_row_somebody_saw_the_end_of_wins_over_a_recovered_one():
    unknown = {"tokens_source": "none", "prompt_tokens": None, "completion_tokens": None}
    seen = row(outcome="client_disconnect", **unknown)
    recovered = row(outcome="recovered", ts_start=9.0, **unknown)
    assert better(recovered, seen) == seen


@given(rows)
def test_merging_a_row_with_itself_changes_nothing(a):
    assert better(a, a) == a


@given(rows, rows)
def test_merging_commutes(a, b):
    assert better(a, b) == better(b, a)


@given(rows, rows, rows)
def test_merging_associates(a, b, c):
    assert better(better(a, b), c) == better(a, better(b, c))
