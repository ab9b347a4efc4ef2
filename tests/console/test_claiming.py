"""Making a key of a claim."""

import pytest

from accounting.claims import mint_claim
from accounting.keys import digest, looks_valid, mint
from console.claiming import TRIES, claimed
from registry.errors import TelaError
from tests.console.door import open_door

CLAIM, ENTROPY = mint_claim(b"c" * 32), b"e" * 32
PATH = "POST", "/v1/keys/claim"


@pytest.fixture
def door():
    with open_door() as door:
        yield door


def refused(*args, insecure=False):
    with pytest.raises(TelaError) as caught:
        claimed(*args, insecure=insecure)
    return caught.value


def test_only_the_digest_of_the_new_secret_is_sent(door):
    door.answers[PATH] = 200, {"id": "k_1", "label": "laptop", "models": ["m"]}
    answer, kept = claimed(CLAIM, f"{door.url}/v1", ENTROPY, insecure=False)
    assert (kept.url, kept.id, kept.label) == (door.url, "k_1", "laptop")
    assert looks_valid(kept.secret)
    assert answer["models"] == ["m"]
    (_, _, headers, body) = door.asked[0]
    assert body == {"claim": CLAIM, "digest": digest(mint(ENTROPY)).hex()}
    assert "Authorization" not in headers


def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_secret(door):
    door.answers[PATH] = [None, (200, {"id": "k_1"})]
    assert claimed(CLAIM, door.url, ENTROPY, insecure=False)[1].id == "k_1"
    assert door.asked[0][3] == door.asked[1][3]


def test_a_door_that_never_answers_is_not_asked_for_ever(door):
    door.answers[PATH] = None
    assert refused(CLAIM, door.url, ENTROPY).code == "no_answer"
    assert len(door.asked) == TRIES


def test_a_refusal_is_not_asked_about_again(door):
    door.answers[PATH] = 403, {"error": {"message": "this claim was used", "code": "claimed"}}
    assert refused(CLAIM, door.url, ENTROPY).message == "this claim was used"
    assert len(door.asked) == 1


def test_what_is_no_claim_is_sent_nowhere(door):
    assert refused(mint(ENTROPY), door.url, ENTROPY).code == "usage"
    assert not door.asked


def test_a_claim_does_not_travel_in_the_clear_beyond_this_host():
    assert refused(CLAIM, "http://llm.example.org", ENTROPY).code == "insecure"


def test_what_the_door_calls_the_key_cannot_drive_a_terminal(door):
    door.answers[PATH] = 200, {"id": "k\x1b[2J", "label": "a\nb"}
    kept = claimed(CLAIM, door.url, ENTROPY, insecure=False)[1]
    assert kept.id.isprintable()
    assert kept.label.isprintable()
