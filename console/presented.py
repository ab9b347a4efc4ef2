"""An API key or a claim as somebody gave it: on stdin, in a file, at the terminal, or as a word.

Refuses what is damaged, and names what is another secret of tela's, before anything is sent anywhere.
"""

import sys
from pathlib import Path

from accounting.claims import looks_like_claim
from accounting.keys import CLAIM, INVITE, PREFIX, looks_valid
from registry.errors import TelaError

MAX_CHARS = 256  # keys of another gateway may be longer than ours; a door hashes no longer ones
_NAMES = {
    PREFIX: ("an API key", "tela login URL keeps it"),
    CLAIM: ("a claim", "tela keys claim makes a key of it"),
    INVITE: ("an invite for nodes", "tela join @FILE takes it"),
}


def read_word(text: str) -> str:
    """What is meant by `-` (stdin), `@FILE`, or a word itself.

    Raises:
        TelaError: the file cannot be read (`usage`).
    """
    if text == "-":
        return sys.stdin.readline(MAX_CHARS + 2).strip()
    if not text.startswith("@"):
        return text.strip()
    try:
        with Path(text[1:]).open() as file:
            return file.readline(MAX_CHARS + 2).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TelaError(f"cannot read {text[1:]}: {why}", hint="check the path", code="usage") from error


def checked_key(text: str) -> str:
    """An API key; one that another gateway made may have any form.

    Raises:
        TelaError: it is none (`usage`).
    """
    _refuse_others(text, PREFIX)
    if text.startswith(PREFIX) and not looks_valid(text):
        raise _damaged("API key")
    if len(text) > MAX_CHARS or not (text.isascii() and text.isprintable()) or " " in text:
        raise TelaError("this is no API key", hint=f"one of tela's begins with {PREFIX}", code="usage")
    return text


def checked_claim(text: str) -> str:
    """A claim.

    Raises:
        TelaError: it is none (`usage`).
    """
    _refuse_others(text, CLAIM)
    if not text.startswith(CLAIM):
        raise TelaError("this is no claim", hint=f"one begins with {CLAIM}; ask an operator for one", code="usage")
    if not looks_like_claim(text):
        raise _damaged("claim")
    return text


def _refuse_others(text: str, wanted: str) -> None:
    if not text:
        raise TelaError(f"nothing was given where {_NAMES[wanted][0]} is wanted", hint="give it on stdin", code="usage")
    for prefix, (name, remedy) in _NAMES.items():
        if prefix != wanted and text.startswith(prefix):
            raise TelaError(f"this is {name}, not {_NAMES[wanted][0]}", hint=remedy, code="usage")


def _damaged(what: str) -> TelaError:
    return TelaError(
        f"the {what} is damaged: characters are missing or changed", hint="copy it again, whole", code="usage"
    )
