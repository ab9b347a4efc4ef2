"""Scripted faults of the demo engine: how a request asks for trouble, as a value.

The grammar is `NAME[=ARG][;NAME...]`. This module says what was asked; the player does it.
"""

import enum
from dataclasses import dataclass
from typing import Final

from registry.errors import TelaError

_HINT: Final = (
    "known: slow=MS slow-token=MS 4xx 5xx garbage reset hang crash truncate=K eof=K hang-after=K crash-after-events=K"
)


class FaultRefused(TelaError):
    """A fault that was asked for in words the engine does not know."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"fault refused: {reason}", hint=_HINT, code="fault_refused")


class Opening(enum.Enum):
    """What takes the place of an answer before its first byte."""

    STATUS = "status"  # an error object with the given HTTP status
    RESET = "reset"  # TCP RST
    HANG = "hang"  # nothing, until the client goes
    CRASH = "crash"  # the process exits with 13


class Ending(enum.Enum):
    """What happens in the middle of an answer: after K events, or half-way through a JSON body."""

    TRUNCATE = "truncate"  # the connection closes without the end of the body
    EOF = "eof"  # the body ends well, but what it should have held is missing
    HANG = "hang-after"  # nothing more, until the client goes
    CRASH = "crash-after-events"  # the process exits with 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong with one request. The default is nothing."""

    slow_s: float = 0.0  # before the first byte
    slow_token_s: float = 0.0  # before every token, added to the engine's own pace
    opening: Opening | None = None  # None: the answer begins
    status: int = 500  # of Opening.STATUS
    is_garbage: bool = False  # a body that is no JSON, or one broken event after the first
    ending: Ending | None = None  # None: the answer ends as it should
    ending_after: int = 1  # events of a stream before `ending`; all of them: it never comes


NO_FAULTS: Final = Faults()


def parse_faults(text: str) -> Faults:
    """Return the faults a header or a flag asks for.

    Raises:
        FaultRefused: a name or an argument is unknown, or two faults want the same place.
    """
    asked: dict[str, object] = {}
    for word in text.split(";"):
        name, has_argument, argument = word.strip().partition("=")
        if not name:
            continue
        for field, value in _fields(name.strip(), argument.strip() if has_argument else None):
            if field in asked:
                raise FaultRefused(f"{name} wants the place of another one")
            asked[field] = value
    return Faults(**asked)  # type: ignore[arg-type]  # _fields names each field with its own type


def _fields(name: str, argument: str | None) -> list[tuple[str, object]]:
    """Return the fields of Faults one name stands for."""
    match name:
        case "slow":
            return [("slow_s", _number(name, argument) / 1000)]
        case "slow-token":
            return [("slow_token_s", _number(name, argument) / 1000)]
        case "truncate" | "eof" | "hang-after" | "crash-after-events":
            after = 1 if argument is None else _number(name, argument)
            return [("ending", Ending(name)), ("ending_after", after)]
    if argument is not None:
        raise FaultRefused(f"{name[:40]!a} takes no argument")
    match name:
        case "garbage":
            return [("is_garbage", True)]
        case "reset" | "hang" | "crash":
            return [("opening", Opening(name))]
    if len(name) == 3 and name.isascii() and name.isdigit() and name[0] in "45":
        return [("opening", Opening.STATUS), ("status", int(name))]
    raise FaultRefused(f"{name[:40]!a} is not known")


def _number(name: str, argument: str | None) -> int:
    if argument is None or not argument.isascii() or not argument.isdigit() or len(argument) > 9:
        raise FaultRefused(f"{name} needs a whole number, like {name}=5")
    return int(argument)
