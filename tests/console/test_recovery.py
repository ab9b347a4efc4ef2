"""The recovery key on paper: read back as it was written, in any hand, and never with a mistake in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.recovery import recovery_seed, recovery_text
from registry.errors import TelaError

SEED = bytes(range(32))


@given(st.binary(min_size=32, max_size=32))
def test_what_is_written_is_read_back(seed):
    assert recovery_seed(recovery_text(seed)) == seed


def test_it_is_sixteen_groups_without_letters_that_look_alike():
    text = recovery_text(SEED)
    assert [len(group) for group in text.split("-")] == [4] * 16
    assert not set(text) & set("ILOU")


def test_case_spaces_and_look_alikes_do_not_matter():
    text = recovery_text(SEED)
    typed = text.lower().replace("-", " \n").replace("0", "O").replace("1", "l")
    assert recovery_seed(typed) == SEED


@pytest.mark.parametrize("at", range(0, 79, 7))
def test_a_wrong_character_is_found(at):
    text = recovery_text(SEED)
    if text[at] == "-":
        at += 1
    wrong = text[:at] + ("X" if text[at] != "X" else "Y") + text[at + 1 :]
    with pytest.raises(TelaError, match="checksum"):
        recovery_seed(wrong)


@pytest.mark.parametrize(
    ("text", "why"), [("", "here are 0"), (recovery_text(SEED)[:-1], "63"), ("é" * 64, "'\\\\xc9'")]
)
def test_what_cannot_be_one_is_said(text, why):
    with pytest.raises(TelaError, match=why):
        recovery_seed(text)
