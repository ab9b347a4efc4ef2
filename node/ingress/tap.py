"""Watches an answer pass by: whether it is complete, what it used, and what of it tela alone asked for.

Pure. It forwards whole events and reads almost none of them; it never rebuilds one. What it takes out, an
answer to tela's own question, it takes out by span.
"""

import re

import msgspec

from accounting.usage import Tokens, tokens_from_usage
from node.ingress.splice import BodyRefused, value_spans
from node.ingress.sse import EventSplitter, Fragment, data_of
from registry.text import clean

_DONE = b"[DONE]"
_USAGE = b'"usage"'
_LAST = b',"usage":null}'
_SPACE = b" \t\r\n"
_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")


class _Answer(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Chunk(msgspec.Struct):
    usage: dict[str, object] | msgspec.UnsetType | None = msgspec.UNSET
    choices: list[msgspec.Raw] | None = None


# The last member of that name, with objects in it but none in those: what engines send.
_USAGE_AT_END = re.compile(rb'.*"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})', re.DOTALL)

_answers = msgspec.json.Decoder(_Answer)
_chunks = msgspec.json.Decoder(_Chunk)


class StreamTap:
    """Stands between an engine's event stream and the client.

    Every call of `feed` changes what it knows; nobody else does.

    Args:
        cut_usage: tela asked for the usage and the client did not, so the event that has it is dropped, and
            so is the `"usage":null` engines put into every other one.
    """

    __slots__ = ("_cut_usage", "_events", "_has_content", "_is_complete", "_splitter", "_tokens")

    def __init__(self, *, cut_usage: bool) -> None:
        self._cut_usage = cut_usage
        self._splitter = EventSplitter()
        self._events = 0
        self._has_content = False
        self._is_complete = False
        self._tokens = Tokens()

    @property
    def events(self) -> int:
        """How many events carried data, the dropped ones and `[DONE]` among them; comments do not count."""
        return self._events

    @property
    def has_content(self) -> bool:
        """Whether data of the answer was forwarded, so that no other attempt may begin it again."""
        return self._has_content

    @property
    def is_complete(self) -> bool:
        """Whether the engine said `[DONE]`."""
        return self._is_complete

    @property
    def is_mid_event(self) -> bool:
        """Whether the client may have half an event, which an empty line must end before another is sent.

        Only after a part of an event too long to hold back was forwarded, or after `finish`.
        """
        return self._splitter.is_mid_event

    @property
    def tokens(self) -> Tokens:
        """The counts of the last usage object that passed; empty when there was none."""
        return self._tokens

    def feed(self, chunk: bytes) -> bytes:
        """Take what came from the engine; return what to forward now, which is whole events.

        The half event an engine dies in is held here, and dropped with the tap.
        """
        events = self._splitter.feed(chunk)
        if len(events) == 1:
            return self._passed(events[0])
        return b"".join([self._passed(event) for event in events])

    def finish(self) -> bytes:
        """Return what is left when the engine ended its answer in good order.

        It may be an event whose empty line is missing, and is treated as one.
        """
        return self._passed(self._splitter.tail())

    def _passed(self, event: bytes) -> bytes:
        if isinstance(event, Fragment):
            self._has_content = True
            return event
        if not event.startswith(b"data:") and data_of(event) is None:
            return event
        self._events += 1
        if _USAGE in event:
            event = self._without_usage(event)
        elif _DONE in event and (data_of(event) or b"").strip() == _DONE:
            self._is_complete = True
            return event
        self._has_content = self._has_content or event != b""
        return event

    def _without_usage(self, event: bytes) -> bytes:
        data = data_of(event)
        try:
            chunk = _chunks.decode(data or b"")
        except (msgspec.DecodeError, RecursionError):
            return event
        if isinstance(chunk.usage, dict):
            self._tokens = tokens_from_usage(chunk.usage)
            return b"" if self._cut_usage and chunk.choices == [] else event
        # Data joined from several lines is nowhere in the event, and has no span there.
        if chunk.usage is None and self._cut_usage and data is not None and event.count(data) == 1:
            start, stop = _usage_member(data)
            at = event.index(data)
            return event[: at + start] + event[at + stop :]
        return event


def tokens_of_body(body: bytes) -> Tokens | None:
    """Read what an answer that was not streamed used; no counts when it does not say, None when it is no JSON."""
    try:
        usage = _answers.decode(body).usage
    except (msgspec.DecodeError, RecursionError):
        return None
    try:
        return tokens_from_usage(msgspec.json.decode(usage))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Tokens()


def tokens_at_end(tail: bytes) -> Tokens:
    """Read what a long answer used from its last bytes; the rest of it was not kept."""
    found = _USAGE_AT_END.search(tail)
    try:
        return tokens_from_usage(msgspec.json.decode(found[1])) if found else Tokens()
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Tokens()


def error_event(message: str, code: str, request_id: str) -> bytes:
    """Return the event that tells a client its stream broke.

    The OpenAI error object in one line, the request named in its text; whatever the arguments hold.
    """
    error = {
        "message": f"{clean(message)} (request {clean(request_id)})",
        "type": "server_error",
        "param": None,
        "code": clean(code),
    }
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


def _usage_member(data: bytes) -> tuple[int, int]:
    # The span of the top-level member, with the comma before it, or else the one after it, and the space
    # between; empty when it cannot be told.
    if data.endswith(_LAST):
        # Valid JSON ends so only with a member of the outermost object: its brace closes it, `null` before a
        # brace is no text, and a quote after a comma is not escaped.
        return len(data) - len(_LAST), len(data) - 1
    try:
        start, stop = value_spans(data)["usage"]
    except BodyRefused:
        return 0, 0
    key = data.rfind(_USAGE, 0, start)
    if key < 0 or data[key + len(_USAGE) : start].strip(_SPACE) != b":":
        return 0, 0  # it is written with escapes
    before = data[:key].rstrip(_SPACE)
    if before.endswith(b","):
        return len(before[:-1].rstrip(_SPACE)), stop
    comma = _COMMA.match(data, stop)
    return key, comma.end() if comma else stop
