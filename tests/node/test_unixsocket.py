"""Unix sockets: whose they are, what they replace, and what they never do."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from node.unixsocket import MAX_PATH_B, bind_unix, path_of, remover
from registry.errors import TelaError


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:  # a socket's path has to be short
        yield Path(name) / "door.sock"


def refusal(path):
    with pytest.raises(TelaError) as caught:
        bind_unix(path, 8)
    return caught.value


def reached(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def test_a_socket_is_its_owner_s_alone_and_lies_where_it_was_asked_for(place):
    old = os.umask(0)
    try:
        with bind_unix(place, 8) as listening:
            there = place.lstat()
            assert (stat.S_ISSOCK(there.st_mode), stat.S_IMODE(there.st_mode)) == (True, 0o600)
            assert path_of(listening) == place
            assert reached(place)
            assert [each.name for each in place.parent.iterdir()] == [place.name]
    finally:
        os.umask(old)


def test_what_the_dead_left_behind_is_replaced(place):
    bind_unix(place, 8).close()
    assert not reached(place)
    with bind_unix(place, 8):
        assert reached(place)


def test_what_was_left_half_made_is_replaced(place):
    aside = place.with_name("door.sock.new")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as half:
        half.bind(str(aside))
    with bind_unix(place, 8):
        assert not aside.exists()


def test_a_socket_that_answers_is_not_taken_away(place):
    with bind_unix(place, 8):
        refused = refusal(place)
        assert (refused.code, str(place) in refused.message) == ("address_in_use", True)
        assert reached(place)


def test_a_socket_whose_queue_is_full_is_not_taken_away(place):
    with bind_unix(place, 0), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
        first.connect(str(place))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as second:
            second.setblocking(False)
            second.connect_ex(str(place))
            assert refusal(place).code == "address_in_use"


@pytest.mark.parametrize("kind", ["directory", "file", "link", "dangling"])
@pytest.mark.parametrize("suffix", ["", ".new"])
def test_what_is_no_socket_is_left_alone(place, kind, suffix):
    there = place.with_name(place.name + suffix)
    if kind == "directory":
        there.mkdir()
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(place.parent / "elsewhere")
        if kind == "link":
            (place.parent / "elsewhere").write_text("mine")
    before = there.lstat()
    refused = refusal(place)
    assert (refused.code, str(there) in refused.message) == ("bad_address", True)
    assert os.path.samestat(there.lstat(), before)
    assert kind != "file" or there.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize("suffix", ["", ".new"])
def test_a_socket_of_another_user_is_left_alone_even_when_it_is_dead(place, suffix):
    there = place.with_name(place.name + suffix)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as theirs:
        theirs.bind(str(there))
    os.chown(there, 12345, 12345)
    refused = refusal(place)
    assert (refused.code, "another user" in refused.message) == ("address_in_use", True)
    assert there.exists()


def test_a_place_that_does_not_exist_is_refused_with_what_to_look_at(place):
    refused = refusal(place.parent / "no" / "door.sock")
    assert (refused.code, "No such file" in refused.message, bool(refused.hint)) == ("bad_address", True, True)


def test_a_path_too_long_is_refused_by_its_length(place):
    longest = place.parent / ("x" * (MAX_PATH_B - len(str(place.parent)) - 1))
    with bind_unix(longest, 8):
        assert reached(longest)
    assert "too long" in refusal(longest.with_name(longest.name + "x")).message


def test_a_socket_is_removed_by_whom_made_it_and_by_nobody_else(place):
    with bind_unix(place, 8):
        mine = remover(place)
    with bind_unix(place, 8):
        theirs = remover(place)
        mine()
        assert place.exists()
    theirs()
    theirs()
    assert not place.exists()
