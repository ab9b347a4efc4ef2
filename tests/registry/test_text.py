import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.text import MAX_TEXT_CHARS, clean, is_id


@given(st.text())
def test_nothing_that_drives_a_terminal_survives(text):
    shown = clean(text)
    assert len(shown) <= MAX_TEXT_CHARS
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b]52;c;aGk=\x07",
        "\x1b[2J",
        "\x9b31m",
        "\x1bP",
        "a\rb",
        "\x7f",
        "\u202egnp",
        "\ufeff",
        "\u2028",
        "\ud800",
    ],
)
def test_control_sequences_and_direction_marks_are_replaced(hostile):
    assert "\ufffd" in clean(hostile)
    assert "\x1b" not in clean(hostile)


def test_combining_marks_are_capped_and_plain_text_is_kept():
    assert clean("e" + "\u0301" * 200) == "e\u0301\u0301"
    assert clean("Qwen/Qwen3-30B · größer 模型") == "Qwen/Qwen3-30B · größer 模型"
    assert clean("x" * 300, 10) == "xxxxxxxxx…"


def test_identifiers():
    assert is_id("org/name:v1@host+a-b_c.d")
    for bad in ("", "/x", "a b", "a\n", "é", "x" * 129, "<b>"):
        assert not is_id(bad)
