"""How commands print rows: a table that fits the terminal, or one JSON object a line."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

import click


def table(rows: Sequence[Mapping[str, object]], columns: tuple[str, ...], empty: str) -> None:
    """Rows on stdout, without the columns in which none has anything; `empty` on stderr when there are none."""
    from console.views.table import plain  # noqa: PLC0415 - not with --json

    if not rows:
        click.echo(empty, err=True)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    kept = tuple(column for column in columns if any(row.get(column) not in (None, "") for row in rows)) or columns
    click.echo(plain(rows, kept, width=width))


def lines(rows: Iterable[Mapping[str, object]]) -> None:
    """One JSON object a line on stdout."""
    for row in rows:
        click.echo(json.dumps(row))
