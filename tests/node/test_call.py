"""A call: how it ended is said once, as the client saw it."""

import pytest

from accounting.keys import KeyEntry
from node.ingress.call import FAMILIES, Call
from node.ingress.splice import read_request

KEY = KeyEntry(id="k_1", digest=b"", label="", expires_at=None, models=None)


def call(path="/v1/chat/completions", **fields):
    body = b'{"model":"m"}'
    return Call(
        rid="r",
        shown_id="s",
        key=KEY,
        path=path,
        request=read_request(body),
        body=body,
        headers=[],
        started=100.0,
        **fields,
    )


def ended(one):
    row = one.row()
    return row.status, row.outcome, row.ts_end


def test_what_is_said_first_of_an_end_counts():
    one = call(first=101.0)
    one.end(200, "truncated", 105.0)
    one.leave()
    one.end(200, "client_disconnect", 165.0)
    assert ended(one) == (200, "truncated", 105.0)


def test_a_client_that_left_before_anything_came_closed_the_request():
    one = call()
    one.leave()
    one.end(502, "upstream_error", 103.0)
    assert ended(one) == (499, "client_disconnect", 103.0)


def test_a_client_that_left_in_the_middle_was_answered():
    one = call(first=101.0)
    one.leave()
    one.end(200, "truncated", 103.0)
    assert ended(one) == (200, "client_disconnect", 103.0)


def test_a_clock_that_goes_back_makes_no_row_that_ends_before_it_began():
    one = call()
    one.end(200, "ok", 40.0)
    assert ended(one) == (200, "ok", 100.0)


@pytest.mark.parametrize("path", sorted(FAMILIES))
def test_a_row_says_what_was_called(path):
    one = call(path)
    one.end(200, "ok", 101.0)
    assert one.row().family == FAMILIES[path]
