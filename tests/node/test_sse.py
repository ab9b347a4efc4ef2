import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from node.ingress.sse import MAX_EVENT_B, EventSplitter, Fragment, data_of

STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b"data:", b":", b"\n\n", b"\r\n\r\n", b"data: {}\n\n"]),
    max_size=20,
).map(b"".join)


def split(chunks):
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.tail()


def chunked(stream, cuts):
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(bounds)]


@given(STREAMS, st.lists(st.integers(0, 500), max_size=8))
@example(b"data: x\r\n\r\n", [9])
@example(b"data: x\r\r\ndata: y\n\n", [9])
def test_events_do_not_depend_on_the_chunks(stream, cuts):
    events, tail = split(chunked(stream, cuts))
    assert b"".join(events) + tail == stream
    assert (events, tail) == split([stream])
    assert (events, tail) == split([stream[i : i + 1] for i in range(len(stream))])


@given(STREAMS)
def test_an_event_ends_at_its_first_empty_line(stream):
    events, tail = split([stream])
    lines = stream.splitlines(keepends=True)
    if lines and lines[-1].endswith(b"\r"):
        lines.pop()  # may be half a CRLF, so nothing is known of it
    ends = [i for i, line in enumerate(lines) if i and not line.strip(b"\r\n")]
    # Of a row of empty lines each second one ends an event that is an empty line itself.
    wanted, begun = [], -1
    for i in ends:
        if i - begun >= 2:
            wanted.append(b"".join(lines[begun + 1 : i + 1]))
            begun = i
    assert events == wanted
    assert tail == stream[len(b"".join(wanted)) :]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\r\r\n", b"\n\r"])
def test_every_pair_of_line_ends_ends_an_event(end):
    events, tail = split([b"data: a" + end + b"data: b" + end + b"da"])
    assert events == [b"data: a" + end, b"data: b" + end]
    assert tail == b"da"


def test_a_last_cr_waits_for_the_lf_that_may_follow():
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r\n\r") == []
    assert splitter.feed(b"\ndata: b\r\r") == [b"data: a\r\n\r\n"]
    assert splitter.tail() == b"data: b\r\r"


def test_one_byte_and_no_byte_are_no_event():
    splitter = EventSplitter()
    assert splitter.feed(b"") == []
    assert splitter.feed(b"d") == []
    assert splitter.feed(b"") == []
    assert splitter.tail() == b"d"
    assert splitter.tail() == b""


@settings(max_examples=20, deadline=None)
@given(st.integers(1000, 1_200_000), st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_an_event_too_long_to_hold_is_handed_out_in_fragments(step, end):
    long = b"data: " + b"x" * (MAX_EVENT_B + 7) + end
    stream = b"data: a\n\n" + long + b"data: b\n\n"
    events, tail = split([stream[i : i + step] for i in range(0, len(stream), step)])
    assert (events[0], events[-1], tail) == (b"data: a\n\n", b"data: b\n\n", b"")
    assert b"".join(events[1:-1]) == long
    assert all(type(event) is Fragment for event in events[1:-1])
    assert type(events[-1]) is bytes


def test_an_event_of_just_the_longest_length_is_whole_however_it_comes():
    event = b"data: " + b"x" * (MAX_EVENT_B - 8) + b"\n\n"
    for chunks in ([event], [event[:-1], event[-1:]], [event[:9], event[9:]]):
        events, _ = split(chunks)
        assert events == [event]
        assert type(events[0]) is bytes
    longer, _ = split([b"x" + event])
    assert type(longer[0]) is Fragment


def test_no_more_is_held_than_the_longest_event():
    splitter = EventSplitter()
    given_out = sum(len(piece) for _ in range(64) for piece in splitter.feed(b"x" * 65_536))
    assert splitter.is_mid_event
    assert given_out >= 64 * 65_536 - MAX_EVENT_B
    rest = splitter.tail()
    assert type(rest) is Fragment
    assert given_out + len(rest) == 64 * 65_536


def test_it_is_between_events_until_part_of_one_was_handed_out():
    splitter = EventSplitter()
    splitter.feed(b"data: a\n\ndata:")
    assert not splitter.is_mid_event
    splitter.feed(b"x" * MAX_EVENT_B)
    assert splitter.is_mid_event
    splitter.feed(b"\n\n")
    assert not splitter.is_mid_event


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\r\n\r\n", b"x"),
        (b"data:  x\r\r", b" x"),
        (b"data: a\rdata: b\n\n", b"a\nb"),
        (b"event: e\ndata: a\ndata\ndata:b\nid: 1\n\n", b"a\n\nb"),
        (b"data:\n\n", b""),
        (b"\ndata: x\n\n", b"x"),
        (b": data: x\n\n", None),
        (b"database: x\n\n", None),
        (b" data: x\n\n", None),
        (b"\n\n", None),
        (b"", None),
        (b"data: half", b"half"),
    ],
)
def test_the_data_of_an_event_is_what_its_data_lines_say(event, data):
    assert data_of(event) == data


@given(st.text(), st.sampled_from(["\n", "\r", "\r\n"]))
def test_data_comes_back_as_it_was_written(text, end):
    data = json.dumps(text).encode()
    event = b"data: " + data + end.encode() * 2
    assert data_of(event) == data
