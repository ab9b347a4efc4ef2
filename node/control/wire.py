"""Reading questions and writing answers of the control API. Raw ASGI, no framework."""

import asyncio
import base64
import binascii
from collections.abc import Coroutine
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from node.control.schema import ErrorBody, Failure
from node.ingress.edge import Receive, Scope, Send
from registry.errors import TelaError

MAX_BODY_B = 1 << 20  # 64 records of 4 KB as base64 are a third of it
BODY_S = 10.0

JSON = (b"content-type", b"application/json")
LINES = (b"content-type", b"application/x-ndjson")
BYTES = (b"content-type", b"application/octet-stream")
_STATUS = {
    "not_found": 404,
    "no_such_act": 404,
    "no_such_node": 404,
    "method_not_allowed": 405,
    "no_accounts": 409,
    "no_events": 409,
    "too_large": 413,
    "too_many": 503,
}

S = TypeVar("S", bound=msgspec.Struct)
encode = msgspec.json.Encoder().encode


class Gone(Exception):
    """The face left before its question was complete; there is nobody to answer."""


class Broken(Exception):
    """An answer was begun that cannot be finished; the server then breaks the connection."""


class Query:
    """The parameters of a question. Mutable: taking one removes it, and what is left over is refused.

    Raises:
        TelaError: a parameter that is given twice, and from each method one that is not what it should be.
    """

    def __init__(self, scope: Scope) -> None:
        try:
            pairs = parse_qsl(
                scope["query_string"].decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=8
            )
        except (UnicodeDecodeError, ValueError):
            if scope["query_string"]:
                raise wrong("the parameters cannot be read") from None
            pairs = []
        self._left: dict[str, str] = dict(pairs)
        if len(self._left) != len(pairs):
            raise wrong("a parameter is given twice")

    def text(self, name: str) -> str:
        """A word; empty when it is not given."""
        return self._left.pop(name, "")

    def number(self, name: str, default: int, *, most: int) -> int:
        """A number from 0 to `most`."""
        word = self._left.pop(name, None)
        if word is None:
            return default
        if not (word.isascii() and word.isdigit() and len(word) < 19 and int(word) <= most):
            raise wrong(f"{name} must be a number up to {most}")
        return int(word)

    def end(self) -> None:
        """That was all."""
        if self._left:
            raise wrong(f"no such parameter: {', '.join(sorted(self._left))[:80]}")


def wrong(message: str, hint: str = "docs/control-api.md has the questions") -> TelaError:
    """A question that cannot be answered as it is."""
    return TelaError(message, hint=hint, code="bad_question")


async def read_object(receive: Receive, kind: type[S]) -> S:
    """The body of a question.

    Raises:
        TelaError: too long, too slow, or not what was asked for.
        Gone: the face left.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message["body"])
                size += len(message["body"])
                if size > MAX_BODY_B:
                    raise TelaError(f"the body is longer than {MAX_BODY_B} bytes", code="too_large")
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise wrong(f"the body did not arrive within {BODY_S:.0f} s") from None
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise wrong(f"the body is not what it should be: {error}") from None


def from_base64(text: str, what: str) -> bytes:
    """Bytes.

    Raises:
        TelaError: it is no base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise wrong(f"{what} is no base64") from None


def to_base64(raw: bytes) -> str:
    """As `from_base64` takes it."""
    return base64.b64encode(raw).decode()


async def answer(send: Send, body: msgspec.Struct, status: int = 200) -> None:
    """Send an object."""
    text = encode(body)
    headers = [JSON, (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def fail(send: Send, error: TelaError) -> None:
    """Send what went wrong."""
    shown = ErrorBody(code=error.code, message=error.message, hint=error.hint)
    await answer(send, Failure(error=shown), _STATUS.get(error.code, 400))


async def begin(send: Send, kind: tuple[bytes, bytes]) -> None:
    """Begin an answer that goes on."""
    await send({"type": "http.response.start", "status": 200, "headers": [kind]})


async def go_on(send: Send, part: bytes) -> None:
    """Send more of it; waits while the face does not read."""
    await send({"type": "http.response.body", "body": part, "more_body": True})


async def end(send: Send) -> None:
    """Send its end."""
    await send({"type": "http.response.body", "body": b""})


async def while_there(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Do a work until it is done or the face leaves, which cancels it. What the work raises, this raises."""
    try:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work)
            watching = tasks.create_task(_left(receive))
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            watching.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
