"""Claims: their form, and that none is taken for a key or the reverse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.claims import claim_digest, looks_like_claim, mint_claim
from accounting.keys import Admitted, Cause, KeyEntry, KeyRing, Refused, digest, looks_valid, mint
from registry.errors import TelaError

entropies = st.binary(min_size=32, max_size=32)


@given(entropies)
def test_a_claim_is_told_from_a_key_and_a_key_from_a_claim(entropy):
    claim, key = mint_claim(entropy), mint(entropy)
    assert (looks_like_claim(claim), looks_valid(claim)) == (True, False)
    assert (looks_like_claim(key), looks_valid(key)) == (False, True)


def test_the_form_of_a_claim_never_changes():
    assert mint_claim(bytes(32)) == "tela_claim_" + "0" * 43 + "0rgCOP"


@given(entropies, st.integers(11, 59), st.characters(codec="ascii", categories=["L", "N"]))
def test_one_wrong_character_is_found_offline(entropy, place, char):
    claim = mint_claim(entropy)
    typo = claim[:place] + char + claim[place + 1 :]
    assert looks_like_claim(typo) == (typo == claim)


@given(st.text(max_size=80))
def test_any_text_can_be_looked_at(text):
    assert looks_like_claim(text) is False
    assert looks_like_claim("tela_claim_" + text) is False
    assert len(claim_digest(text)) == 32


def test_claiming_needs_32_bytes_too():
    with pytest.raises(TelaError):
        mint_claim(bytes(31))


def test_a_claim_and_a_key_of_one_entropy_have_two_digests():
    assert claim_digest(mint_claim(bytes(32))) != digest(mint(bytes(32)))


# --- at the ring

HELD = KeyEntry(id="k_1", digest=digest(mint(bytes(32))), label="", expires_at=None, models=None)


@pytest.mark.parametrize(
    ("presented", "said"),
    [
        (mint_claim(bytes(32)), "tela keys claim"),
        ("tela_claim_", "tela keys claim"),
        ("tela_invite_" + "x" * 5000, "tela join"),
        ("tela_invite_x", "tela join"),
    ],
)
def test_what_is_no_key_but_ours_is_told_what_it_is(presented, said):
    verdict = KeyRing([HELD]).check(f"Bearer {presented}", None, 0.0)
    assert isinstance(verdict, Refused)
    assert (verdict.cause, said in verdict.reason) == (Cause.MALFORMED, True)
    assert presented not in verdict.reason


def test_a_key_whose_secret_looks_like_a_claim_is_a_key_all_the_same():
    imported = mint_claim(bytes(32))
    entry = KeyEntry(id="k_2", digest=digest(imported), label="", expires_at=None, models=None)
    assert KeyRing([entry]).check(f"Bearer {imported}", None, 0.0) == Admitted(entry=entry)
