import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.ingress.splice import (
    DENIED,
    DENIED_HEADERS,
    LONG_B,
    MAX_KEY_CHARS,
    MAX_KEYS,
    MAX_PARAMETERS,
    BodyRefused,
    asking_usage,
    check_headers,
    read_request,
    value_spans,
    with_model,
)

SPACE = st.text(" \t\r\n", max_size=3)
KEYS = st.one_of(
    st.sampled_from(["a", "stop", "stream", "messages", "", 'q"uote', "back\\slash", "é", "\U0001f600", "a:b,c}"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def escaped(text):
    """A JSON string that spells every character out."""
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'


@st.composite
def objects(draw, members):
    """A JSON object of these members, in any spelling and spacing."""
    parts = []
    for key, value in members:
        spell = draw(st.sampled_from([escaped, json.dumps, lambda text: json.dumps(text, ensure_ascii=False)]))
        text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        parts.append(draw(SPACE) + spell(key) + draw(SPACE) + ":" + draw(SPACE) + text + draw(SPACE))
    return (draw(SPACE) + "{" + ",".join(parts) + (draw(SPACE) if not parts else "") + "}" + draw(SPACE)).encode()


@st.composite
def bodies(draw, /, **extra):
    """A valid body that streams, and the members it was made of."""
    members = draw(st.dictionaries(KEYS, VALUES, max_size=6))
    members |= {"model": "org/m-1", "stream": True} | {name: draw(value) for name, value in extra.items()}
    members = {key: value for key, value in members.items() if key not in DENIED and value is not ...}
    ordered = draw(st.permutations(list(members.items())))
    return draw(objects(ordered)), dict(ordered)


OPTIONS = st.one_of(
    st.just(...),
    st.none(),
    st.fixed_dictionaries(
        {}, optional={"include_usage": st.none() | st.booleans(), "continuous_usage_stats": st.booleans(), "x": VALUES}
    ),
)


def refusal(body):
    with pytest.raises(BodyRefused) as caught:
        read_request(body)
    return caught.value.code, caught.value.param


@given(bodies())
def test_spans_are_the_values_whatever_the_spelling(case):
    body, members = case
    spans = value_spans(body)
    assert {key: json.loads(body[a:b]) for key, (a, b) in spans.items()} == members
    assert all(body[a:b].strip() == body[a:b] for a, b in spans.values())


@given(st.data())
def test_a_key_given_twice_is_always_found_and_named(data):
    members = data.draw(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5))
    key, value = data.draw(st.sampled_from(members))
    members.append((key, data.draw(st.just(value) | VALUES)))
    body = data.draw(objects(data.draw(st.permutations(members))))
    with pytest.raises(BodyRefused) as caught:
        value_spans(body)
    assert caught.value.code == "duplicate_key"
    keys = [key for key, _ in members]
    if caught.value.param in keys:  # else it was not fit to be shown
        assert keys.count(caught.value.param) > 1


@pytest.mark.parametrize(
    "members",
    [
        b'"model":"m","model":"m"',
        b'"model":"m","model":"n"',
        b'"n":1,"model":"m","n":1',
        b'"n":"m","n":"m","model":"m"',
        b'"n":"m","model":"m","\\u006e":"m"',
        b'"model":"mm","x":1,"model":"m"',
        b'"model":"m","mod\\u0065l":"n"',
        b'"n":12,"model":"m","n":1',
        b'"n":12,"n":1,"model":"m"',
        b'"model":"m","n":1,"n":12',
        b'"model":"m","n":12,"n":1',
        b'"model":"m","n":[1,2],"n":[1]',
        # By the length of its last value, the first n would end just before another model.
        b'"n":0,"model":"m","n":{"y":0,"model":"z"     }',
    ],
)
def test_duplicates_that_hide_behind_a_shared_beginning_are_named(members):
    code, param = refusal(b"{" + members + b"}")
    assert code == "duplicate_key"
    assert param == ("n" if b'"n":' in members else "model")


@given(st.data())
def test_what_is_accepted_is_strict_json_to_everyone_else(data):
    body = bytearray(data.draw(bodies())[0])
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b"{"])
        )
    try:
        request = read_request(bytes(body))
    except BodyRefused:
        return

    def fail(text):
        raise AssertionError(text)

    pairs = json.loads(bytes(body).decode("utf-8"), object_pairs_hook=lambda pairs: pairs, parse_constant=fail)
    assert [key for key, _ in pairs] == list(request.spans)
    assert dict(pairs)["model"] == request.model


@given(st.binary(max_size=64))
@example(b"")
@example(b"{")
@example(b'{"')
def test_no_bytes_raise_anything_else(body):
    with pytest.raises(BodyRefused):
        read_request(body)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b" ", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b"null", "invalid_json", None),
        (b'"model"', "invalid_json", None),
        (b'{"model":"m"', "invalid_json", None),
        (b'{"model":"m"}x', "invalid_json", None),
        (b'{"model":"m"}\0', "invalid_json", None),
        (b'{"model":"m"}{"model":"m"}', "invalid_json", None),
        (b'\xef\xbb\xbf{"model":"m"}', "invalid_json", None),
        ('{"model":"m"}'.encode("utf-16"), "not_utf8", None),
        (b'{"model":"m",}', "invalid_json", None),
        (b"{'model':'m'}", "invalid_json", None),
        (b'{"model":"m","a":NaN}', "invalid_json", None),
        (b'{"model":"m","a":[-Infinity]}', "invalid_json", None),
        (b'{"model":"m","a":01}', "invalid_json", None),
        (b'{"model":"m","a":"\n"}', "invalid_json", None),
        (b'{"model":"m","a":[{"b\x01":1}]}', "invalid_json", None),
        (b'{"model":"m","a":"\\ud800"}', "invalid_json", None),
        (b'{"model":"m","a":"\\ud800 and more text"}', "invalid_json", None),
        (b'{"model":"m","\\udc00":1}', "invalid_json", None),
        (b'{"model":"m","a":"\xff"}', "not_utf8", None),
        (b'{"model":"m","\xff":1}', "not_utf8", None),
        (b'{"model":"m","a":"\xed\xa0\x80"}', "not_utf8", None),
        (b'{"model":"m","a":"\xc0\xaf"}', "not_utf8", None),
        (b'{"model":"m","a":"\xe2\x82', "not_utf8", None),
        (b'{"model":"m","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json", None),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "invalid_json", None),
        (b"{}", "missing_model", "model"),
        (b'{"Model":"m"}', "missing_model", "model"),
        (b'{"model":null}', "missing_model", "model"),
        (b'{"model":""}', "missing_model", "model"),
        (b'{"model":1}', "invalid_type", "model"),
        (b'{"model":["m"]}', "invalid_type", "model"),
        (b'{"model":' + b"9" * 5000 + b"}", "invalid_type", "model"),
        (b'{"model":" m"}', "invalid_model", "model"),
        (b'{"model":"m\\n"}', "invalid_model", "model"),
        (b'{"model":"m\\u0000"}', "invalid_model", "model"),
        ('{"model":"mé"}'.encode(), "invalid_model", "model"),
        (b'{"model":"' + b"m" * 129 + b'"}', "invalid_model", "model"),
        (b'{"model":"m","stream":1}', "invalid_type", "stream"),
        (b'{"model":"m","stream":"true"}', "invalid_type", "stream"),
        (b'{"model":"m","stream":{}}', "invalid_type", "stream"),
        (b'{"model":"m","stream_options":true}', "invalid_type", "stream_options"),
        (b'{"model":"m","stream_options":[]}', "invalid_type", "stream_options"),
        (b'{"model":"m","stream_options":{"include_usage":1}}', "invalid_type", "stream_options.include_usage"),
        (
            b'{"model":"m","stream_options":{"include_usage":false,"include_usage":true}}',
            "duplicate_key",
            "stream_options.include_usage",
        ),
        (b'{"model":"m","a":1,"a":1}', "duplicate_key", "a"),
        (b'{"model":"m","cache_s\\u0061lt":"x"}', "unsupported_parameter", "cache_salt"),
    ],
)
def test_a_bad_body_is_refused_with_the_parameter_at_fault(body, code, param):
    assert refusal(body) == (code, param)


@pytest.mark.parametrize("name", sorted(DENIED))
def test_a_field_that_reaches_into_the_engine_is_refused_by_name_unless_null(name):
    assert refusal(b'{"model":"m","%s":0}' % name.encode()) == ("unsupported_parameter", name)
    assert read_request(b'{"model":"m","%s":null}' % name.encode()).model == "m"
    assert read_request(b'{"model":"m","x":{"%s":1}}' % name.encode()).model == "m"


@pytest.mark.parametrize("piece_ends_at", [-2, -1, 0, 1])
def test_a_character_may_lie_across_the_pieces_utf8_is_checked_in(piece_ends_at):
    head = b'{"model":"m","a":"'
    body = head + b"x" * ((1 << 20) - len(head) + piece_ends_at) + "\U0001f600".encode()
    assert read_request(body + b'"}').model == "m"
    assert refusal(body[:-1] + b'"}') == ("not_utf8", None)


def test_numbers_no_machine_holds_pass_untouched():
    body = b'{"model":"m","seed":' + b"9" * 5000 + b',"t":1e999}'
    request = read_request(body)
    assert request.body == body
    assert request.spans["seed"] == (20, 5020)


def test_a_model_written_with_escapes_is_read():
    assert read_request(b'{"model":"org\\/m\\u002d1"}').model == "org/m-1"


def test_stream_and_usage_default_to_false_and_null_means_the_default():
    for body in (b'{"model":"m"}', b'{"model":"m","stream":null,"stream_options":null}'):
        request = read_request(body)
        assert (request.stream, request.wants_usage) == (False, False)


def test_a_prompt_is_not_in_the_repr():
    assert "secret" not in repr(read_request(b'{"model":"m","prompt":"secret","secret":1}'))


@given(bodies(), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}", fullmatch=True))
def test_another_model_changes_only_its_own_bytes(case, name):
    request = read_request(case[0])
    other = with_model(request, name)
    start, stop = request.spans["model"]
    assert other.model == name
    assert other.body[:start] == request.body[:start]
    assert other.body[start + len(name) + 2 :] == request.body[stop:]
    again = read_request(other.body)
    assert (again.model, again.spans) == (name, other.spans)


def test_another_model_moves_the_spans_behind_it():
    other = with_model(read_request(b'{"a":1,"model":"m","b":2}'), "longer")
    assert other.body == b'{"a":1,"model":"longer","b":2}'
    assert other.spans == {"a": (5, 6), "model": (15, 23), "b": (28, 29)}


@given(bodies(stream_options=OPTIONS))
def test_asking_for_usage_sets_that_option_and_nothing_else(case):
    body, members = case
    asked = asking_usage(read_request(body))
    options = (members.get("stream_options") or {}) | {"include_usage": True}
    assert json.loads(asked) == members | {"stream_options": options}
    assert read_request(asked).wants_usage


@given(bodies(stream_options=OPTIONS))
def test_what_asking_for_usage_added_can_be_taken_out_again(case):
    body = case[0]
    asked = asking_usage(read_request(body))
    same = 0
    while same < len(body) and body[same] == asked[same]:
        same += 1
    left = len(body) - same
    end = 0
    while end < left and body[-1 - end] == asked[-1 - end]:
        end += 1
    # At most a null, a false or an empty object's worth of bytes gave way.
    assert len(body) - same - end <= len("false")
    assert len(asked) - same - end <= len(',"stream_options":{"include_usage":true}')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b',"stream_options":{"include_usage":true}'),
        (b', "stream_options" : null', b', "stream_options" : {"include_usage":true}'),
        (b',"stream_options":{}', b',"stream_options":{"include_usage":true}'),
        (b',"stream_options":{ }', b',"stream_options":{"include_usage":true }'),
        (b',"stream_options":{ "a":1}', b',"stream_options":{"include_usage":true, "a":1}'),
        (b',"stream_options":{"include_usage":false}', b',"stream_options":{"include_usage":true}'),
        (b',"stream_options":{"include_usage": null }', b',"stream_options":{"include_usage": true }'),
        (b',"stream_options":{"include_usage": true }', b',"stream_options":{"include_usage": true }'),
    ],
)
def test_usage_is_asked_for_byte_by_byte(before, after):
    body = b'{"stream":true,"model":"m"%s}\n'
    assert asking_usage(read_request(body % before)) == body % after


def test_usage_is_not_asked_of_what_does_not_stream():
    body = b'{"model":"m","stream":false}'
    assert asking_usage(read_request(body)) is body


def test_too_many_parameters_are_refused_by_count():
    def body(count):
        return json.dumps({"model": "m"} | {f"k{i}": i for i in range(count - 1)}).encode()

    assert len(read_request(body(MAX_PARAMETERS)).spans) == MAX_PARAMETERS
    assert refusal(body(MAX_PARAMETERS + 1)) == ("too_many_keys", None)


def test_too_many_keys_are_refused_before_they_are_decoded():
    assert refusal(b"{" + b'"":1,' * MAX_KEYS + b'"model":"m"}') == ("too_many_keys", None)
    assert read_request(b'{"model":"m","a":"' + b"a: " * (MAX_KEYS + 1) + b'"}').model == "m"


def test_a_key_that_is_most_of_a_long_body_is_refused():
    key = b"\\n" * LONG_B
    assert refusal(b'{"model":"m","' + key + b'":1}') == ("key_too_long", None)
    assert read_request(b'{"model":"m","' + b"k" * MAX_KEY_CHARS + b'":"' + key + b'"}').model == "m"


@pytest.mark.parametrize("filler", [b"x", b'\\"', "é".encode(), b"\\u0041"])
def test_the_largest_body_costs_no_loop_over_its_length(filler):
    body = b'{"model":"m","a":"' + filler * ((64 << 20) // len(filler)) + b'"}'
    start = time.process_time()
    assert read_request(body).spans["a"] == (17, len(body) - 1)
    assert time.process_time() - start < 2  # 0.1 s here; a loop in Python takes five


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "tokenizer"])
def test_what_is_denied_is_denied_in_what_renders_the_template_too(name):
    body = json.dumps({"model": "m", "chat_template_kwargs": {"enable_thinking": False, name: "x"}}).encode()
    assert refusal(body) == ("unsupported_parameter", f"chat_template_kwargs.{name}")
    spelt = b'{"model":"m","chat_template_kwargs":{%s:"x"}}' % escaped(name).encode()
    assert refusal(spelt) == ("unsupported_parameter", f"chat_template_kwargs.{name}")


@pytest.mark.parametrize("value", [b"null", b"{}", b'{"enable_thinking":false}', b'{"chat_template":null}'])
def test_other_words_to_the_template_pass(value):
    body = b'{"model":"m","chat_template_kwargs":%s}' % value
    assert read_request(body).body == body


@pytest.mark.parametrize(
    ("value", "code"), [(b'"x"', "invalid_type"), (b"[]", "invalid_type"), (b'{"a":1,"a":2}', "duplicate_key")]
)
def test_words_to_the_template_that_are_no_plain_object_are_refused(value, code):
    assert refusal(b'{"model":"m","chat_template_kwargs":%s}' % value)[0] == code


@pytest.mark.parametrize("name", sorted(DENIED_HEADERS))
def test_a_denied_header_is_refused_by_its_name(name):
    with pytest.raises(BodyRefused) as caught:
        check_headers([(b"host", b"x"), (name, b"0")])
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", name.decode())


def test_other_headers_pass():
    check_headers([(b"host", b"x"), (b"x-session-id", b"a"), (b"x-request-id", b"b")])
