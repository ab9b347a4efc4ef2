"""Numbers in words."""

import pytest

from console.views.words import age, counted, gib, instant, moment, shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (0.9, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_an_age_is_in_the_largest_unit_that_says_enough(seconds, words):
    assert age(seconds) == words


def test_a_moment_is_utc_to_the_minute_and_an_instant_to_the_second():
    assert moment(1_800_000_001.0) == "2027-01-15 08:00 UTC"
    assert instant(1_800_000_001.0) == "2027-01-15 08:00:01 UTC"


@pytest.mark.parametrize("far", [1e300, float("inf"), float("nan"), -1e18])
def test_a_time_no_calendar_has_is_never(far):
    assert moment(far) == "never"


@pytest.mark.parametrize(("number", "words"), [(0, "0 models"), (1, "1 model"), (1_200, "1,200 models")])
def test_a_count_knows_its_plural(number, words):
    assert counted(number, "model") == words


def test_memory_is_in_gib():
    assert gib(80 * 2**30) == "80 GiB"


@pytest.mark.parametrize("nothing", [None, "", [], ()])
def test_nothing_is_a_dash(nothing):
    assert shown(nothing) == "-"


def test_false_and_zero_are_something():
    assert (shown(False), shown(0)) == ("no", "0")
