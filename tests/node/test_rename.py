"""The model's name in a request: only its bytes change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.engine.rename import renamed
from node.ingress.splice import BodyRefused

NAMES = {"nice": "org/Model-7B", "other": "m"}


def test_an_alias_becomes_the_engine_s_name_and_every_other_byte_stays():
    body = b'{ "messages" : [{"role":"user","content":"model: \\"nice\\""}],\n "model" :  "nice" , "n":1.0 }'
    expected = body.replace(b'"model" :  "nice"', b'"model" :  "org/Model-7B"')
    assert renamed(body, NAMES) == expected


def test_an_escaped_name_is_the_same_name():
    assert renamed(b'{"model":"n\\u0069ce"}', NAMES) == b'{"model":"org/Model-7B"}'


@pytest.mark.parametrize("body", [b'{"model":"another"}', b"{}", b'{"model":7}', b'{"model":null}', b'{"a":"nice"}'])
def test_what_names_no_alias_stays(body):
    assert renamed(body, NAMES) == body


@pytest.mark.parametrize("body", [b"", b"[]", b'{"model":"nice"', b'{"model":"nice","model":"x"}'])
def test_what_is_no_body_is_refused(body):
    with pytest.raises(BodyRefused):
        renamed(body, NAMES)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.lists(st.booleans()), max_size=5))
def test_the_rest_of_any_body_means_what_it_meant(more):
    body = json.dumps({**more, "model": "other"}).encode()
    assert json.loads(renamed(body, NAMES)) == {**more, "model": "m"}
