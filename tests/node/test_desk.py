"""The key desk: what a claim gets, once, and what everything else gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.claims import claim_digest, mint_claim
from accounting.keys import KeyEntry, mint
from node.ingress.desk import DENIED, MAX_CLIENTS, PER_WINDOW, WINDOW_S, KeyDesk, about
from node.ingress.keybook import keybook
from node.ingress.openai import Refusal
from registry.accounts import KeyRow, key_rows
from registry.validity import standing
from tests.people import FABRIC, OPERATOR, Person, certificate, key_grant, minted, registry_of, revocation

DOOR = Person(9)  # the only ingress, so its word on claims counts
CLAIM = mint_claim(bytes(range(32)))
OTHER = mint_claim(bytes(range(1, 33)))
NOW = 1_000.0
DIGEST = "ab" * 32


class Desk:
    """A desk over a real registry; `written` is what it published."""

    def __init__(self, *records, is_issuer=True, at=NOW):
        self.registry = registry_of(*records, nodes=(DOOR,))
        self.written = []
        self.time = at
        self.desk = KeyDesk(
            book=self.book,
            is_issuer=lambda: is_issuer,
            minted=lambda key, digest: self.publish(minted(key, by=DOOR, digest=digest, at=self.time)),
            revoked=lambda key, _: self.publish(revocation(key, by=DOOR, at=self.time)),
            fabric=lambda: self.time,
            now=lambda: self.time,
        )

    def book(self):
        return keybook(key_rows(self.registry, standing(self.registry, FABRIC, self.time))[0])

    def publish(self, record):
        self.written.append(record)
        assert self.registry.apply(record)

    def claim(self, claim=CLAIM, digest=DIGEST):
        return self.desk.claim(json.dumps({"claim": claim, "digest": digest}).encode())


def offered(key="k_1", claim=CLAIM, *, by=OPERATOR, **fields):
    return key_grant(key, by=by, claim=claim_digest(claim), **{"claim_by": NOW + 10, **fields})


def refused(answer):
    assert isinstance(answer, Refusal)
    return answer.status, answer.code


def test_a_claim_becomes_a_key_with_the_claimers_digest():
    desk = Desk(offered(label="laptop"))
    row = desk.claim()
    assert isinstance(row, KeyRow)
    assert (row.id, row.label, row.digest, row.claimed_at) == ("k_1", "laptop", bytes.fromhex(DIGEST), NOW)


def test_the_same_claim_and_digest_again_are_the_same_answer_and_write_nothing():
    desk = Desk(offered())
    first = desk.claim()
    desk.time += 1_000_000  # a lost answer is no loss, however late
    assert desk.claim() == first
    assert len(desk.written) == 1


def test_an_answer_is_repeated_by_a_door_that_may_not_give_keys():
    desk = Desk(offered(), minted(by=DOOR, digest=bytes.fromhex(DIGEST), at=NOW), is_issuer=False)
    assert isinstance(desk.claim(), KeyRow)


def test_a_claim_works_once():
    desk = Desk(offered())
    desk.claim()
    answer = desk.claim(digest="cd" * 32)
    assert refused(answer) == (403, "claim_refused")
    assert len(desk.written) == 1


@pytest.mark.parametrize(
    "records",
    [
        (),
        (offered(claim=OTHER),),
        (offered(claim_by=NOW - 1),),
        (offered(expires_at=NOW),),
        (offered(), revocation()),
        (offered(), minted(by=DOOR, digest=b"x" * 32, at=NOW)),
        (offered(by=Person(7)),),
        (offered(), key_grant("k_2", digest=bytes.fromhex(DIGEST))),
    ],
    ids=["unknown", "other", "lapsed", "expired", "revoked", "used", "not an operator's", "secret in use"],
)
def test_a_claim_that_is_not_valid_reads_the_same_whatever_the_reason(records):
    desk = Desk(*records)
    answer = desk.claim()
    assert refused(answer) == (403, "claim_refused")
    assert answer.message == DENIED
    assert desk.written == []


def test_a_door_that_is_no_issuer_says_where_to_go_and_writes_nothing():
    desk = Desk(offered(), is_issuer=False)
    assert refused(desk.claim()) == (409, "not_issuer")
    assert desk.written == []


def test_a_claim_whose_word_does_not_count_is_no_success():
    desk = Desk(offered(), certificate(DOOR, roles=("worker",), seq=2))  # it believes to be an issuer, and is none
    assert refused(desk.claim()) == (403, "claim_refused")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (CLAIM[:-1] + ("0" if CLAIM[-1] != "0" else "1"), "begin with tela_claim_"),
        ("hello", "begin with tela_claim_"),
        (mint(bytes(32)), "API key"),
        ("tela_invite_" + "x" * 3000, "tela join"),
    ],
)
def test_what_is_no_claim_is_told_what_it_is(given, said):
    answer = Desk(offered()).claim(given)
    assert refused(answer) == (403, "claim_refused")
    assert said in answer.message
    assert given not in answer.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"claim":1,"digest":"' + b"a" * 64 + b'"}',
        b'{"claim":"x"}',
        b'{"claim":"x","digest":"' + b"A" * 64 + b'"}',
        b'{"claim":"x","digest":"' + b"a" * 63 + b'"}',
        b'{"claim":"x","digest":"' + b"a" * 64 + b'\\n"}',
        b'{"claim":"x","digest":"' + b"a" * 64 + b'","models":null}',
        b'{"claim":"\xff"}',
        b'{"claim":"\\ud800"}',
        b"[" * 4000,
    ],
)
def test_a_body_that_is_no_claim_is_a_400(raw):
    assert refused(Desk(offered()).desk.claim(raw)) == (400, "bad_claim")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_is_written(raw):
    desk = Desk()
    assert refused(desk.desk.claim(raw))[0] in {400, 403}
    assert desk.written == []


# --- how often


def tries(desk, client, count):
    return [desk.desk.admit(client) is None for _ in range(count)]


def test_a_client_may_try_ten_times_a_minute_and_is_told_when_to_come_back():
    desk = Desk()
    assert tries(desk, "192.0.2.1", PER_WINDOW + 2) == [True] * PER_WINDOW + [False] * 2
    desk.time += 50
    refusal = desk.desk.admit("192.0.2.1")
    assert refused(refusal) == (429, "rate_limited")
    assert refusal.headers == ((b"retry-after", b"10"),)
    assert tries(desk, "192.0.2.2", 1) == [True]
    desk.time += WINDOW_S - 50
    assert tries(desk, "192.0.2.1", 1) == [True]


def test_a_client_is_not_held_out_for_ever_by_trying_on():
    desk = Desk()
    for _ in range(int(WINDOW_S) + 1):
        desk.desk.admit("192.0.2.1")
        desk.time += 1
    assert tries(desk, "192.0.2.1", 1) == [True]


def test_the_addresses_of_one_ipv6_network_are_one_client():
    desk = Desk()
    assert all(desk.desk.admit(f"2001:db8::{n:x}") is None for n in range(PER_WINDOW))
    assert refused(desk.desk.admit("2001:db8::ffff")) == (429, "rate_limited")
    assert desk.desk.admit("2001:db8:0:1::1") is None


def test_no_number_of_clients_takes_memory_without_end():
    desk = Desk()
    for number in range(MAX_CLIENTS + 100):
        desk.desk.admit(f"10.0.{number >> 8}.{number & 255}")
    assert len(desk.desk._tries) == MAX_CLIENTS


# --- what a key says and does about itself

ENTRY = KeyEntry(
    id="k_1", digest=b"d" * 32, label="laptop", expires_at=5.0, models=("m",), user="ada", project="p"
)  # fmt: skip


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"reason":"lost \\u001b[2J it"}'])
def test_a_key_ends_itself(raw):
    desk = Desk(key_grant(digest=b"d" * 32))
    assert desk.desk.revoke(raw, ENTRY) is None
    assert desk.book().rows["k_1"].revoked


@pytest.mark.parametrize("raw", [b"[]", b'{"reason":1}', b'{"why":"x"}', b"x", b'{"reason":"' + b"x" * 300 + b'"}'])
def test_a_reason_that_is_none_is_a_400_and_the_key_stays(raw):
    desk = Desk(key_grant(digest=b"d" * 32))
    assert refused(desk.desk.revoke(raw, ENTRY)) == (400, "bad_request")
    assert desk.written == []


def test_a_door_that_is_no_issuer_ends_no_keys():
    desk = Desk(key_grant(digest=b"d" * 32), is_issuer=False)
    assert refused(desk.desk.revoke(b"", ENTRY)) == (409, "not_issuer")
    assert desk.written == []


def test_a_key_says_what_it_is_and_not_its_digest():
    assert json.loads(about(ENTRY)) == {
        "id": "k_1", "label": "laptop", "user": "ada", "project": "p", "models": ["m"], "expires_at": 5.0,
    }  # fmt: skip
