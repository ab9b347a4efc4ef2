"""What is said of an engine that is not ready, and how often."""

from node.engine.waiting import HINT_S, SAY_AGAIN_S, Reason, Waiting

REFUSED = Reason("loading, /health refused", "see the log")


def said(reasons):
    """What is said after each of (seconds, reason)."""
    waiting, heard = Waiting(since=0.0), []
    for now, reason in reasons:
        waiting, phase = waiting.seen(reason, now)
        heard.append(phase)
    return heard


def test_a_reason_is_said_when_it_changes():
    other = Reason("loading, /health 503")
    assert said([(0.1, REFUSED), (0.2, REFUSED), (0.3, other), (0.4, REFUSED)]) == [
        "loading, /health refused",
        None,
        "loading, /health 503",
        "loading, /health refused",
    ]


def test_how_long_it_takes_is_said_now_and_then():
    phases = said([(n / 10, Reason("loading, x")) for n in range(300)])
    heard = [phase for phase in phases if phase]
    assert heard == ["loading, x", *(f"loading {n} s, x" for n in (5, 10, 15, 20, 25))]
    assert SAY_AGAIN_S == 5.0


def test_after_three_that_are_the_same_for_a_while_there_is_a_hint():
    waited = HINT_S + 0.5
    assert said([(0.5, REFUSED), (1.0, REFUSED), (waited, REFUSED)])[-1] == "loading 10 s, /health refused; see the log"


def test_three_in_a_moment_are_no_reason_for_a_hint():
    assert said([(0.1, REFUSED), (0.2, REFUSED), (0.3, REFUSED), (5.2, REFUSED)])[-1] == "loading 5 s, /health refused"


def test_two_are_no_reason_for_a_hint_however_slow():
    assert said([(0.5, REFUSED), (60.0, REFUSED)])[-1] == "loading 60 s, /health refused"


def test_another_reason_begins_anew():
    phases = said([(t, REFUSED) for t in (1, 2, 12)] + [(12.1, Reason("loading, /health 503", "see the log"))])
    assert phases[-2:] == ["loading 12 s, /health refused; see the log", "loading 12 s, /health 503"]


def test_what_waiting_does_not_change_has_no_seconds():
    assert (
        said([(0.0, Reason("wrong model: wanted a")), (60.0, Reason("wrong model: wanted a"))])
        == ["wrong model: wanted a"] * 2
    )


def test_the_longest_reason_with_its_hint_fits_a_record():
    long = Reason("loading, " + "x" * 300, "h" * 60)
    assert {len(phase) <= 256 for phase in said([(t, long) for t in (1, 2, 100)]) if phase} == {True}
