"""Files only their owner may read."""

import os
import stat

import pytest

from node.private import create_private, read_private, write_private
from registry.errors import TelaError
from tests.confined import confined

SECRET = b"secret\n"


def test_what_was_written_is_read_and_closed_to_others(tmp_path):
    write_private(tmp_path / "key", SECRET)
    assert read_private(tmp_path / "key") == SECRET
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_no_file_is_none(tmp_path):
    assert read_private(tmp_path / "key") is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_others_may_read_is_refused_with_the_command_that_closes_it(tmp_path, mode):
    write_private(tmp_path / "key", SECRET)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(TelaError) as caught:
        read_private(tmp_path / "key")
    assert caught.value.hint == f"chmod 600 {tmp_path / 'key'}"
    assert f"{mode:04o}" in caught.value.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_accounts_file_is_refused(tmp_path):
    write_private(tmp_path / "key", SECRET)
    os.chown(tmp_path / "key", 12345, 12345)
    with pytest.raises(TelaError, match="12345"):
        read_private(tmp_path / "key")


def test_a_link_is_not_followed_when_reading(tmp_path):
    write_private(tmp_path / "theirs", SECRET)
    (tmp_path / "key").symlink_to(tmp_path / "theirs")
    with pytest.raises(TelaError, match="symbolic link"):
        read_private(tmp_path / "key")


def test_a_link_is_replaced_when_writing(tmp_path):
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "key").symlink_to(tmp_path / "theirs")
    write_private(tmp_path / "key", SECRET)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert read_private(tmp_path / "key") == SECRET


def test_a_pipe_does_not_make_a_reader_wait(tmp_path):
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(TelaError, match="not a file"):
        read_private(tmp_path / "key")


def test_a_file_without_end_is_refused(tmp_path):
    (tmp_path / "key").touch(mode=0o600)
    os.truncate(tmp_path / "key", 1 << 40)
    with pytest.raises(TelaError, match="longer"):
        read_private(tmp_path / "key")


def test_making_a_file_never_replaces_one(tmp_path):
    assert create_private(tmp_path / "key", SECRET)
    assert not create_private(tmp_path / "key", b"other")
    assert read_private(tmp_path / "key") == SECRET
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path):
    write_private(tmp_path / "key", SECRET)
    said = confined(
        """
        import resource, sys
        from pathlib import Path
        from node.private import write_private
        from registry.errors import TelaError
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            write_private(Path(sys.argv[1]), b"x" * 1000)
        except TelaError as error:
            print(error.message, "|", error.hint)
        """,
        tmp_path / "key",
    )
    assert str(tmp_path / "key") in said
    assert "TELA_HOME" in said
    assert read_private(tmp_path / "key") == SECRET
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
