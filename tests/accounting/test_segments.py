"""Intent segments: written before a request, deleted after, read back whatever happened."""

import resource
import threading

import pytest

from accounting.segments import Intent, SegmentWriter, recover
from registry.errors import TelaError


def intend(writer, rid):
    return writer.intent(rid, "k_1", "model", 1.5)


def files(directory):
    return sorted(path.name for path in directory.iterdir())


def rids(directory):
    return [intent.rid for intent in recover(directory).intents]


def one_per_segment(directory):
    return SegmentWriter(directory, max_b=1)


def test_an_intent_is_readable_as_soon_as_it_is_written(tmp_path):
    intend(SegmentWriter(tmp_path), "r1")
    assert recover(tmp_path).intents == [Intent(rid="r1", key_id="k_1", model="model", ts=1.5)]


def test_no_file_appears_before_the_first_intent(tmp_path):
    SegmentWriter(tmp_path)
    assert files(tmp_path) == []


def test_intents_come_back_in_the_order_they_were_written(tmp_path):
    writer = SegmentWriter(tmp_path, max_b=200)
    for n in range(20):
        intend(writer, f"r{n}")
    assert rids(tmp_path) == [f"r{n}" for n in range(20)]


def test_a_full_segment_is_closed_and_the_next_one_begun(tmp_path):
    writer = one_per_segment(tmp_path)
    assert [intend(writer, "r1"), intend(writer, "r2")] == [1, 2]


def test_a_closed_segment_goes_when_its_last_intent_is_settled(tmp_path):
    writer = SegmentWriter(tmp_path, max_b=120)
    segments = {rid: intend(writer, rid) for rid in ("r1", "r2", "r3")}
    assert segments == {"r1": 1, "r2": 1, "r3": 2}
    writer.settled("r1", 1)
    assert rids(tmp_path) == ["r1", "r2", "r3"]
    writer.settled("r2", 1)
    assert rids(tmp_path) == ["r3"]


def test_the_current_segment_is_kept_though_all_is_settled(tmp_path):
    writer = SegmentWriter(tmp_path)
    writer.settled("r1", intend(writer, "r1"))
    assert intend(writer, "r2") == 1


def test_a_segment_settled_while_current_goes_at_its_rotation(tmp_path):
    writer = one_per_segment(tmp_path)
    writer.settled("r1", intend(writer, "r1"))
    intend(writer, "r2")
    assert rids(tmp_path) == ["r2"]


def test_closing_leaves_nothing_when_all_is_settled(tmp_path):
    writer = SegmentWriter(tmp_path)
    writer.settled("r1", intend(writer, "r1"))
    writer.close()
    assert files(tmp_path) == []


def test_closing_keeps_what_is_unsettled_until_it_is(tmp_path):
    writer = SegmentWriter(tmp_path)
    segment = intend(writer, "r1")
    writer.close()
    assert rids(tmp_path) == ["r1"]
    writer.settled("r1", segment)
    assert files(tmp_path) == []


def test_settling_twice_is_harmless(tmp_path):
    writer = one_per_segment(tmp_path)
    segment = intend(writer, "r1")
    writer.close()
    writer.settled("r1", segment)
    writer.settled("r1", segment)


def test_a_new_writer_never_writes_into_an_old_segment(tmp_path):
    intend(SegmentWriter(tmp_path), "r1")
    assert intend(SegmentWriter(tmp_path), "r2") == 2


def test_a_torn_last_line_is_forgiven(tmp_path):
    intend(SegmentWriter(tmp_path), "r1")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'{"rid":"r2","key')
    recovery = recover(tmp_path)
    assert ([i.rid for i in recovery.intents], recovery.corrupt_lines) == (["r1"], 0)


@pytest.mark.parametrize("bad", [b"\x00\x00", b"{}", b'{"rid":1}', b"\xff\xfe", b"[]", b""])
def test_corrupt_lines_are_counted_and_the_rest_is_read(tmp_path, bad):
    writer = SegmentWriter(tmp_path)
    intend(writer, "r1")
    (path,) = tmp_path.iterdir()
    path.write_bytes(bad + b"\n" + path.read_bytes())
    recovery = recover(tmp_path)
    assert ([i.rid for i in recovery.intents], recovery.corrupt_lines) == (["r1"], 1)


def test_a_spoiled_segment_is_set_aside_and_a_clean_one_deleted(tmp_path):
    writer = one_per_segment(tmp_path)
    intend(writer, "r1")
    intend(writer, "r2")
    first, _ = sorted(tmp_path.iterdir())
    first.write_bytes(b"rubbish\n")
    recover(tmp_path).clear()
    assert files(tmp_path) == ["intents-00000001.jsonl.corrupt"]
    assert recover(tmp_path).intents == []


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    recover(tmp_path).clear()
    assert files(tmp_path) == ["notes.txt"]


def test_a_name_that_is_not_text_refuses_the_request(tmp_path):
    writer = SegmentWriter(tmp_path)
    with pytest.raises(TelaError) as caught:
        writer.intent("r1", "k_1", "\ud800", 1.0)
    assert caught.value.code == "intent_invalid"
    assert intend(writer, "r2") == 1


def test_a_directory_that_cannot_be_written_refuses_the_request(tmp_path):
    gone = tmp_path / "intents"
    gone.mkdir()
    writer = SegmentWriter(gone)
    gone.rmdir()
    with pytest.raises(TelaError) as caught:
        intend(writer, "r1")
    assert caught.value.code == "ledger_unavailable"
    gone.mkdir()
    intend(writer, "r1")
    assert rids(gone) == ["r1"]


def test_half_a_line_on_a_full_disk_refuses_the_request_and_spoils_no_other(tmp_path):
    writer = SegmentWriter(tmp_path)
    intend(writer, "r1")
    (path,) = tmp_path.iterdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(TelaError) as caught:
            intend(writer, "r2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.code == "ledger_unavailable"
    assert path.read_bytes().endswith(b"\n")
    intend(writer, "r3")
    assert rids(tmp_path) == ["r1", "r3"]


def test_a_full_disk_is_seen_before_a_request_comes_and_nothing_stays_of_the_look(tmp_path):
    writer = SegmentWriter(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(TelaError) as caught:
            writer.probe()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.code == "ledger_unavailable"
    writer.probe()
    assert list(tmp_path.iterdir()) == []


def test_settling_on_another_thread_deletes_every_segment(tmp_path):
    writer = SegmentWriter(tmp_path, max_b=150)
    settled = threading.Thread(target=lambda: [writer.settled(rid, segment) for rid, segment in iter(handed.pop, None)])
    handed = [None] + [(f"r{n}", intend(writer, f"r{n}")) for n in range(200)]
    settled.start()
    for n in range(200, 400):
        writer.settled(f"r{n}", intend(writer, f"r{n}"))
    settled.join()
    writer.close()
    assert files(tmp_path) == []


def test_segments_are_for_their_owner_only(tmp_path):
    intend(SegmentWriter(tmp_path), "r1")
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o077 == 0
