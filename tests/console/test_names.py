"""What a name means among the nodes there are."""

import pytest

from console.views.names import node_named
from registry.errors import TelaError

ROWS = [
    {"name": "host1@lab", "session": "host1@lab/7", "id": "aaaabbbbcccc"},
    {"name": "host1-1@lab", "session": "host1-1@lab/8", "id": "aaaadddd"},
    {"name": "host10@chem", "session": "host10@chem/9", "id": "eeee"},
]


def refused(text, rows=ROWS):
    with pytest.raises(TelaError) as caught:
        node_named(rows, text)
    return caught.value


@pytest.mark.parametrize("text", ["host1@lab", "host1@lab/7", "aaaabbbbcccc", "aaaab", "host1@", "host1@lab/"])
def test_a_name_a_session_an_id_or_any_unique_beginning_means_a_node(text):
    assert node_named(ROWS, text)["id"] == "aaaabbbbcccc"


def test_a_whole_name_wins_over_those_that_begin_so():
    rows = [*ROWS, {"name": "host1@lab2", "session": "host1@lab2/1", "id": "ffff"}]
    assert node_named(rows, "host1@lab")["id"] == "aaaabbbbcccc"


def test_a_beginning_of_several_names_all_of_them():
    error = refused("host1")
    assert error.code == "ambiguous"
    assert "3 nodes" in error.message
    assert "host10@chem (eeee)" in error.hint


def test_a_mistyped_name_is_answered_with_the_nearest():
    assert "did you mean host10@chem" in refused("hots10@chem").hint


@pytest.mark.parametrize("text", ["", "nobody", "\x1b[2J" + "x" * 10_000])
def test_what_means_nobody_is_said_so_and_nothing_of_it_drives_a_terminal(text):
    error = refused(text)
    assert error.code == "no_such_node"
    assert error.message.isprintable()
    assert len(error.message) < 200


def test_names_of_others_are_clean_in_what_is_said():
    rows = [{"name": f"h\x1b[2J{at}", "session": f"h{at}", "id": f"i{at}"} for at in range(2)]
    assert refused("h", rows).hint.isprintable()
    assert refused("h\x1b[2J9", rows).hint.isprintable()
