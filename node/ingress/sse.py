"""Server-sent events as bytes: where one ends, and what it carries.

Pure. Nothing is decoded or rebuilt: the pieces handed out, joined, are the bytes that came in. The format is
the WHATWG HTML standard's, section 9.2: a line ends with LF, CR or CRLF, an event with an empty line.
"""

import re

# Above any event an engine sends (one token, or a tool call's arguments); what is longer is not held back.
MAX_EVENT_B = 1 << 20

# A CR at the end of what came so far may be half of a CRLF: only the next byte tells.
_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")
# An end that is not there yet may have begun with as much: CR LF CR.
_OVERLAP_B = 3


class Fragment(bytes):
    """A piece of an event longer than MAX_EVENT_B: passed on, never parsed."""

    __slots__ = ()


class EventSplitter:
    """Cuts a byte stream into events.

    `feed` and `tail` change what it holds: the bytes of an event whose end has not come, and no more than
    MAX_EVENT_B of them. What comes out does not depend on how the stream was chunked, except where the
    fragments of an event beyond that bound are cut.
    """

    __slots__ = ("_held", "_in_fragment", "_searched")

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0  # no event ends in held[:searched]
        self._in_fragment = False  # the beginning of what is held was handed out already

    @property
    def is_mid_event(self) -> bool:
        """Whether what was handed out ends inside an event: after a fragment, or after `tail`."""
        return self._in_fragment

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that are now complete, each with the empty line that ends it."""
        if not self._held and b"\r" not in chunk and len(chunk) <= MAX_EVENT_B:
            if 0 <= chunk.find(b"\n\n") == len(chunk) - 2:
                return [chunk]  # what engines do nearly always
            *ended, rest = chunk.split(b"\n\n")
            self._held += rest
            self._searched = max(0, len(rest) - _OVERLAP_B)
            return [event + b"\n\n" for event in ended]
        self._held += chunk
        return self._cut()

    def tail(self) -> bytes:
        """Hand out what is held of an event that did not end, and forget it."""
        rest = bytes(self._held)
        is_fragment = self._in_fragment
        self._held.clear()
        self._searched, self._in_fragment = 0, is_fragment or rest != b""
        return Fragment(rest) if is_fragment else rest

    def _cut(self) -> list[bytes]:
        pieces: list[bytes] = []
        start = 0
        for match in _EVENT_END.finditer(self._held, self._searched):
            pieces.append(self._piece(start, match.end()))
            self._in_fragment = False
            start = match.end()
        del self._held[:start]
        if len(self._held) > MAX_EVENT_B or (self._in_fragment and len(self._held) > _OVERLAP_B):
            self._in_fragment = True
            stop = len(self._held) - _OVERLAP_B
            pieces.append(self._piece(0, stop))
            del self._held[:stop]
        self._searched = max(0, len(self._held) - _OVERLAP_B)
        return pieces

    def _piece(self, start: int, stop: int) -> bytes:
        is_fragment = self._in_fragment or stop - start > MAX_EVENT_B
        piece = bytes(memoryview(self._held)[start:stop])
        return Fragment(piece) if is_fragment else piece


def data_of(event: bytes) -> bytes | None:
    """Return the data of an event, its data lines joined with LF; None when it has none, as a comment."""
    if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.find(b"\n") == len(event) - 2:
        data = event[6:-2]
        if b"\r" not in data:
            return data
    lines = [line for line in event.splitlines() if line.startswith(b"data:") or line == b"data"]
    if not lines:
        return None
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)
