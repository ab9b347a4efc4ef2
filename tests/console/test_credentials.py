"""The API keys of an account."""

import os
import stat

import pytest

from console.credentials import MAX_KEPT, Credential, chosen, keep, read
from registry.errors import TelaError

FIRST = Credential("https://a.example.org", "k_1", "s1", "laptop")
SECOND = Credential("https://b.example.org", "k_2", "s2")


def refused(what, *args):
    with pytest.raises(TelaError) as caught:
        what(*args)
    return caught.value


def test_an_account_without_keys_has_none(tmp_path):
    assert read(tmp_path) == []


def test_what_is_kept_is_read_again_the_last_one_first(tmp_path):
    keep(tmp_path / "config", FIRST)
    keep(tmp_path / "config", SECOND)
    assert read(tmp_path / "config") == [SECOND, FIRST]


def test_a_key_that_is_kept_again_takes_the_place_of_the_old(tmp_path):
    for each in (FIRST, SECOND, FIRST._replace(secret="new")):
        keep(tmp_path, each)
    assert [row.secret for row in read(tmp_path)] == ["new", "s2"]


def test_only_the_owner_may_read_the_file(tmp_path):
    path = keep(tmp_path, FIRST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_may_read_is_refused_with_the_command_that_closes_it(tmp_path):
    path = keep(tmp_path, FIRST)
    path.chmod(0o644)
    assert refused(read, tmp_path).hint == f"chmod 600 {path}"


@pytest.mark.parametrize("text", ["", "[]", '{"keys": 3}', '{"keys": [{"url": "x"}]}', "[" * 100_000])
def test_a_damaged_file_is_named_and_left_alone(tmp_path, text):
    path = tmp_path / "credentials"
    path.write_text(text)
    path.chmod(0o600)
    assert str(path) in refused(read, tmp_path).message
    refused(keep, tmp_path, FIRST)
    assert path.read_text() == text


def test_there_is_an_end_to_how_many_are_kept(tmp_path):
    for at in range(MAX_KEPT + 2):
        keep(tmp_path, FIRST._replace(id=f"k_{at}"))
    assert len(read(tmp_path)) == MAX_KEPT


def test_a_place_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused(keep, tmp_path / "file", FIRST).message


def test_the_one_used_last_is_chosen_unless_a_door_is_named(tmp_path):
    keep(tmp_path, FIRST)
    keep(tmp_path, SECOND)
    assert chosen(tmp_path, {}, None) == SECOND
    assert chosen(tmp_path, {}, "https://a.example.org/v1/") == FIRST


def test_without_a_key_it_says_how_to_come_by_one(tmp_path):
    error = refused(chosen, tmp_path, {}, None)
    assert "tela login" in error.hint
    assert "tela keys claim" in error.hint
    assert "https://a" in refused(chosen, tmp_path, {}, "https://a").message


def test_the_environment_wins_and_must_say_where(tmp_path):
    keep(tmp_path, FIRST)
    env = {"TELA_API_KEY": "s9", "TELA_URL": "http://c:7480/v1"}
    assert chosen(tmp_path, env, None) == Credential("http://c:7480", "", "s9")
    assert refused(chosen, tmp_path, {"TELA_API_KEY": "s9"}, None).code == "usage"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    assert str(tmp_path) in refused(keep, tmp_path, FIRST).message
