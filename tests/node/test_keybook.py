"""The keys that count, looked up by everything they are asked for."""

from accounting.keys import Admitted, Refused, digest, mint
from node.ingress.keybook import entry_of, keybook
from registry.accounts import key_rows
from registry.validity import standing
from tests.people import FABRIC, key_grant, registry_of, revocation

SECRET = mint(bytes(32))
C = b"c" * 32


def book_of(*records):
    registry = registry_of(*records)
    return keybook(key_rows(registry, standing(registry, FABRIC, 0.0))[0])


def test_a_key_is_found_by_id_claim_and_secret():
    book = book_of(key_grant("k_1", claim=C, claim_by=9.0), key_grant("k_2", digest=digest(SECRET)))
    assert set(book.rows) == {"k_1", "k_2"}
    assert book.claims == {C: "k_1"}
    assert book.secrets == {digest(SECRET): "k_2"}


def test_only_keys_with_a_secret_may_call():
    book = book_of(key_grant("k_1", claim=C, claim_by=9.0), key_grant("k_2", digest=digest(SECRET)))
    assert len(book.ring) == 1
    assert isinstance(book.ring.check(f"Bearer {SECRET}", None, 0.0), Admitted)


def test_a_key_without_a_secret_is_not_found_by_an_empty_one():
    book = book_of(key_grant("k_1", claim=C, claim_by=9.0), key_grant("k_2"))
    assert b"" not in book.claims
    assert b"" not in book.secrets


def test_an_entry_says_all_that_a_door_enforces():
    row = book_of(
        key_grant(label="l", user="ada", project="p", models=("m",), expires_at=7.0, digest=digest(SECRET)),
        revocation(),
    ).rows["k_1"]
    entry = entry_of(row)
    assert (entry.id, entry.label, entry.user, entry.project) == ("k_1", "l", "ada", "p")
    assert (entry.models, entry.expires_at, entry.revoked, entry.digest) == (("m",), 7.0, True, digest(SECRET))


def test_of_two_keys_with_one_claim_the_first_by_id_is_meant_whatever_came_first():
    records = [key_grant("k_2", claim=C, claim_by=9.0), key_grant("k_1", claim=C, claim_by=9.0)]
    assert book_of(*records).claims == book_of(*reversed(records)).claims == {C: "k_1"}


def test_an_entry_is_taken_from_the_book_before_as_long_as_its_key_is_the_same():
    first = book_of(key_grant("k_1", digest=b"1" * 32), key_grant("k_2", digest=b"2" * 32))
    after = book_of(key_grant("k_1", digest=b"1" * 32), key_grant("k_2", digest=b"2" * 32, label="new", seq=2))
    book = keybook(after.rows, first)
    assert book == keybook(after.rows)._replace(ring=book.ring)
    assert book.entries["k_1"] is first.entries["k_1"]
    assert book.entries["k_2"].label == "new"


def test_a_key_that_is_revoked_is_no_longer_the_same():
    first = book_of(key_grant(digest=digest(SECRET)))
    book = keybook(book_of(key_grant(digest=digest(SECRET)), revocation()).rows, first)
    assert isinstance(book.ring.check(f"Bearer {SECRET}", None, 0.0), Refused)
