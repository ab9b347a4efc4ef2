"""Logs: one JSON object a line, within bounds, for this account's eyes."""

import contextlib
import json
import logging
import stat
import subprocess
import sys

from node.logs import JsonLines, RotatingLog, narrate


def record(text, **fields):
    made = logging.LogRecord("tela.node", logging.INFO, "", 0, text, None, None)
    made.__dict__.update(fields)
    return made


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_is_one_json_object_whatever_is_in_it():
    line = JsonLines().format(record("broke", path="a\nb", count=3))
    told = json.loads(line)
    assert "\n" not in line
    assert (told["event"], told["path"], told["count"], told["level"]) == ("broke", "a\nb", 3, "info")


def test_a_file_is_readable_by_its_owner_alone_even_when_it_was_not(tmp_path):
    path = tmp_path / "node.log"
    path.touch(mode=0o644)
    RotatingLog(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_gives_way_to_a_new_one_and_the_oldest_goes(tmp_path):
    log = RotatingLog(tmp_path / "node.log", file_b=300, kept=2)
    for number in range(20):
        log.emit(record("tick", number=number))
    log.close()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["node.log", "node.log.1", "node.log.2"]
    assert all(path.stat().st_size <= 300 and stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    assert lines(tmp_path / "node.log")[-1]["number"] == 19


def test_lines_a_full_disk_took_are_counted_and_told_when_there_is_room_again(tmp_path):
    log = RotatingLog(tmp_path / "node.log")
    real, full = log.stream, open("/dev/full", "w")  # noqa: PTH123, SIM115
    log.stream = full
    log.emit(record("one"))
    log.emit(record("two"))
    log.stream = real
    log.emit(record("three"))
    log.close()
    with contextlib.suppress(OSError):
        full.close()
    assert [(line["event"], line.get("count")) for line in lines(tmp_path / "node.log")] == [
        ("three", None),
        ("log lines lost", 2),
    ]


def test_what_a_process_writes_past_its_log_follows_the_file_when_it_turns(tmp_path):
    script = (
        "import sys, logging, os; from pathlib import Path; from node.logs import RotatingLog\n"
        "log = RotatingLog(Path(sys.argv[1]), file_b=200, kept=1)\n"
        "log.take_output()\n"
        "for number in range(9): log.emit(logging.LogRecord('x', 20, '', 0, 'tick', None, None))\n"
        "os.write(2, b'past the log\\n')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "node.log")], check=True, timeout=30)
    assert (tmp_path / "node.log").read_text().endswith("past the log\n")


def test_a_narrated_event_keeps_its_fields_even_those_that_a_log_line_has_of_its_own(tmp_path):
    log = RotatingLog(tmp_path / "node.log")
    logger = logging.getLogger("tela.node")
    before = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    try:
        narrate({"event": "left", "served": 7, "name": "n1@lab", "at": 12})
    finally:
        logger.removeHandler(log)
        logger.setLevel(before)
        log.close()
    [told] = lines(tmp_path / "node.log")
    assert (told["event"], told["served"], told["name_"], told["at_"]) == ("left", 7, "n1@lab", 12)
