"""Finding what a person means: a node by host@provider, session, id, or any unique prefix of them. Pure."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from registry.errors import TelaError
from registry.text import clean

Row = Mapping[str, Any]
MAX_SHOWN = 8
MAX_NAME = 200  # of what was typed: comparing takes its square


def node_named(rows: Iterable[Row], text: str) -> Row:
    """The one node a name means.

    Raises:
        TelaError: none, with the nearest names; or several, with all of them.
    """
    held = list(rows)
    exact = [row for row in held if text in _names(row)]
    found = exact or [row for row in held if text and any(name.startswith(text) for name in _names(row))]
    if len(found) == 1:
        return found[0]
    shown = clean(text, 80)
    if found:
        names = ", ".join(sorted(_distinct(row) for row in found)[:MAX_SHOWN])
        raise TelaError(f"{shown} means {len(found)} nodes", hint=f"say which: {names}", code="ambiguous")
    near = difflib.get_close_matches(text[:MAX_NAME], {str(row["name"]) for row in held}, 3, 0.5)
    hint = f"did you mean {' or '.join(map(clean, near))}?" if near else "`tela nodes --all` lists them"
    raise TelaError(f"no node is called {shown}", hint=hint, code="no_such_node")


def _names(row: Row) -> tuple[str, ...]:
    return str(row["name"]), str(row["session"]), str(row["id"])


def _distinct(row: Row) -> str:
    return clean(f"{row['name']} ({str(row['id'])[:8]})")
