"""What a node in the foreground says."""

import pytest

from console.narration import line_of

ENGINE = {"event": "engine", "slot": "e0", "state": "JOIN", "phase": "", "draining": False, "models": []}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "ready", "name": "h@lab", "id": "x", "run": 7, "links": [], "http": ""}, "up as h@lab, run 7"),
        (
            {"event": "ready", "id": "x", "run": 7, "links": ["ws://a", "ws://b"], "http": "http://c"},
            "up as x, run 7 · links at ws://a, ws://b · door at http://c",
        ),
        ({**ENGINE, "phase": "loading 12 s, /health refused"}, "e0 JOIN: loading 12 s, /health refused"),
        ({**ENGINE, "state": "SERVING", "models": ["m", "n"]}, "e0 serves m, n"),
        ({**ENGINE, "state": "SERVING", "draining": True}, "e0 drains"),
        ({**ENGINE, "state": "LEFT"}, "e0 LEFT"),
        ({"event": "draining", "in_flight": 3, "within_s": 30.0}, "draining 3 requests, 30 s; again = now"),
        (
            {"event": "left", "lived_s": 9_000.0, "served": 1_200, "cut": 0},
            "left after 2 h 30 min: 1,200 requests served, none cut off",
        ),
        (
            {"event": "left", "lived_s": 300, "served": 1, "cut": 2},
            "left after 5 min: 1 request served, 2 requests cut off",
        ),
        ({"event": "act", "verb": "drain", "target": "n", "reason": "driver"}, "told to drain: driver"),
        ({"event": "act", "verb": "evict", "target": "n", "reason": ""}, "told to evict n"),
        (
            {"event": "outcome", "verb": "drain", "state": "done", "detail": "nothing was under way"},
            "drain done: nothing was under way",
        ),
        ({"event": "trouble", "text": "the disk is full", "hint": "free some"}, "trouble: the disk is full; free some"),
        ({"event": "trouble", "code": "job_ends", "text": "the job ends"}, "trouble: the job ends"),
        (
            {"event": "evicted", "text": "evicted by ada: it lies"},
            "this node was evicted by ada: it lies; nobody sends it anything, and it may not come back",
        ),
        ({"event": "readmitted", "text": ""}, "this node may come back: it dials the hubs again"),
    ],
)
def test_each_event_is_one_line(event, line):
    assert line_of(event) == line


def test_an_event_that_is_not_worth_a_line_has_none():
    assert line_of({"event": "something of a later release"}) is None
    assert line_of({}) is None


@pytest.mark.parametrize("event", ["ready", "engine", "draining", "left", "act", "outcome", "trouble", "evicted"])
def test_an_event_without_its_fields_breaks_nothing(event):
    assert line_of({"event": event})


def test_what_an_engine_says_cannot_drive_the_terminal():
    line = line_of({**ENGINE, "phase": "\x1b[2J\n" + "x" * 1_000})
    assert line.isprintable()
    assert len(line) <= 400
