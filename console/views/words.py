"""Words for numbers: ages, moments, sizes. Pure."""

import datetime

from registry.text import clean


def age(seconds: float) -> str:
    """How long ago, in the largest unit that says enough: 4 s, 12 min, 3 h, 5 d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7_200:
        return f"{whole // 60} min"
    if whole < 172_800:
        return f"{whole // 3_600} h"
    return f"{whole // 86_400} d"


def counted(number: int, what: str) -> str:
    """So many of something: 1 request, 1,200 requests."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def moment(unix_s: float) -> str:
    """A point in time, UTC, to the minute."""
    return _written(unix_s, "%Y-%m-%d %H:%M UTC")


def instant(unix_s: float) -> str:
    """A point in time, UTC, to the second."""
    return _written(unix_s, "%Y-%m-%d %H:%M:%S UTC")


def _written(unix_s: float, form: str) -> str:
    try:
        return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return "never"


def gib(size_b: float) -> str:
    """A size of memory."""
    return f"{size_b / 2**30:.0f} GiB"


def shown(value: object, width: int = 200) -> str:
    """Any value of a row as a cell; nothing is a dash."""
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value)), width)
    return clean(str(value), width)
