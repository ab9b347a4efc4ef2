"""Keys and claims as people give them."""

import io

import pytest

from accounting.claims import mint_claim
from accounting.keys import mint
from console.presented import MAX_CHARS, checked_claim, checked_key, read_word
from registry.errors import TelaError

KEY, CLAIM = mint(b"k" * 32), mint_claim(b"c" * 32)
INVITE = "tela_invite_abc"


def refused(what, text):
    with pytest.raises(TelaError) as caught:
        what(text)
    assert caught.value.code == "usage"
    assert text not in caught.value.message or not text
    return caught.value


def test_a_key_is_a_key_and_a_claim_a_claim():
    assert checked_key(KEY) == KEY
    assert checked_claim(CLAIM) == CLAIM


def test_a_key_of_another_gateway_may_have_its_own_form():
    assert checked_key("sk-proj_abc.DEF-123") == "sk-proj_abc.DEF-123"


@pytest.mark.parametrize(
    ("what", "text", "name", "remedy"),
    [
        (checked_key, CLAIM, "this is a claim, not an API key", "tela keys claim"),
        (checked_key, INVITE, "this is an invite for nodes, not an API key", "tela join"),
        (checked_claim, KEY, "this is an API key, not a claim", "tela login"),
        (checked_claim, INVITE, "this is an invite for nodes, not a claim", "tela join"),
    ],
)
def test_another_secret_of_ours_is_named_as_what_it_is(what, text, name, remedy):
    error = refused(what, text)
    assert error.message == name
    assert remedy in error.hint


@pytest.mark.parametrize(
    ("what", "text"), [(checked_key, KEY[:-1]), (checked_key, KEY[:-1] + "!"), (checked_claim, CLAIM[:-1])]
)
def test_a_damaged_one_is_not_sent_anywhere(what, text):
    assert "damaged" in refused(what, text).message


@pytest.mark.parametrize("text", ["", "two words", "sch\u00fcssel", "a\x1bb", "x" * (MAX_CHARS + 1)])
def test_what_can_be_no_key_is_none(text):
    refused(checked_key, text)


@pytest.mark.parametrize("text", ["", "abc", KEY.upper()])
def test_what_can_be_no_claim_is_none(text):
    refused(checked_claim, text)


def test_a_word_comes_from_stdin_a_file_or_the_command_line(tmp_path, monkeypatch):
    (tmp_path / "claim").write_text(f"  {CLAIM}\nmore\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\nmore\n"))
    assert read_word("-") == KEY
    assert read_word(f"@{tmp_path / 'claim'}") == CLAIM
    assert read_word(f" {CLAIM} ") == CLAIM


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    path = tmp_path / "claim"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TelaError) as caught:
        read_word(f"@{path}")
    assert str(path) in caught.value.message
