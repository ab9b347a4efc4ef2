"""The words for the state of an API key."""

import pytest

from node.control.keyrows import key_view
from registry.accounts import KeyRow
from tests.people import FOUNDING, OPERATOR

NOW = 1_000_000.0


def row(**more):
    given = {
        "id": "k_a", "label": "", "user": "", "project": "", "models": None, "expires_at": None, "revoked": False,
        "claimed_at": None, "claim": b"c" * 32, "claim_by": NOW + 1, "digest": b"", "by": OPERATOR.key,
        "record": FOUNDING.charter,
    }  # fmt: skip
    return KeyRow(**given | more)


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "unclaimed"),
        ({"claim_by": NOW - 121}, "lapsed"),
        ({"digest": b"d" * 32, "claimed_at": 1.0}, "active"),
        ({"digest": b"d" * 32, "claim": b"", "claim_by": 0.0}, "active"),
        ({"digest": b"d" * 32, "expires_at": NOW - 1}, "expired"),
        ({"digest": b"d" * 32, "expires_at": NOW - 1, "revoked": True}, "revoked"),
    ],
)
def test_a_key_is_in_one_state(more, state):
    assert key_view(row(**more), {}, NOW).state == state


def test_a_key_names_its_operator_and_neither_digest_nor_claim():
    view = key_view(row(digest=b"d" * 32), {OPERATOR.key: "ada"}, NOW)
    assert view.by == "ada"
    assert not {"digest", "claim", "record"} & set(type(view).__struct_fields__)


def test_a_key_made_with_its_secret_waits_for_no_claim():
    assert key_view(row(claim=b"", digest=b"d" * 32), {}, NOW).claim_by is None
