import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.tunnel import (
    MAX_HEADERS,
    HeadRefused,
    ReplyHead,
    RequestHead,
    encode_head,
    read_reply_head,
    read_request_head,
    to_client,
    to_engine,
)

GOOD = RequestHead("e0", 7, "/v1/completions", "rid", [(b"content-type", b"application/json")])


def test_heads_read_back():
    assert read_request_head(encode_head(GOOD)) == GOOD
    reply = ReplyHead(200, [(b"a", b"b")])
    assert read_reply_head(encode_head(reply)) == reply


@pytest.mark.parametrize(
    "head",
    [
        RequestHead("e0", 7, "/admin", "rid", []),
        RequestHead("e0", 7, "/v1/completions/../../x", "rid", []),
        RequestHead("e0", 7, "/v1/completions", "rid", [(b"a", b"b\r\nx: y")]),
        RequestHead("e0", 7, "/v1/completions", "rid", [(b"a\n", b"b")]),
        RequestHead("e0", 7, "/v1/completions", "rid", [(b"a", b"b")] * (MAX_HEADERS + 1)),
    ],
)
def test_a_head_that_asks_for_more_than_is_served_is_refused(head):
    with pytest.raises(HeadRefused):
        read_request_head(encode_head(head))


@pytest.mark.parametrize("status", [0, 101, 199, 600, "200"])
def test_a_reply_with_no_final_status_is_refused(status):
    with pytest.raises(HeadRefused):
        read_reply_head(msgspec.msgpack.encode([status, []]))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(raw):
    for read in (read_request_head, read_reply_head):
        try:
            read(raw)
        except HeadRefused:
            continue


def test_credentials_and_hop_by_hop_headers_never_reach_the_engine():
    headers = [(name, b"x") for name in (
        b"authorization", b"x-api-key", b"cookie", b"host", b"connection", b"te", b"content-length",
        b"transfer-encoding", b"accept-encoding", b"content-type", b"x-custom",
    )]  # fmt: skip
    assert [name for name, _ in to_engine(headers)] == [b"content-type", b"x-custom"]


def test_the_engine_cannot_set_cookies_or_speak_for_the_ingress():
    headers = [(b"Set-Cookie", b"x"), (b"X-Tela-Node", b"x"), (b"X-Request-Id", b"x"), (b"X-Other", b"x")]
    assert to_client(headers) == [(b"x-other", b"x")]


def test_too_many_headers_are_cut():
    assert len(to_engine([(b"a", b"b")] * (MAX_HEADERS + 1))) == MAX_HEADERS
    assert to_engine([(b"a", b"x" * 40_000)]) == []


def test_of_too_many_headers_the_essential_ones_reach_the_client():
    headers = [(b"X-%d" % number, b"y") for number in range(200)] + [(b"Content-Type", b"text/event-stream")]
    assert to_client(headers)[0] == (b"content-type", b"text/event-stream")


def test_the_engine_cannot_redirect_pin_or_instruct_the_client():
    names = (b"Location", b"Alt-Svc", b"Strict-Transport-Security", b"Clear-Site-Data", b"WWW-Authenticate",
             b"Access-Control-Allow-Origin", b"X-Should-Retry", b"X-Accel-Redirect", b"Retry-After")  # fmt: skip
    assert to_client([(name, b"x") for name in names]) == []
