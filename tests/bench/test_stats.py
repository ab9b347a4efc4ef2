"""The figures of the benchmarks against their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.stats import P99_NEEDS, added, paired_difference, percentile, ratio, spread

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300)


def naive(values: list[float], percent: int) -> float:
    """The definition, word by word."""
    return min(v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values))


@given(VALUES, st.integers(1, 100))
def test_a_percentile_is_the_least_value_with_that_share_at_or_below_it(values, percent):
    assert percentile(values, percent) == naive(values, percent)


@given(VALUES, st.randoms())
def test_the_order_of_the_values_does_not_matter(values, rng):
    mixed = values[:]
    rng.shuffle(mixed)
    assert spread(mixed) == spread(values)


def test_the_median_of_an_even_number_of_values_is_one_of_them():
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.0


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_a_percentile_of_nothing_or_out_of_range_is_refused(values, percent):
    with pytest.raises(ValueError, match="percent"):
        percentile(values, percent)


def test_the_99th_percentile_needs_enough_values():
    few, enough = (spread(range(count)) for count in (P99_NEEDS - 1, P99_NEEDS))
    assert few is not None
    assert enough is not None
    assert few.p99 is None
    assert enough.p99 == P99_NEEDS * 99 // 100 - 1


def test_no_values_have_no_spread():
    assert spread([]) is None


@given(st.lists(st.integers(-1000, 1000), min_size=1), st.integers(-1000, 1000))
def test_drift_of_the_machine_leaves_the_paired_difference_alone(drift, cost):
    assert paired_difference(drift, [value + cost for value in drift]) == cost


def test_rounds_without_a_partner_are_refused():
    with pytest.raises(ValueError, match="zip"):
        paired_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference([], [])


def test_what_is_added_says_the_range_over_pairs_and_the_pooled_difference():
    cost = added([1.0, 5.0, 2.0], [2.0, 8.0, 4.0], pooled_direct=2.5, pooled_through=4.5)
    assert (cost.median, cost.least, cost.most, cost.pooled) == (2.0, 1.0, 3.0, 2.0)


def test_a_ratio_to_nothing_is_none():
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(3.0, 0.0) is None
