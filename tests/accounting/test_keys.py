"""API keys: form, lookup, and what a refusal says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.keys import (
    REFUSED_REASON,
    Admitted,
    Cause,
    KeyEntry,
    KeyRing,
    Refused,
    digest,
    key_id,
    looks_valid,
    mint,
)
from registry.errors import TelaError

SECRET = mint(bytes(range(32)))
OTHER = mint(bytes(range(1, 33)))
NOW = 1_800_000_000.0
entropies = st.binary(min_size=32, max_size=32)


def entry(secret=SECRET, *, expires_at=None, models=None, revoked=False):
    hashed = digest(secret)
    return KeyEntry(
        id=key_id(hashed),
        digest=hashed,
        label="laptop",
        expires_at=expires_at,
        models=models,
        revoked=revoked,
    )


def cause(ring, authorization=None, x_api_key=None, now=NOW):
    verdict = ring.check(authorization, x_api_key, now)
    assert isinstance(verdict, Refused)
    return verdict.cause


@given(entropies)
def test_a_minted_key_is_57_characters_and_looks_valid(entropy):
    secret = mint(entropy)
    assert len(secret) == 57
    assert secret.startswith("tela_sk_")
    assert looks_valid(secret)


@given(entropies, entropies)
def test_different_entropy_gives_different_keys(a, b):
    assert (mint(a) == mint(b)) == (a == b)


def test_the_form_of_a_key_never_changes():
    assert mint(bytes(32)) == "tela_sk_" + "0" * 43 + "0rgCOP"
    assert mint(b"\xff" * 32) == "tela_sk_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp12QlIVt"


def test_minting_needs_32_bytes():
    with pytest.raises(TelaError):
        mint(bytes(31))


@given(entropies, st.integers(8, 56), st.characters(codec="ascii", categories=["L", "N"]))
def test_one_wrong_character_is_found_offline(entropy, place, char):
    secret = mint(entropy)
    typo = secret[:place] + char + secret[place + 1 :]
    assert looks_valid(typo) == (typo == secret)


@given(st.text(max_size=80))
def test_any_text_can_be_looked_at(text):
    assert looks_valid(text) in {True, False}
    assert cause(KeyRing([entry()]), f"Bearer {text}", text) in Cause


def test_a_lone_surrogate_is_malformed_and_not_a_crash():
    assert cause(KeyRing([entry()]), "Bearer \ud800") is Cause.MALFORMED


def test_an_id_is_short_and_stable():
    hashed = digest(SECRET)
    assert key_id(hashed) == key_id(hashed)
    assert key_id(hashed).startswith("k_")
    assert len(key_id(hashed)) == 12
    assert key_id(hashed) != key_id(digest(OTHER))


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_bearer_key_is_admitted_whatever_the_case_of_its_scheme(scheme):
    verdict = KeyRing([entry()]).check(f"{scheme} {SECRET}", None, NOW)
    assert verdict == Admitted(entry=entry())


def test_a_key_in_x_api_key_is_admitted():
    assert KeyRing([entry()]).check(None, SECRET, NOW) == Admitted(entry=entry())


def test_a_scheme_other_than_bearer_leaves_x_api_key_to_decide():
    assert KeyRing([entry()]).check("Basic abc", SECRET, NOW) == Admitted(entry=entry())


def test_the_bearer_key_wins_over_x_api_key():
    assert cause(KeyRing([entry()]), f"Bearer {OTHER}", SECRET) is Cause.UNKNOWN


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Basic abc", "Bearer"])
def test_no_credential_is_missing(header):
    assert cause(KeyRing([entry()]), header) is Cause.MISSING


def test_a_typo_and_an_unknown_key_differ_inwardly():
    ring = KeyRing([entry()])
    assert cause(ring, f"Bearer {SECRET[:-1]}") is Cause.MALFORMED
    assert cause(ring, f"Bearer {OTHER}") is Cause.UNKNOWN


def test_a_key_expires_at_its_second():
    ring = KeyRing([entry(expires_at=NOW)])
    assert isinstance(ring.check(f"Bearer {SECRET}", None, NOW - 0.001), Admitted)
    assert cause(ring, f"Bearer {SECRET}", now=NOW) is Cause.EXPIRED


def test_a_revoked_key_is_refused_and_named_inwardly():
    verdict = KeyRing([entry(revoked=True)]).check(f"Bearer {SECRET}", None, NOW)
    assert verdict == Refused(cause=Cause.REVOKED, key_id=entry().id)


@pytest.mark.parametrize("ring", [KeyRing([]), KeyRing([entry(revoked=True)]), KeyRing([entry(expires_at=1.0)])])
def test_every_refusal_reads_the_same_outside(ring):
    verdict = ring.check(f"Bearer {SECRET}", None, NOW)
    assert isinstance(verdict, Refused)
    assert verdict.reason == REFUSED_REASON


@pytest.mark.parametrize("flip", [1, -1])
def test_of_two_entries_for_one_secret_the_more_restrictive_counts(flip):
    entries = [entry(), entry(expires_at=NOW + 9), entry(revoked=True)][::flip]
    assert cause(KeyRing(entries), f"Bearer {SECRET}") is Cause.REVOKED


def test_two_secrets_may_share_an_id_while_a_key_rotates():
    old, new = entry(), entry(OTHER)
    renewed = KeyEntry(id=old.id, digest=new.digest, label="laptop", expires_at=None, models=None)
    ring = KeyRing([old, renewed])
    for secret in (SECRET, OTHER):
        verdict = ring.check(f"Bearer {secret}", None, NOW)
        assert isinstance(verdict, Admitted)
        assert verdict.entry.id == old.id


def test_an_imported_key_of_another_form_is_admitted():
    foreign = entry("sk-from-elsewhere")
    verdict = KeyRing([foreign]).check("Bearer sk-from-elsewhere", None, NOW)
    assert verdict == Admitted(entry=foreign)


def test_a_huge_header_is_not_hashed():
    assert cause(KeyRing([entry()]), "Bearer " + "x" * 100_000) is Cause.MALFORMED


def test_neither_secret_nor_digest_shows_in_a_repr():
    ring = KeyRing([entry()])
    shown = repr([entry(), ring, ring.check(None, SECRET, NOW), ring.check(None, OTHER, NOW)])
    for hidden in (SECRET, OTHER, repr(digest(SECRET)), digest(SECRET).hex()):
        assert hidden not in shown


@given(st.permutations(range(6)))
def test_which_of_several_entries_for_one_secret_counts_does_not_depend_on_their_order(order):
    several = [
        entry(), entry(models=("a",)), entry(models=()), entry(expires_at=NOW + 1), entry(expires_at=NOW + 9),
        entry(expires_at=NOW + 1, models=("b",)),
    ]  # fmt: skip
    verdict = KeyRing([several[at] for at in order]).check(None, SECRET, NOW)
    assert verdict == Admitted(entry=several[5])
