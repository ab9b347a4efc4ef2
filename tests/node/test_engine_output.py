"""An engine's log: bounded, ours alone, and read from its end."""

import os
import stat

from node.engine.output import cap_log, open_log, size_of, tail_of


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_log_within_its_limit_stays(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x" * 10)
    assert not cap_log(log, 10)
    assert log.read_bytes() == b"x" * 10
    assert not cap_log(tmp_path / "none", 10)


def test_a_log_over_its_limit_is_moved_aside_and_whoever_writes_it_goes_on(tmp_path):
    log = tmp_path / "log"
    writer = open_log(log)
    try:
        os.write(writer, b"before\n")
        assert cap_log(log, 3)
        os.write(writer, b"after\n")
    finally:
        os.close(writer)
    assert (log.read_text(), (tmp_path / "log.1").read_text()) == ("after\n", "before\n")
    assert mode_of(tmp_path / "log.1") == 0o600


def test_only_one_earlier_log_is_kept(tmp_path):
    log = tmp_path / "log"
    for text in ("one\n", "longer two\n", "3\n"):
        log.write_text(text)
        cap_log(log, 1)
    assert (tmp_path / "log.1").read_text() == "3\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]


def test_a_log_that_cannot_be_moved_aside_is_emptied_all_the_same(tmp_path):
    log = tmp_path / "log"
    log.write_text("long\n")
    (tmp_path / "log.1").symlink_to(tmp_path / "elsewhere")
    assert cap_log(log, 1)
    assert size_of(log) == 0
    assert not (tmp_path / "elsewhere").exists()


def test_a_tail_is_what_came_since_and_no_more_than_its_limit(tmp_path):
    log = tmp_path / "log"
    log.write_text("earlier\nnow\nlast\n")
    assert tail_of(log, 8) == "now\nlast\n"
    assert tail_of(log, 8, limit_b=5) == "last\n"
    assert tail_of(log, 17) == ""


def test_a_log_that_was_moved_aside_meanwhile_is_read_from_its_beginning(tmp_path):
    log = tmp_path / "log"
    log.write_text("new\n")
    assert tail_of(log, 1000) == "new\n"


def test_what_is_no_text_is_text_with_marks(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe ok")
    assert tail_of(log, 0).endswith(" ok")
    assert tail_of(tmp_path / "none", 0) == ""
