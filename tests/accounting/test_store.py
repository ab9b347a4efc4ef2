"""The usage store: the better row stays, whatever the order, and the sums are honest."""

import sqlite3
import subprocess
import sys
import tempfile
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.store import Journal, ModelTotals, UsageStore
from accounting.usage import better
from tests.accounting.test_usage import row, rows

UNMETERED = {"tokens_source": "none", "prompt_tokens": None, "completion_tokens": None}


def opened(path, **options):
    store = UsageStore(path, **options)
    store.migrate()
    return store


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path / "usage.db")
    yield store
    store.close()


def test_a_row_comes_back_as_it_was_put(store):
    written = [row(rid="a"), row(rid="b", ts_first=None, stream=False, **UNMETERED)]
    assert store.put(written) == 2
    assert sorted(store.rows(10), key=lambda r: r.rid) == written


def test_no_rows_is_no_work(store):
    assert store.put([]) == 0
    assert store.count() == 0


def test_the_better_row_of_one_request_stays(store):
    store.put([row(**UNMETERED)])
    assert store.put([row()]) == 1
    assert store.put([row(**UNMETERED)]) == 0
    assert store.rows(10) == [row()]


def test_putting_a_row_again_changes_nothing(store):
    store.put([row()])
    assert store.put([row(), row()]) == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(rows, min_size=1, max_size=6))
def test_the_store_keeps_what_better_keeps(candidates):
    with tempfile.TemporaryDirectory() as directory:
        store = opened(Path(directory) / "usage.db")
        half = len(candidates) // 2
        store.put(candidates[:half])
        store.put(candidates[half:])
        assert store.rows(10) == [reduce(better, candidates)]
        store.close()


@pytest.mark.parametrize("n", [255, 256, 257, 1000])
def test_a_put_of_any_size_is_whole(store, n):
    assert store.put([row(rid=f"r{i}") for i in range(n)]) == n
    assert store.count() == n


@pytest.mark.parametrize("n", [2, 600])
def test_a_put_with_one_bad_row_writes_nothing(store, n):
    good = [row(rid=f"r{i}") for i in range(n)]
    with pytest.raises(sqlite3.IntegrityError):
        store.put([*good, row(rid="bad", model=None)])
    assert store.count() == 0
    assert store.put(good) == n


def test_rows_are_newest_first_limited_and_since(store):
    store.put([row(rid=f"r{i}", ts_start=float(i)) for i in range(5)])
    assert [r.rid for r in store.rows(2)] == ["r4", "r3"]
    assert [r.rid for r in store.rows(10, since=3.0)] == ["r4", "r3"]


def test_totals_sum_by_model_and_say_what_was_not_metered(store):
    store.put([row(rid="1"), row(rid="2", cached_tokens=4), row(rid="3", **UNMETERED)])
    store.put([row(rid="4", model="other", completion_tokens=None)])
    assert store.totals_by_model() == [
        ModelTotals(
            model="m",
            requests=3,
            prompt_tokens=20,
            cached_tokens=4,
            completion_tokens=10,
            unmetered=1,
        ),
        ModelTotals(
            model="other",
            requests=1,
            prompt_tokens=10,
            cached_tokens=0,
            completion_tokens=0,
            unmetered=0,
        ),
    ]


def test_migrating_again_keeps_the_rows(tmp_path):
    first = opened(tmp_path / "usage.db")
    first.put([row()])
    first.close()
    again = opened(tmp_path / "usage.db")
    assert again.count() == 1
    again.close()


def test_wal_lets_another_process_read_and_exclusive_does_not(tmp_path):
    for journal, is_open in ((Journal.WAL, True), (Journal.WAL_EXCLUSIVE, False)):
        path = tmp_path / f"{journal.value}.db"
        store = opened(path, journal=journal)
        store.put([row()])
        assert Path(f"{path}-shm").exists() == is_open
        reader = sqlite3.connect(path, timeout=0)
        try:
            assert reader.execute("SELECT COUNT(*) FROM usage").fetchone() == (1,)
            assert is_open
        except sqlite3.OperationalError:
            assert not is_open
        reader.close()
        store.close()


def test_a_full_database_writes_nothing_and_goes_on_when_there_is_room(store):
    store._db.execute("PRAGMA max_page_count=12")
    batch = [row(rid=f"r{i}", model="m" * 500) for i in range(200)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.put(batch)
    assert store.count() == 0
    store._db.execute("PRAGMA max_page_count=100000")
    assert store.put(batch) == 200


def test_importing_the_ledger_does_not_import_sqlite_utils():
    code = "import sys, accounting.ledger; sys.exit('sqlite_utils' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
