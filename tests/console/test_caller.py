"""Calls to a door, and whose fault it is when one fails."""

import json

import pytest

from console.caller import Caller
from registry.errors import TelaError
from tests.console.door import open_door


@pytest.fixture
def door():
    with open_door() as door:
        yield door


def refused(what, *args, **more):
    with pytest.raises(TelaError) as caught:
        what(*args, **more)
    return caught.value


def events(*parts):
    return b"".join(
        b"data: " + (part if isinstance(part, bytes) else json.dumps(part).encode()) + b"\n\n" for part in parts
    )


def test_a_question_carries_the_key_and_is_answered_with_an_object(door):
    door.answers["GET", "/v1/models"] = 200, {"data": []}
    assert Caller(f"{door.url}/v1/", "s3cret").get("/v1/models") == {"data": []}
    assert door.asked[0][2]["Authorization"] == "Bearer s3cret"


def test_a_door_may_live_below_a_path(door):
    door.answers["POST", "/llm/v1/keys/claim"] = 200, {"id": "k"}
    assert Caller(f"{door.url}/llm").post("/v1/keys/claim", {"a": 1}) == {"id": "k"}
    assert door.asked[0][3] == {"a": 1}


def test_what_the_door_says_is_what_is_shown(door):
    door.answers["GET", "/x"] = (
        404,
        {"error": {"message": "no such \x1b[2Jmodel", "code": "unknown_model", "hint": "ask"}},
    )
    error = refused(Caller(door.url).get, "/x")
    assert (error.code, error.hint) == ("unknown_model", "ask")
    assert error.message.startswith("no such")
    assert error.message.isprintable()


def test_a_refused_key_says_what_may_be_wrong_with_it(door):
    door.answers["GET", "/x"] = 401, {"error": {"message": "No valid API key was presented."}}
    assert "revoked or expired" in refused(Caller(door.url, "k").get, "/x").hint


@pytest.mark.parametrize("said", [b"<html>", b"[]", b"[" * 100_000, b""])
def test_an_answer_of_something_else_is_said_to_be_that(door, said):
    door.answers["GET", "/x"] = 200, said
    assert refused(Caller(door.url).get, "/x").code == "bad_answer"
    door.answers["GET", "/x"] = 502, said
    assert refused(Caller(door.url).get, "/x").message == "the door answered 502"


def test_nobody_there_is_said_with_the_address():
    with open_door() as door:
        url = door.url
    error = refused(Caller(url).get, "/x")
    assert error.code == "no_answer"
    assert url in error.message


def test_a_door_that_hangs_up_does_not_answer(door):
    door.answers["GET", "/x"] = None
    assert refused(Caller(door.url).get, "/x").code == "no_answer"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "llm.example.org",
        "ftp://x",
        "http://",
        "http://h:port",
        "http://[::1",
        "http://h/?q",
        "http://a b",
        "http://\u00fc",
    ],
)
def test_what_is_no_url_of_a_door_is_used_wrongly(url):
    assert refused(Caller, url).code == "usage"


def test_a_secret_does_not_travel_in_the_clear_beyond_this_host():
    assert refused(Caller, "http://llm.example.org", "k").code == "insecure"
    assert Caller("http://llm.example.org", "k", insecure=True).secret == "k"
    assert Caller("https://llm.example.org", "k").url == "https://llm.example.org"
    assert Caller("http://llm.example.org").url == "http://llm.example.org"


def test_events_come_until_the_end(door):
    door.answers["POST", "/x"] = 200, b": a comment\n\n" + events({"n": 1}, {"n": 2}, b"[DONE]", {"n": 3})
    assert [event["n"] for event in Caller(door.url).events("/x", {})] == [1, 2]


def test_a_stream_without_its_end_broke_off(door):
    door.answers["POST", "/x"] = 200, events({"n": 1})
    assert refused(list, Caller(door.url).events("/x", {})).code == "broken_off"


def test_an_error_inside_a_stream_is_an_error(door):
    door.answers["POST", "/x"] = 200, events({"n": 1}, {"error": {"message": "the engine died", "code": "upstream"}})
    assert refused(list, Caller(door.url).events("/x", {})).message == "the engine died"
