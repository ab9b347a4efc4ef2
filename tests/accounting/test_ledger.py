"""The ledger: exactly one row per request, through kills, full disks and bad rows."""

import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from itertools import islice

import pytest

from accounting.ledger import MAX_UNWRITTEN, Ledger
from registry.errors import TelaError
from tests.accounting.test_usage import row

# Keeps 20 requests in flight, says what it did, and dies by the test's hand.
CHILD = """
import os, sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from accounting.ledger import Ledger, recovered_row
from accounting.segments import Intent

def say(*words):
    os.write(1, " ".join(words).encode() + b"\\n")

say("start")
ledger = Ledger.open(Path(sys.argv[1]))
intents = []
for n in count():
    intent = Intent(rid=f"{sys.argv[2]}-{n:032d}", key_id="k_1", model="model", ts=1.0)
    ledger.begin(intent.rid, intent.key_id, intent.model, intent.ts)
    say("begun", intent.rid)
    intents.append(intent)
    if n >= 20:
        old = intents[n - 20]
        seen = {"outcome": "ok", "tokens_source": "engine", "prompt_tokens": n - 20}
        ledger.settle(replace(recovered_row(old), **seen))
        say("settled", old.rid)
    if n % 500 == 499:
        assert ledger.flush(60)
        say("durable", intents[n - 20].rid)
"""


@contextmanager
def opened(directory):
    ledger = Ledger.open(directory)
    try:
        yield ledger
    finally:
        ledger.close()


def begin(ledger, rid, ts=1.0):
    ledger.begin(rid, "k_1", "m", ts)


def wait_until(ledger, claim):
    with ledger._changed:
        assert ledger._changed.wait_for(claim, 30)


def allow_pages(ledger, pages):
    ledger.store._db.execute(f"PRAGMA max_page_count={pages}")


def segments(directory):
    return list((directory / "intents").iterdir())


def refusal(ledger, rid):
    with pytest.raises(TelaError) as caught:
        begin(ledger, rid)
    return caught.value.code


def test_a_settled_row_is_durable_after_a_flush(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        ledger.settle(row(rid="r1"))
        assert ledger.flush()
        assert ledger.store.rows(10) == [row(rid="r1")]
        assert ledger.unwritten == 0


def test_a_row_becomes_durable_without_a_flush(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        ledger.settle(row(rid="r1"))
        wait_until(ledger, lambda: ledger._durable_n == 1)
        assert ledger.store.count() == 1


def test_a_flush_of_nothing_is_done_at_once(tmp_path):
    with opened(tmp_path) as ledger:
        assert ledger.flush(0)


def test_more_than_one_batch_is_written_whole_and_in_any_order_of_settling(tmp_path):
    rids = [f"r{n}" for n in range(1000)]
    with opened(tmp_path) as ledger:
        for rid in rids:
            begin(ledger, rid)
        for rid in reversed(rids):
            ledger.settle(row(rid=rid))
        assert ledger.flush()
        assert {r.rid for r in ledger.store.rows(2000)} == set(rids)


def test_closing_a_settled_ledger_leaves_no_intents(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        ledger.settle(row(rid="r1"))
        assert ledger.close()
    assert segments(tmp_path) == []


def test_a_request_never_settled_is_recovered_once_with_unknown_tokens(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1", ts=7.0)
    for recovered in (1, 0):
        with opened(tmp_path) as ledger:
            assert ledger.recovered == recovered
            (found,) = ledger.store.rows(10)
            assert (found.rid, found.outcome, found.ts_start) == ("r1", "recovered", 7.0)
            assert found.prompt_tokens is None
            assert segments(tmp_path) == []


def test_a_row_settled_in_time_is_not_replaced_by_its_recovery(tmp_path):
    seen = row(rid="r1", outcome="client_disconnect", tokens_source="none", prompt_tokens=None)
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        (segment,) = segments(tmp_path)
        line = segment.read_bytes()
        ledger.settle(seen)
    segment.write_bytes(line)
    with opened(tmp_path) as ledger:
        assert (ledger.recovered, ledger.store.rows(10)) == (0, [seen])


def test_settling_what_was_never_begun_or_is_settled_is_an_error(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        ledger.settle(row(rid="r1"))
        for rid in ("r1", "r2"):
            with pytest.raises(TelaError) as caught:
                ledger.settle(row(rid=rid))
            assert caught.value.code == "rid_unknown"


def test_beginning_twice_is_an_error(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        assert refusal(ledger, "r1") == "rid_reused"


def test_a_full_backlog_refuses_new_requests_and_takes_every_row_of_the_old(tmp_path):
    with opened(tmp_path) as ledger:
        for n in range(MAX_UNWRITTEN):
            begin(ledger, f"r{n}")
        assert refusal(ledger, "one more") == "ledger_unavailable"
        assert ledger.trouble is not None
        for n in range(MAX_UNWRITTEN):
            ledger.settle(row(rid=f"r{n}"))
        assert ledger.flush(60)
        assert ledger.store.count() == MAX_UNWRITTEN
        begin(ledger, "one more")


def test_a_full_disk_loses_no_row_refuses_new_requests_and_heals(tmp_path):
    with opened(tmp_path) as ledger:
        allow_pages(ledger, 1)
        for n in range(600):
            begin(ledger, f"r{n}")
        for n in range(600):
            ledger.settle(row(rid=f"r{n}"))
        wait_until(ledger, lambda: ledger.trouble)
        assert "full" in ledger.trouble
        assert refusal(ledger, "new") == "ledger_unavailable"
        assert not ledger.flush(0.01)
        allow_pages(ledger, 1_000_000)
        assert ledger.flush(60)
        assert ledger.trouble is None
        assert ledger.store.count() == 600
        begin(ledger, "new")


def test_rows_in_flight_while_the_disk_is_full_are_taken_and_written_later(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "slow")
        begin(ledger, "r" * 9000)
        allow_pages(ledger, 1)
        ledger.settle(row(rid="r" * 9000))
        wait_until(ledger, lambda: ledger.trouble)
        ledger.settle(row(rid="slow"))
        allow_pages(ledger, 1_000_000)
        assert ledger.flush(60)
        assert ledger.store.count() == 2


def test_closing_on_a_full_disk_says_so_and_the_next_start_recovers(tmp_path):
    with opened(tmp_path) as ledger:
        allow_pages(ledger, 1)
        for n in range(100):
            begin(ledger, f"r{n}")
            ledger.settle(row(rid=f"r{n}"))
        wait_until(ledger, lambda: ledger.trouble)
        assert not ledger.close(0.01)
    with opened(tmp_path) as ledger:
        assert ledger.recovered == 100
        assert ledger.store.count() == 100


def test_an_intent_that_cannot_be_written_is_trouble_that_passes(tmp_path):
    with opened(tmp_path) as ledger:
        (tmp_path / "intents").rmdir()
        assert refusal(ledger, "r1") == "ledger_unavailable"
        (tmp_path / "intents").mkdir()
        wait_until(ledger, lambda: ledger.trouble is None)
        begin(ledger, "r1")
        ledger.settle(row(rid="r1"))
        assert ledger.flush()


def test_a_row_the_store_cannot_hold_does_not_stop_the_others(tmp_path):
    with opened(tmp_path) as ledger:
        for rid in ("a", "bad", "huge", "z"):
            begin(ledger, rid)
        ledger.settle(row(rid="a"))
        ledger.settle(row(rid="bad", family="\ud800"))
        ledger.settle(row(rid="huge", bytes_out=2**64))
        ledger.settle(row(rid="z"))
        assert ledger.flush()
        assert (ledger.unstorable, ledger.store.count(), ledger.trouble) == (2, 2, None)
    with opened(tmp_path) as ledger:
        assert (ledger.recovered, ledger.store.count()) == (2, 4)


def test_the_ledger_is_for_its_owner_only(tmp_path):
    with opened(tmp_path / "ledger"):
        assert (tmp_path / "ledger").stat().st_mode & 0o077 == 0


def test_a_closed_ledger_refuses(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.close()
        assert refusal(ledger, "r1") == "ledger_unavailable"


def test_a_ledger_that_cannot_be_opened_says_so(tmp_path):
    (tmp_path / "usage.db").write_bytes(b"not a database" * 100)
    with pytest.raises(TelaError) as caught:
        Ledger.open(tmp_path)
    assert caught.value.code == "ledger_unavailable"


def test_corrupt_intents_do_not_stop_a_start(tmp_path):
    with opened(tmp_path) as ledger:
        begin(ledger, "r1")
        (segment,) = segments(tmp_path)
        segment.write_bytes(b"rubbish\n" + segment.read_bytes())
    with opened(tmp_path) as ledger:
        assert ledger.recovered == 1
        assert [path.suffix for path in segments(tmp_path)] == [".corrupt"]


def killed_after(lines, directory, run):
    """Run the child until it said so many lines, kill it, and return all it said."""
    command = [sys.executable, "-c", CHILD, str(directory), run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        said = list(islice(child.stdout, lines))
        child.kill()
        said += list(child.stdout)
    assert child.returncode == -signal.SIGKILL
    return [line.split() for line in said]


def test_every_request_has_exactly_one_row_through_sigkill(tmp_path):
    rng = random.Random(20)
    # 1 line: killed while opening, and recovering what the round before left.
    rounds = [rng.randrange(2, 9000) if n % 3 else 1 for n in range(13)]
    said = [words for n, k in enumerate(rounds) for words in killed_after(k, tmp_path, f"run{n}")]
    begun = {words[1] for words in said if words[0] == "begun"}
    settled = {words[1] for words in said if words[0] == "settled"}
    durable = {words[1] for words in said if words[0] == "durable"}
    with opened(tmp_path) as ledger:
        found = ledger.store.rows(1_000_000)
        rows = {r.rid: r for r in found}
        assert len(rows) == len(found) == ledger.store.count()
        assert settled <= begun <= rows.keys()
        # An intent may be on disk when the kill comes before its line is said: one a round at most.
        assert len(rows.keys() - begun) <= len(rounds)
        assert segments(tmp_path) == []
    for rid, found_row in rows.items():
        n = int(rid.partition("-")[2])
        expected = ("ok", n) if found_row.outcome == "ok" else ("recovered", None)
        assert (found_row.outcome, found_row.prompt_tokens) == expected
    flushed = {rid for rid in settled for last in durable if rid[:5] == last[:5] and rid <= last}
    assert {rows[rid].outcome for rid in flushed} <= {"ok"}
    assert {r.outcome for r in found} == {"ok", "recovered"}


def test_the_store_is_intact_after_all(tmp_path):
    killed_after(3000, tmp_path, "run0")
    Ledger.open(tmp_path).close()
    db = sqlite3.connect(tmp_path / "usage.db")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
