"""The journal of the registry: kills, broken disks and full ones cost records at most, never the node."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from node.journal import COMPACT_RATIO, RETRY_S, Journal
from node.recordfile import MAGIC, frame, frames, unframe
from tests.confined import DEADLINE_S, ROOT, command, confined
from tests.people import FOUNDING, Person, membership, node_record

NODE = Person(30)
RECORDS = [FOUNDING.charter, membership(), *(node_record(NODE, seq=seq) for seq in range(1, 60))]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reopened(tmp_path, clock):
    """Open the journal of this test, again and again; each one before is closed."""
    held = []

    def open_():
        for journal in held:
            journal.close()
        journal, records, trouble = Journal.open(tmp_path / "journal", now=clock)
        held.append(journal)
        return journal, records, trouble

    yield open_
    for journal in held:
        journal.close()


def test_what_was_appended_is_there_at_the_next_start(reopened, tmp_path):
    journal, records, trouble = reopened()
    assert (records, trouble) == ([], None)
    assert journal.append(RECORDS[:3])
    assert journal.append(RECORDS[3:])
    assert reopened()[1:] == (RECORDS, None)
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600


def test_a_torn_end_is_cut_off_and_what_is_appended_next_is_whole(reopened, tmp_path):
    reopened()[0].append(RECORDS)
    path = tmp_path / "journal"
    os.truncate(path, path.stat().st_size - 7)
    journal, records, trouble = reopened()
    assert (records, trouble) == (RECORDS[:-1], None)
    journal.append(RECORDS[-1:])
    assert reopened()[1:] == (RECORDS, None)


def test_a_flipped_byte_sets_the_file_aside_and_what_precedes_it_goes_on(reopened, tmp_path):
    reopened()[0].append(RECORDS)
    path = tmp_path / "journal"
    broken = bytearray(path.read_bytes())
    broken[len(frames(record.raw for record in RECORDS[:5])) + 20] ^= 1
    path.write_bytes(broken)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    journal, records, trouble = reopened()
    assert records == RECORDS[:5]
    assert "journal.corrupt-1700000000" in trouble.text
    assert (tmp_path / "journal.corrupt-1700000000").read_bytes() == broken
    journal.append(RECORDS[5:])
    assert reopened()[1:] == (RECORDS, None)


@pytest.mark.parametrize("content", [b"SQLite format 3\0", bytes(5000), MAGIC + b"\xff" * 9000])
def test_another_kind_of_file_is_set_aside(reopened, tmp_path, content):
    (tmp_path / "journal").write_bytes(content)
    journal, records, trouble = reopened()
    assert records == []
    assert trouble is not None
    assert journal.append(RECORDS)
    assert reopened()[1:] == (RECORDS, None)


def test_a_file_too_long_to_read_is_set_aside(reopened, tmp_path):
    (tmp_path / "journal").touch()
    os.truncate(tmp_path / "journal", 1 << 40)
    assert "longer" in reopened()[2].text


def test_a_link_planted_there_is_set_aside_and_what_it_points_to_is_left_alone(reopened, tmp_path):
    (tmp_path / "theirs").write_bytes(frames([RECORDS[0].raw]))
    (tmp_path / "journal").symlink_to(tmp_path / "theirs")
    journal, records, trouble = reopened()
    assert records == []
    assert trouble is not None
    journal.append(RECORDS)
    assert (tmp_path / "theirs").read_bytes() == frames([RECORDS[0].raw])


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_set_aside(reopened, tmp_path, make):
    make(tmp_path / "journal")
    journal, _, trouble = reopened()
    assert trouble is not None
    assert journal.append(RECORDS)


def test_a_record_that_does_not_prove_itself_is_passed_over(reopened, tmp_path):
    forged = bytearray(RECORDS[1].raw)
    forged[-1] ^= 1
    newer = bytes([9]) + RECORDS[1].raw[1:]
    (tmp_path / "journal").write_bytes(frames([RECORDS[0].raw, bytes(forged), newer, RECORDS[2].raw]))
    assert reopened()[1:] == ([RECORDS[0], RECORDS[2]], None)


def test_what_a_killed_rewrite_left_is_in_nobodys_way(reopened, tmp_path):
    (tmp_path / ".journal.new").write_bytes(MAGIC + b"half")
    reopened()[0].compact(RECORDS)
    assert reopened()[1:] == (RECORDS, None)
    assert [each.name for each in tmp_path.iterdir()] == ["journal"]


def test_it_is_rewritten_when_it_is_large_and_mostly_superseded(reopened, tmp_path):
    journal, _, _ = reopened()
    big = [record for record in RECORDS for _ in range(100)]
    journal.append(big)
    assert (tmp_path / "journal").stat().st_size > 1 << 20
    assert not journal.is_due(len(big) // COMPACT_RATIO)
    assert journal.is_due(len(RECORDS))
    assert journal.compact(RECORDS)
    assert not journal.is_due(len(RECORDS))
    assert journal.append(RECORDS[:1])
    assert reopened()[1] == [*RECORDS, RECORDS[0]]


def test_a_small_one_is_never_rewritten(reopened):
    journal, _, _ = reopened()
    journal.append(RECORDS * 10)
    assert not journal.is_due(1)


FULL = """
import resource, sys
from pathlib import Path
from node.journal import Journal
from tests.node.test_journal import RECORDS, Clock

path, clock = Path(sys.argv[1]), Clock()
journal, _, _ = Journal.open(path, now=clock)
assert journal.append(RECORDS[:5])
whole = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 100, resource.RLIM_INFINITY))
assert not journal.append(RECORDS[5:])
assert path.stat().st_size == whole, "a record half written stays in the way"
print(journal.trouble.text, "|", journal.trouble.hint)
assert not journal.append(RECORDS[5:])
assert not journal.is_due(len(RECORDS))  # not at once
clock.now = {retry}
assert journal.is_due(len(RECORDS))
assert not journal.compact(RECORDS)
assert not journal.is_due(len(RECORDS))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
clock.now = 2 * {retry}
assert journal.is_due(len(RECORDS))
assert journal.compact(RECORDS)
assert journal.trouble is None
assert not journal.is_due(len(RECORDS))
journal.close()
"""


def test_a_full_disk_is_told_and_tried_again_later_and_nothing_half_written_stays(reopened, tmp_path):
    said = confined(FULL.replace("{retry}", str(RETRY_S)), tmp_path / "journal")
    assert str(tmp_path / "journal") in said
    assert "TELA_HOME" in said
    assert reopened()[1:] == (RECORDS, None)
    assert [each.name for each in tmp_path.iterdir()] == ["journal"]


TMPFS = """
import os, sys
from pathlib import Path
from node.journal import Journal
from tests.node.test_journal import RECORDS, Clock

path, clock = Path(sys.argv[1]), Clock()
journal, _, _ = Journal.open(path, now=clock)
journal.append(RECORDS[:5])
ballast = path.with_name("ballast")
with ballast.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
while journal.append(RECORDS):
    pass
print(journal.trouble.text)
clock.now = 5.0
assert journal.is_due(len(RECORDS)) and not journal.compact(RECORDS)
ballast.unlink()
clock.now = 10.0
assert journal.compact(RECORDS) and journal.append(RECORDS[:1])
journal.close()
journal, records, trouble = Journal.open(path, now=clock)
assert (records, trouble) == ([*RECORDS, RECORDS[0]], None)
journal.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_file_system_that_is_really_full_is_survived(tmp_path):
    run = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=256k none "$0" && exec "$@"', str(tmp_path)]
    mounts = subprocess.run([*run, "true"], capture_output=True, timeout=DEADLINE_S, check=False)
    if mounts.returncode != 0:
        pytest.skip("this root may not mount")
    done = subprocess.run(
        [*run, sys.executable, "-c", TMPFS, str(tmp_path / "journal")],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout


READ_ONLY = """
import sys
from pathlib import Path
from node.journal import Journal
from tests.node.test_journal import RECORDS, Clock

journal, records, trouble = Journal.open(Path(sys.argv[1]), now=Clock())
print(trouble.text, trouble.hint)
assert not journal.append(RECORDS)
journal.close()
"""


def test_a_directory_that_cannot_be_written_is_told_and_the_node_goes_on(tmp_path):
    tmp_path.chmod(0o500)
    said = confined(READ_ONLY, tmp_path / "journal")
    tmp_path.chmod(0o700)
    assert str(tmp_path / "journal") in said
    assert "Permission denied" in said


def test_a_failed_rewrite_does_not_stop_what_can_be_appended(reopened, tmp_path):
    reopened()[0].append(RECORDS[:1])
    said = confined(
        """
        import os, sys
        from pathlib import Path
        from node.journal import Journal
        from tests.node.test_journal import RECORDS, Clock

        path = Path(sys.argv[1])
        journal, _, _ = Journal.open(path, now=Clock())
        path.parent.chmod(0o500)
        assert not journal.compact(RECORDS)
        print(journal.trouble.text)
        assert journal.append(RECORDS[1:])
        path.parent.chmod(0o700)
        journal.close()
        """,
        tmp_path / "journal",
    )
    assert "Permission denied" in said
    assert reopened()[1:] == (RECORDS, None)


APPENDS = """
import sys
from pathlib import Path
from node.journal import Journal
from tests.node.test_journal import RECORDS, Clock

journal, _, _ = Journal.open(Path(sys.argv[1]), now=Clock())
print("ready", flush=True)
while True:
    for record in RECORDS:
        journal.append([record])
    if journal.is_due(len(RECORDS)):
        journal.compact(RECORDS)
        print("compacted", flush=True)
"""


@pytest.mark.parametrize("compactions", [0, 1, 2])
def test_a_kill_in_the_middle_of_writing_leaves_a_journal_that_opens(reopened, tmp_path, compactions):
    child = subprocess.Popen(command(APPENDS, tmp_path / "journal"), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(1 + compactions):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=DEADLINE_S)
    journal, records, trouble = reopened()
    assert trouble is None
    assert set(records) <= set(RECORDS)
    assert journal.append(RECORDS)
    assert reopened()[1] == [*records, *RECORDS]


def test_at_every_place_a_write_can_be_cut_the_journal_opens_without_trouble(reopened, tmp_path):
    whole = frames(record.raw for record in RECORDS[:2])
    for cut in range(len(whole)):
        (tmp_path / "journal").write_bytes(whole[:cut])
        _, records, trouble = reopened()
        assert trouble is None
        assert records == RECORDS[: len(unframe(whole[:cut]).raws)]
    assert len(frame(RECORDS[0].raw)) < len(whole)
