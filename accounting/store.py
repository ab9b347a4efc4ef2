"""The usage table of one node, in SQLite.

One connection, used by one thread at a time. Calls block: no event loop makes them. sqlite-utils owns
the schema and is imported only to migrate; rows are written through the standard library.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from accounting.usage import UsageRow

CREATE_USAGE = """
CREATE TABLE usage (
  rid TEXT NOT NULL PRIMARY KEY,
  ts_start REAL NOT NULL, ts_first REAL, ts_end REAL NOT NULL,
  key_id TEXT NOT NULL, model TEXT NOT NULL, family TEXT NOT NULL,
  node TEXT NOT NULL, replica TEXT NOT NULL,
  attempts INTEGER NOT NULL, stream INTEGER NOT NULL, status INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER,
  tokens_source TEXT NOT NULL,
  bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL
)
"""
CREATE_USAGE_BY_START = "CREATE INDEX usage_by_start ON usage (ts_start)"
COLUMNS = (
    "rid, ts_start, ts_first, ts_end, key_id, model, family, node, replica, attempts, stream, status, "
    "outcome, prompt_tokens, cached_tokens, completion_tokens, tokens_source, bytes_in, bytes_out"
)
INSERT_USAGE = f"INSERT INTO usage ({COLUMNS}) VALUES "  # noqa: S608 - constants only
# The order of accounting.usage.better, compared as one row value; evaluated on a conflict only.
KEEP_BETTER = """
ON CONFLICT (rid) DO UPDATE SET
  ts_start = excluded.ts_start, ts_first = excluded.ts_first, ts_end = excluded.ts_end,
  key_id = excluded.key_id, model = excluded.model, family = excluded.family,
  node = excluded.node, replica = excluded.replica, attempts = excluded.attempts,
  stream = excluded.stream, status = excluded.status, outcome = excluded.outcome,
  prompt_tokens = excluded.prompt_tokens, cached_tokens = excluded.cached_tokens,
  completion_tokens = excluded.completion_tokens, tokens_source = excluded.tokens_source,
  bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out
WHERE (
  excluded.tokens_source = 'engine',
  COALESCE(excluded.prompt_tokens, 0) + COALESCE(excluded.completion_tokens, 0),
  excluded.outcome <> 'recovered',
  excluded.ts_start, COALESCE(excluded.ts_first, -1), excluded.ts_end,
  excluded.key_id, excluded.model, excluded.family, excluded.node, excluded.replica,
  excluded.attempts, excluded.stream, excluded.status, excluded.outcome,
  COALESCE(excluded.prompt_tokens, -1), COALESCE(excluded.cached_tokens, -1),
  COALESCE(excluded.completion_tokens, -1), excluded.bytes_in, excluded.bytes_out
) > (
  usage.tokens_source = 'engine',
  COALESCE(usage.prompt_tokens, 0) + COALESCE(usage.completion_tokens, 0),
  usage.outcome <> 'recovered',
  usage.ts_start, COALESCE(usage.ts_first, -1), usage.ts_end,
  usage.key_id, usage.model, usage.family, usage.node, usage.replica,
  usage.attempts, usage.stream, usage.status, usage.outcome,
  COALESCE(usage.prompt_tokens, -1), COALESCE(usage.cached_tokens, -1),
  COALESCE(usage.completion_tokens, -1), usage.bytes_in, usage.bytes_out
)
"""
SELECT_COUNT = "SELECT COUNT(*) FROM usage"
SELECT_ROWS = f"""
SELECT {COLUMNS} FROM usage WHERE ts_start >= ? ORDER BY ts_start DESC, rid DESC LIMIT ?
"""  # noqa: S608 - constants only
SELECT_TOTALS = """
SELECT model, COUNT(*), COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(cached_tokens), 0),
  COALESCE(SUM(completion_tokens), 0), SUM(tokens_source = 'none')
FROM usage GROUP BY model ORDER BY model
"""

# One statement takes a whole batch, because each statement waits up to 5 ms for the interpreter while
# the loop is busy: measured for 256 rows, 590 ms row by row, 7 ms at once.
_ROWS_PER_STATEMENT = 256
# Short: a reader elsewhere is waited for, a stuck one becomes visible trouble instead.
_BUSY_S = 1.0
_PLACES = "(" + ", ".join("?" * len(COLUMNS.split(","))) + ")"
_FIELDS = COLUMNS.split(", ")
_values = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTotals:
    """What one model was used for. Tokens sum what engines counted; `unmetered` requests had no count."""

    model: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    unmetered: int


class UsageStore:
    """The usage table in one file. Every method may raise `sqlite3.Error`."""

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        """Open or make the file; `migrate` before anything else.

        A commit survives the death of the process; the last ones may be lost in a power cut
        (`synchronous=NORMAL`).

        Args:
            path: the file.
            exclusive: nobody else may open it meanwhile, not even to read. For network file systems, where the
                shared memory that readers of a WAL need does not exist. Where there are no file locks either, it is
                the caller who keeps others away.
        """
        self._lock = threading.Lock()
        self._db = _exclusive(path) if exclusive else _open(str(path))
        # 32,766 values a statement; before SQLite 3.32 it was 999.
        room = self._db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // len(_FIELDS)
        self._rows_per_statement = min(room, _ROWS_PER_STATEMENT)

    def migrate(self) -> None:
        """Bring the schema up to date, each step in a transaction with its record."""
        # Here and not above: 97 ms, or 500 ms where pandas is installed.
        from sqlite_utils import Database  # noqa: PLC0415
        from sqlite_utils.migrations import Migrations  # noqa: PLC0415

        usage = Migrations("usage")

        @usage()
        def m001_usage(db: Database) -> None:
            db.execute(CREATE_USAGE)
            db.execute(CREATE_USAGE_BY_START)

        with self._lock:
            usage.apply(Database(self._db, recursive_triggers=False, execute_plugins=False))

    def put(self, rows: Sequence[UsageRow]) -> int:
        """Write the rows in one transaction; of two rows of one request the better stays.

        Returns:
            How many rows were new or replaced a worse one.

        Raises:
            sqlite3.Error, OverflowError, UnicodeError: nothing was written.
        """
        size = self._rows_per_statement
        with self._lock:
            before = self._db.total_changes
            if len(rows) <= size:
                self._insert(rows)
            else:
                with self._transaction():
                    for start in range(0, len(rows), size):
                        self._insert(rows[start : start + size])
            return self._db.total_changes - before

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._query(SELECT_COUNT)[0][0])

    def rows(self, limit: int, since: float = 0.0) -> list[UsageRow]:
        """Return at most `limit` rows that started at `since` (unix seconds) or later, newest first."""
        return [_row(values) for values in self._query(SELECT_ROWS, since, limit)]

    def totals_by_model(self) -> list[ModelTotals]:
        """Return the sums over all rows, by model name."""
        names = ModelTotals.__slots__
        return [ModelTotals(**dict(zip(names, values, strict=True))) for values in self._query(SELECT_TOTALS)]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _insert(self, rows: Sequence[UsageRow]) -> None:
        if rows:
            statement = INSERT_USAGE + ", ".join([_PLACES] * len(rows)) + KEEP_BETTER
            self._db.execute(statement, [value for row in rows for value in _values(row)])

    def _query(self, sql: str, *values: object) -> list[Any]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            # A full disk makes SQLite roll back by itself; a failed COMMIT does not.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _open(name: str, locking: str = "NORMAL") -> sqlite3.Connection:
    db = sqlite3.connect(name, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True)
    try:
        # Before the first read: only then does SQLite do without the shared memory file.
        db.execute(f"PRAGMA locking_mode={locking}")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        db.close()
        raise
    return db


def _exclusive(path: Path) -> sqlite3.Connection:
    try:
        return _open(str(path), "EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_IOERR_LOCK":
            raise
    # Lustre mounted without `flock`: the system call does not exist there, and SQLite calls that a disk I/O error.
    return _open(f"{path.absolute().as_uri()}?vfs=unix-none", "EXCLUSIVE")


def _row(values: tuple[Any, ...]) -> UsageRow:
    named = dict(zip(_FIELDS, values, strict=True))
    return UsageRow(**named | {"stream": bool(named["stream"])})
