"""The journal of events: numbered, kept for a while, and never in a node's way."""

import stat
import threading

import msgspec
import pytest

from node import eventlog
from node.eventlog import KEPT_S, MAX_ROWS, TAIL_ROWS, EventLog
from node.events import Event
from tests.confined import DEADLINE_S, confined


def event(number=0, *, at=None, kind="node.left"):
    return Event(at=float(number) if at is None else at, kind=kind, subject="a@lab", text=f"event {number}")


def filled(path, count, *, first=0):
    log = EventLog.open(path)
    for number in range(first, first + count):
        log.add(event(number))
    log.close()
    return log


def numbers(events):
    return [each.seq for each in events]


def test_events_are_numbered_and_come_back_in_order(tmp_path):
    log = EventLog.open(tmp_path / "events")
    assert log.last_seq == 0
    assert [log.add(event(n)).seq for n in range(3)] == [1, 2, 3]
    assert [each.text for each in log.since(1, 10)] == ["event 1", "event 2"]
    assert numbers(log.since(0, 2)) == [1, 2]
    assert log.since(3, 10) == []
    assert log.last_seq == 3


def test_the_next_start_goes_on_counting(tmp_path):
    filled(tmp_path / "events", 3)
    log = EventLog.open(tmp_path / "events")
    assert log.last_seq == 3
    assert log.add(event(9, kind="model.up")).seq == 4
    assert [each.kind for each in log.since(2, 10)] == ["node.left", "model.up"]


def test_the_file_is_private(tmp_path):
    filled(tmp_path / "events", 1)
    assert stat.S_IMODE((tmp_path / "events").stat().st_mode) == 0o600


def test_what_is_long_ago_is_read_from_the_files(tmp_path):
    log = filled(tmp_path / "events", TAIL_ROWS + 500)
    late = log.add(event(7))
    assert numbers(log.since(0, 3)) == [1, 2, 3]
    assert numbers(log.since(400, 5000)) == list(range(401, late.seq + 1))


def test_a_torn_line_costs_itself_only(tmp_path):
    filled(tmp_path / "events", 3)
    with (tmp_path / "events").open("ab") as file:
        file.write(b'{"at":1.0,"kind":"node.le')
    log = filled(tmp_path / "events", 2, first=3)
    assert numbers(EventLog.open(tmp_path / "events").since(0, 10)) == [1, 2, 3, 4, 5]
    assert log.trouble == ""


@pytest.mark.parametrize("junk", [b"\n\n", b"\xff\xfe\n", b'{"at": "x"}\n', b"[" * 100_000 + b"\n", b"x" * 50_000])
def test_lines_that_are_no_events_are_passed_over(tmp_path, junk):
    filled(tmp_path / "events", 1)
    with (tmp_path / "events").open("ab") as file:
        file.write(junk)
    filled(tmp_path / "events", 1, first=1)
    assert numbers(EventLog.open(tmp_path / "events").since(0, 10)) == [1, 2]


def test_two_files_take_turns_and_the_oldest_events_go(tmp_path, monkeypatch):
    monkeypatch.setattr(eventlog, "MAX_ROWS", 20)
    log = EventLog.open(tmp_path / "events")
    for number in range(35):
        log.add(event(number))
        log.flush()
    stored = [each for name in ("events.1", "events") for each in (tmp_path / name).read_text().splitlines()]
    assert 10 <= len(stored) <= 20
    assert numbers(msgspec.json.decode(line, type=Event) for line in stored)[-1] == 35
    assert EventLog.open(tmp_path / "events").last_seq == 35


def test_a_week_is_kept(tmp_path):
    log = EventLog.open(tmp_path / "events")
    day = KEPT_S / 7
    for number in range(30):
        log.add(event(number, at=number * day))
        log.flush()
    kept = [each for name in ("events.1", "events") for each in (tmp_path / name).read_text().splitlines()]
    oldest = msgspec.json.decode(kept[0], type=Event).at
    assert 7 * day <= 29 * day - oldest <= 15 * day


def test_it_holds_no_more_than_it_says():
    assert MAX_ROWS == 100_000
    assert KEPT_S == 7 * 86_400


def test_without_a_disk_events_are_there_while_the_node_is(tmp_path):
    (tmp_path / "events").mkdir()
    log = EventLog.open(tmp_path / "events")
    log.add(event(1))
    assert not log.flush()
    assert str(tmp_path / "events") in log.trouble
    assert numbers(log.since(0, 10)) == [1]


def test_a_disk_that_hangs_holds_nobody_up_who_adds(tmp_path, monkeypatch):
    log = EventLog.open(tmp_path / "events")
    log.add(event(1))
    hangs, goes_on, append = threading.Event(), threading.Event(), eventlog._append

    def slow(path, lines):
        hangs.set()
        assert goes_on.wait(DEADLINE_S)
        append(path, lines)

    monkeypatch.setattr(eventlog, "_append", slow)
    writer = threading.Thread(target=log.flush)
    writer.start()
    assert hangs.wait(DEADLINE_S)
    log.add(event(2))  # would never return
    assert numbers(log.since(0, 10)) == [1, 2]
    goes_on.set()
    writer.join(DEADLINE_S)
    log.close()
    assert numbers(EventLog.open(tmp_path / "events").since(0, 10)) == [1, 2]


def test_a_link_planted_there_is_not_written_through(tmp_path):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "events").symlink_to(tmp_path / "theirs")
    filled(tmp_path / "events", 1)
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_full_disk_is_told_and_what_waits_is_written_when_there_is_room(tmp_path):
    said = confined(
        """
        import resource, sys
        from pathlib import Path
        from node.eventlog import EventLog
        from tests.node.test_eventlog import event

        path = Path(sys.argv[1])
        log = EventLog.open(path)
        log.add(event(1))
        assert log.flush()
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, resource.RLIM_INFINITY))
        log.add(event(2))
        assert not log.flush()
        assert path.stat().st_size == size
        print(log.trouble)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        log.add(event(3))
        assert log.flush() and log.trouble == ""
        """,
        tmp_path / "events",
    )
    assert "events" in said
    assert numbers(EventLog.open(tmp_path / "events").since(0, 10)) == [1, 2, 3]
    assert [each.name for each in tmp_path.iterdir()] == ["events"]
