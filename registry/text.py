"""The one sanitiser: every string from another node or a client passes here before it is shown.

Decoding checks identifiers with `is_id`; showing goes through `clean`. Nothing here knows a terminal or HTML:
what comes out has no control, format, surrogate, private or unassigned character, so neither can be driven by
it.
"""

import re
import unicodedata

MAX_ID_CHARS = 128
MAX_TEXT_CHARS = 256
MAX_MARKS_PER_BASE = 2  # more combining marks than this smear over the neighbouring rows of a terminal

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\Z")
_BAD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_REPLACEMENT = "�"


def is_id(text: str) -> bool:
    """Whether a string may be an identifier: model, node, key or request id."""
    return _ID.match(text) is not None


def clean(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """A string that is safe to show anywhere, at most `limit` characters, an ellipsis where it was cut."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if marks > MAX_MARKS_PER_BASE:
            continue
        shown.append(_REPLACEMENT if category in _BAD_CATEGORIES else char)
    return "".join(shown)
