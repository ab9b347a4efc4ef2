"""Tables that fit, whatever is in them."""

import pytest

from console.views.table import cells_of, plain

ROWS = [
    {"name": "host1@lab", "models": ["org/a-model-with-a-long-name", "b"], "ready": True, "why": None},
    {"name": "h2@lab", "models": [], "ready": False, "why": "draining"},
]
COLUMNS = ("name", "models", "ready", "why")


def widths(text):
    return [cells_of(line) for line in text.splitlines()]


def test_columns_are_as_wide_as_what_is_in_them():
    assert plain(ROWS, ("name", "ready", "why")) == (
        "NAME       READY  WHY\nhost1@lab  yes    -\nh2@lab     no     draining"
    )


def test_a_heading_is_written_as_words():
    assert plain([{"in_flight": 3}], ("in_flight",)) == "IN FLIGHT\n3"


@pytest.mark.parametrize("width", [60, 40, 30, 20, 9, 4])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(widths(plain(ROWS, COLUMNS, width=width))) <= width


def test_the_widest_column_is_cut_and_the_others_stay():
    text = plain(ROWS, COLUMNS, width=50)
    assert "host1@lab" in text
    assert "draining" in text
    assert "…" in text


def test_what_does_not_fit_at_all_is_left_out_from_the_end():
    heading, *lines = plain(ROWS, COLUMNS, width=18).splitlines()
    assert heading.split() == ["NAME", "MODELS"]
    assert all(line.startswith("h") for line in lines)


def test_wide_and_combining_characters_take_the_room_they_take():
    rows = [{"a": "模型", "b": 1}, {"a": "e\u0301e", "b": 2}]
    assert widths(plain(rows, ("a", "b"))) == [7, 7, 7]


@pytest.mark.parametrize(
    "hostile", ["\x1b[2Jgone", "a\nb", "a\u202egnp.exe", "\x00", "a\r", "z" * 5_000, "e" + "\u0301" * 50]
)
def test_no_cell_can_drive_the_terminal_or_break_the_row(hostile):
    text = plain([{"name": hostile, "list": [hostile, "x"]}], ("name", "list"), width=60)
    assert len(text.splitlines()) == 2
    assert all(char.isprintable() for line in text.splitlines() for char in line)
    assert max(widths(text)) <= 60
