import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage import Tokens
from node.ingress.sse import MAX_EVENT_B
from node.ingress.tap import StreamTap, error_event, tokens_of_body

DONE = b"data: [DONE]\n\n"
COUNTS = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}
USAGE_EVENT = b"data: " + json.dumps({"choices": [], "usage": COUNTS}).encode() + b"\n\n"

SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : "), (",\t", ":  ")])
ENDS = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])
CONTENT = (
    st.sampled_from(['"usage"', '"usage":null', ',"usage":null}', 'data: {"usage":null}', "[DONE]", "é"]) | st.text()
)


def passed(stream, *, cut_usage, chunks=None):
    tap = StreamTap(cut_usage=cut_usage)
    out = [tap.feed(chunk) for chunk in chunks or [stream]]
    return b"".join([*out, tap.finish()]), tap


@st.composite
def chunk_events(draw):
    """An event with some of the answer: its bytes without usage, and with `usage:null` at any place."""
    choice = {"index": draw(st.integers(0, 9)), "delta": {"content": draw(CONTENT)}, "usage": None}
    members = {"id": draw(CONTENT), "choices": [choice]} | draw(
        st.dictionaries(
            st.sampled_from(["created", "x_usage", "nested", ""]), st.none() | CONTENT | st.just({"usage": None})
        )
    )
    ordered = draw(st.permutations(list(members.items())))
    at = draw(st.integers(0, len(ordered)))
    spelling = {"separators": draw(SEPARATORS), "ensure_ascii": draw(st.booleans())}
    prefix, end = draw(st.sampled_from([b"data: ", b"data:", b"id: 7\ndata: "])), draw(ENDS)

    def event(pairs):
        return prefix + json.dumps(dict(pairs), **spelling).encode() + end

    return event(ordered), event([*ordered[:at], ("usage", None), *ordered[at:]])


@st.composite
def streams(draw):
    """A stream as the client would have it without usage, and as the engine sends it with."""
    parts = [(other, other) for other in (b": ping\n\n", b"event: e\n\n", b"data: no json\n\n")]
    drawn = draw(st.lists(chunk_events() | st.sampled_from(parts), max_size=6))
    end = draw(st.sampled_from([DONE, b"", b'data: {"choices":[{"delta":']))
    without = b"".join(event for event, _ in drawn) + end
    return without, b"".join(event for _, event in drawn) + USAGE_EVENT + end


def chunked(stream, cuts):
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(bounds)]


@given(streams(), st.lists(st.integers(0, 2000), max_size=8))
def test_a_client_that_did_not_ask_gets_the_stream_made_without_usage(case, cuts):
    without, with_usage = case
    out, tap = passed(with_usage, cut_usage=True, chunks=chunked(with_usage, cuts))
    assert out == without
    assert tap.tokens == Tokens(prompt=9, cached=8, completion=4)
    assert tap.is_complete == without.endswith(DONE)


@given(streams(), st.lists(st.integers(0, 2000), max_size=8))
def test_a_client_that_asked_gets_every_byte(case, cuts):
    stream = case[1]
    out, tap = passed(stream, cut_usage=False, chunks=chunked(stream, cuts))
    assert out == stream
    assert tap.tokens.prompt == 9


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"data:", b'"usage"', b":null", b"\n", b"\r", b"{", b"}"])).map(b"".join)
)
def test_what_is_no_answer_passes_untouched(stream):
    assert passed(stream, cut_usage=True)[0] == stream


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'{"a":1,"usage":null}', b'{"a":1}'),
        (b'{"a":1,"usage":null,"b":2}', b'{"a":1,"b":2}'),
        (b'{"usage":null,"b":2}', b'{"b":2}'),
        (b'{ "usage" : null , "b" : 2 }', b'{ "b" : 2 }'),
        (b'{ "a" : 1 , "usage" : null , "b" : 2 }', b'{ "a" : 1 , "b" : 2 }'),
        (b'{ "a" : 1, "usage" : null }', b'{ "a" : 1 }'),
        (b'{"usage":null}', b"{}"),
        (b'{"a":{"b":1,"usage":null},"usage":null}', b'{"a":{"b":1,"usage":null}}'),
        (b'{"a":{"b":1,"usage":null}}', b'{"a":{"b":1,"usage":null}}'),
        (b'{"a":[{"b":1,"usage":null}]}', b'{"a":[{"b":1,"usage":null}]}'),
        (b'{"a":"\\",\\"usage\\":null}","usage":null}', b'{"a":"\\",\\"usage\\":null}"}'),
        (b'{"a":"usage","usage":null,"b":"usage"}', b'{"a":"usage","b":"usage"}'),
        (b'{"choices":[{}],"usage":{"prompt_tokens":1}}', b'{"choices":[{}],"usage":{"prompt_tokens":1}}'),
        (b'{"choices":null,"usage":{"prompt_tokens":1}}', b'{"choices":null,"usage":{"prompt_tokens":1}}'),
        (b'{"usage":{"prompt_tokens":1}}', b'{"usage":{"prompt_tokens":1}}'),
        (b'{"choices":[],"usage":7}', b'{"choices":[],"usage":7}'),
        (b'{"choices":[],"usage":null}', b'{"choices":[]}'),
        (b'{"a":1,"usage":null', b'{"a":1,"usage":null'),
        (b'{"us\\u0061ge":null,"a":"usage"}', b'{"us\\u0061ge":null,"a":"usage"}'),
        (b'{"a":"usage","us\\u0061ge":null}', b'{"a":"usage","us\\u0061ge":null}'),
        (b'{"usage":null,"a":1,"usage":null,"b":2}', b'{"usage":null,"a":1,"usage":null,"b":2}'),
        (b'["usage",null]', b'["usage",null]'),
        (b'{"usage":' + b"[" * 100_000, b'{"usage":' + b"[" * 100_000),
    ],
)
def test_a_null_usage_is_cut_with_one_comma_and_its_space(sent, kept):
    assert passed(b"data: %s\n\n" % sent, cut_usage=True)[0] == b"data: %s\n\n" % kept


def test_an_event_whose_json_is_spread_over_lines_is_not_cut_but_its_usage_is_dropped():
    null = b'data: {"a":1,\ndata: "usage":null}\n\n'
    counts = b'data: {"choices":[],\ndata: "usage":{"prompt_tokens":1}}\n\n'
    out, tap = passed(null + counts, cut_usage=True)
    assert out == null
    assert tap.tokens.prompt == 1


def test_data_that_is_twice_in_its_event_is_not_cut():
    event = b'id: {"a":1,"usage":null}\ndata: {"a":1,"usage":null}\n\n'
    assert passed(event, cut_usage=True)[0] == event


def test_half_an_event_is_never_forwarded():
    tap = StreamTap(cut_usage=False)
    assert tap.feed(b'data: {"a":1}\n\ndata: {"b"') == b'data: {"a":1}\n\n'
    assert tap.feed(b":2}\n") == b""
    assert not tap.is_mid_event
    assert tap.feed(b"\n") == b'data: {"b":2}\n\n'


def test_an_event_too_long_to_hold_is_forwarded_unread_and_the_tap_says_so():
    tap = StreamTap(cut_usage=True)
    head = b'data: {"usage":{"prompt_tokens":1},"choices":[],"a":"' + b"x" * MAX_EVENT_B
    out = tap.feed(head)
    assert tap.is_mid_event
    assert tap.has_content
    out += tap.feed(b'"}\n\ndata: [DONE]\n\n')
    assert out == head + b'"}\n\n' + DONE
    assert not tap.is_mid_event
    assert (tap.tokens, tap.is_complete) == (Tokens(), True)


@pytest.mark.parametrize(
    "event", [DONE, b"data:[DONE]\r\n\r\n", b"data: [DONE]\r\r", b"event: e\ndata: [DONE]\n\n", b"data: [DONE]"]
)
def test_an_answer_is_complete_when_the_engine_says_so(event):
    assert passed(event, cut_usage=True)[1].is_complete


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b": [DONE]\n\n",
        b"id: [DONE]\n\n",
        b'data: {"a":"[DONE]"}\n\n',
        b"data: [DONE] not\n\n",
        b"data: [DON",
        b"data: a\ndata: [DONE]\n\n",
    ],
)
def test_an_answer_is_not_complete_because_done_is_written_somewhere(event):
    assert not passed(event, cut_usage=True)[1].is_complete


def test_a_done_before_its_event_ended_counts_only_at_a_clean_end():
    tap = StreamTap(cut_usage=False)
    assert tap.feed(b"data: [DONE]\n") == b""
    assert not tap.is_complete
    assert tap.finish() == b"data: [DONE]\n"
    assert tap.is_complete
    assert tap.finish() == b""


def test_events_with_data_are_counted_the_dropped_and_the_last_among_them():
    _, tap = passed(b': ping\n\ndata: {"a":1}\n\n' + USAGE_EVENT + DONE, cut_usage=True)
    assert tap.events == 3


@pytest.mark.parametrize("nothing", [b"", b": ping\n\n", DONE, USAGE_EVENT])
def test_there_is_no_content_in_what_carries_none_of_the_answer(nothing):
    assert not passed(nothing, cut_usage=True)[1].has_content
    assert passed(nothing + b'data: {"a":1}\n\n', cut_usage=True)[1].has_content


def test_the_last_usage_counts():
    events = [b'data: {"choices":[{}],"usage":{"completion_tokens":%d}}\n\n' % count for count in (1, 2)]
    assert passed(b"".join(events), cut_usage=True)[1].tokens == Tokens(completion=2)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (json.dumps({"choices": [], "usage": COUNTS}).encode(), Tokens(prompt=9, cached=8, completion=4)),
        (b'{"usage":{"prompt_tokens":3,"total_tokens":3}}', Tokens(prompt=3)),
        (b'{"usage":{"prompt_tokens":0,"completion_tokens":0}}', Tokens(prompt=0, completion=0)),
        (b'{"usage":null}', Tokens()),
        (b'{"usage":"7"}', Tokens()),
        (b'{"a":{"usage":{"prompt_tokens":1}}}', Tokens()),
        (b'{"usage":{"prompt_tokens":' + b"9" * 5000 + b"}}", Tokens()),
        (b'{"a":"\xff","usage":{"prompt_tokens":1}}', Tokens(prompt=1)),
        (b'{"usage":' + b"[" * 100_000, None),
        (b"[]", None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_the_usage_of_a_body_is_read_and_garbage_is_told_from_silence(body, tokens):
    assert tokens_of_body(body) == tokens


def test_an_error_event_is_one_openai_error_that_names_the_request():
    event = error_event("the engine died", "upstream_disconnect", "r-1")
    assert event == (
        b'data: {"error":{"message":"the engine died (request r-1)","type":"server_error",'
        b'"param":null,"code":"upstream_disconnect"}}\n\n'
    )


@given(st.text(), st.text(), st.text())
def test_an_error_event_is_one_line_whatever_is_in_it(message, code, request_id):
    event = error_event(message + "\n\ndata: [DONE]\r\r\ud800", code, request_id)
    assert len(event.splitlines()) == 2
    assert json.loads(event.removeprefix(b"data: "))["error"]["type"] == "server_error"
