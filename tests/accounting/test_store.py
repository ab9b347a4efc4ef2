"""The usage store: the better row stays, whatever the order, and the sums are honest."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.store import ModelTotals, UsageStore
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


@pytest.mark.parametrize("exclusive", [False, True])
def test_another_process_may_read_unless_the_store_is_exclusive(tmp_path, exclusive):
    path = tmp_path / "usage.db"
    store = opened(path, exclusive=exclusive)
    store.put([row()])
    reader = sqlite3.connect(path, timeout=0)
    try:
        assert reader.execute("SELECT COUNT(*) FROM usage").fetchone() == (1,)
        assert not exclusive
    except sqlite3.OperationalError:
        assert exclusive
    reader.close()
    store.close()


def test_an_exclusive_store_is_a_wal_without_shared_memory(tmp_path):
    store = opened(tmp_path / "usage.db", exclusive=True)
    store.put([row()])
    assert Path(tmp_path / "usage.db-wal").exists()
    assert not Path(tmp_path / "usage.db-shm").exists()
    store.close()


def test_a_second_opener_of_an_exclusive_store_is_refused_and_leaves_nothing_open(tmp_path):
    store = opened(tmp_path / "usage.db", exclusive=True)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        UsageStore(tmp_path / "usage.db", exclusive=True)
    store.close()


NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
static int call(const char *name, int fd, int cmd, void *arg) {
  if (cmd == F_SETLK || cmd == F_SETLKW || cmd == F_GETLK) { errno = ENOSYS; return -1; }
  return ((int (*)(int, int, void *))dlsym(RTLD_NEXT, name))(fd, cmd, arg);
}
#define FCNTL(name) int name(int fd, int cmd, ...) { \
  va_list list; va_start(list, cmd); void *arg = va_arg(list, void *); va_end(list); return call(#name, fd, cmd, arg); }
FCNTL(fcntl)
FCNTL(fcntl64)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="a file system without locks is played by a C library")
def test_a_file_system_without_locks_will_do_when_exclusive(tmp_path):
    (tmp_path / "locks.c").write_text(NO_LOCKS)
    library = tmp_path / "locks.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "locks.c", "-ldl"], check=True)
    code = """
import sqlite3, sys
from pathlib import Path
from accounting.store import UsageStore
from tests.accounting.test_usage import row
try:
    UsageStore(Path(sys.argv[1]))
except sqlite3.OperationalError:
    print("no locks")
store = UsageStore(Path(sys.argv[1]), exclusive=True)
store.migrate()
store.put([row()])
store.close()
"""
    path = tmp_path / "a %?# b.db"
    run = [sys.executable, "-c", code, path]
    env = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(run, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "no locks\n"), done.stderr
    store = opened(path)
    assert store.count() == 1
    store.close()


def test_a_killed_exclusive_store_has_its_rows_at_the_next_start_of_either_kind(tmp_path):
    code = """
import os, sys
from pathlib import Path
from accounting.store import UsageStore
from tests.accounting.test_usage import row
store = UsageStore(Path(sys.argv[1]), exclusive=True)
store.migrate()
store.put([row()])
os.kill(os.getpid(), 9)
"""
    path = tmp_path / "usage.db"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code, path], check=False, cwd=root).returncode == -9
    for exclusive in (False, True):
        store = opened(path, exclusive=exclusive)
        assert store.count() == 1
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
