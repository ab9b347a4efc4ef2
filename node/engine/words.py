"""The words of an engine's command line: split as a shell would, and looked through for what they start.

Pure. No shell runs here, so no variable is filled in and no pipe is made.
"""

import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from registry.errors import TelaError

PORT_MARK = "{port}"
KEY_MARK = "{api_key}"


def words_of(command: str) -> list[str]:
    """The words of a command line, as a POSIX shell splits them; no variables, no pipes.

    Raises:
        TelaError: it is empty, or a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TelaError(f"engine command: {error}", hint="check its quotes", code="bad_command") from None
    if not words:
        raise TelaError("engine command: empty", hint="say what to start", code="bad_command")
    return words


def flattened(words: Iterable[str]) -> Iterator[str]:
    """The words, and those inside one that a shell will split again, as in `bash -c "vllm serve M"`."""
    for word in words:
        yield word
        if " " in word:
            try:
                yield from shlex.split(word)
            except ValueError:
                continue


def starts(words: Iterable[str], program: str) -> bool:
    """Whether a program or a module of that name is started: `/opt/bin/vllm`, `-m vllm.entrypoints.…`."""
    names = (PurePosixPath(word).name for word in words)
    return any(name == program or name.startswith(f"{program}.") for name in names)


def value_of(words: Iterable[str], *options: str) -> str | None:
    """What follows the first of the options, as `--port 1` or `--port=1`; None: none of them is there."""
    said = list(words)
    for option in options:
        for word, following in zip(said, [*said[1:], ""], strict=True):
            if word.startswith(f"{option}="):
                return word.removeprefix(f"{option}=")
            if word == option:
                return following
    return None
