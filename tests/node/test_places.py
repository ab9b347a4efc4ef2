"""Where things lie, and that a directory of ours is nobody else's."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from node.places import make_private, places
from registry.errors import TelaError
from tests.confined import confined

HOME = Path("/home/ada")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_without_an_environment_everything_is_below_home_but_the_sockets():
    assert places({}, 1000, HOME) == (HOME / ".config/tela", HOME / ".local/state/tela", Path("/tmp/tela-1000"))


def test_xdg_and_tela_home_win(tmp_path):
    env = {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert places(env, 1000, HOME) == (Path("/c/tela"), Path("/s/tela"), tmp_path / "tela")
    assert places(env | {"TELA_HOME": "/scratch/ada"}, 1000, HOME).state == Path("/scratch/ada")


def test_a_runtime_directory_that_came_along_from_a_login_host_counts_as_unset(tmp_path):
    assert places({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}, 7, HOME) == places({}, 7, HOME)


def test_a_relative_xdg_path_counts_as_unset():
    assert places({"XDG_CONFIG_HOME": "c", "XDG_RUNTIME_DIR": "r"}, 7, HOME) == places({}, 7, HOME)


def test_a_relative_tela_home_is_refused_with_what_to_write():
    with pytest.raises(TelaError) as caught:
        places({"TELA_HOME": "state"}, 7, HOME)
    assert "TELA_HOME=$PWD/state" in caught.value.hint


def test_a_new_directory_and_its_missing_parents_are_private(tmp_path):
    make_private(tmp_path / "a" / "b")
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700


def test_a_directory_of_ours_is_closed_to_others(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    make_private(tmp_path / "open")
    assert mode(tmp_path / "open") == 0o700


def test_a_planted_link_is_refused_and_what_it_points_to_is_left_alone(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o755)
    (tmp_path / "ours").symlink_to(tmp_path / "theirs")
    with pytest.raises(TelaError, match="symbolic link"):
        make_private(tmp_path / "ours")
    assert mode(tmp_path / "theirs") == 0o755


def test_a_dangling_link_is_refused(tmp_path):
    (tmp_path / "ours").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TelaError, match="symbolic link"):
        make_private(tmp_path / "ours")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "ours").write_text("")
    with pytest.raises(TelaError, match="not a directory"):
        make_private(tmp_path / "ours")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_accounts_directory_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(TelaError, match="belongs to user 12345"):
        make_private(tmp_path / "theirs")


def test_a_directory_that_cannot_be_made_is_named_with_a_remedy(tmp_path):
    tmp_path.chmod(0o500)
    said = confined(
        """
        import sys
        from pathlib import Path
        from node.places import make_private
        from registry.errors import TelaError
        try:
            make_private(Path(sys.argv[1]))
        except TelaError as error:
            print(error.code, error.message, error.hint)
        """,
        tmp_path / "state",
    )
    tmp_path.chmod(0o700)
    assert said.startswith(f"state_unusable {tmp_path / 'state'}: Permission denied")
    assert "ls -ld" in said


def test_finding_places_and_holders_imports_nothing_heavy():
    code = (
        "import sys, node.places, node.fabricdir, node.statedir, node.settings;"
        "print(sorted({'asyncio', 'msgspec', 'nacl', 'rich', 'http.client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
