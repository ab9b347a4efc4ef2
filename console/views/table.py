"""Rows as text: columns as wide as what is in them, cut where a terminal ends. Pure."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from console.views.words import shown

GAP = "  "
LEAST = 8  # columns of a cell that still says something


def plain(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, width: int = 0) -> str:
    """A table with a heading.

    Args:
        rows: what to show; cells are sanitised here.
        columns: which fields, the most important first; their names are the headings.
        width: columns of the terminal; 0: as wide as needed. The widest are cut, and where that is not enough, the
            last ones left out.
    """
    cells = [[shown(row.get(column)) for column in columns] for row in rows]
    heading = [column.replace("_", " ").upper() for column in columns]
    widths = [max(map(cells_of, column)) for column in zip(heading, *cells, strict=True)]
    if width:
        widths = _fitting(widths, width)
    return "\n".join(_line(line[: len(widths)], widths) for line in (heading, *cells))


def cells_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(_padded(text, width) for text, width in zip(texts, widths, strict=True)).rstrip()


def _padded(text: str, width: int) -> str:
    taken = cells_of(text)
    if taken <= width:
        return text + " " * (width - taken)
    kept, used = "", 0
    for char in text:
        if used + _cells(char) > width - 1:
            break
        kept, used = kept + char, used + _cells(char)
    return f"{kept}…" + " " * (width - 1 - used)


def _fitting(widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit: of the first columns that can, each as wide as there is room for."""
    fitted = list(widths)
    while len(fitted) > 1 and _total(min(each, LEAST) for each in fitted) > width:
        fitted.pop()
    while (excess := _total(fitted) - width) > 0 and max(fitted) > 1:
        at = fitted.index(max(fitted))
        others = max((each for each in fitted if each < fitted[at]), default=1)
        fitted[at] -= min(excess, max(1, fitted[at] - others))
    return fitted


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + len(GAP) * (len(each) - 1)
