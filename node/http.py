"""The HTTP protocol at the door: uvicorn's, with a deadline and a bound for the head of a request.

Without them a client that sends a byte now and then holds a connection for ever, and one that sends headers without
end holds memory. What cannot be parsed is answered in the shape of every other error.
"""

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from node.ingress.openai import Refusal, error_body

HEAD_S = 10.0  # from the first byte of a request, or from the connection, to the end of its head
REST_S = 10.0  # for what is left of a body after the answer
MAX_HEAD_B = 32_768
MAX_HEADERS = 100
STALL_S = 60.0  # a client that takes nothing of its answer for so long will take nothing more


# Some clients offer HTTP/2 with every plain request (RFC 7540 §3.2). Nothing here is upgraded, and a server may
# ignore the offer (RFC 9110 §7.8), but the parser would stop at it, lose the body and read what follows as another
# request: the offer is hidden in place, and one that could not be hidden is refused.
_OFFER = b"upgrade:"
_HIDDEN = b"x-ignor:"


def hide_upgrade(data: bytearray, *, at_line: bool) -> None:
    """Rename the upgrade headers among the lines of a head, in place; a body that follows is left alone.

    Args:
        data: bytes of one head, and what comes after it.
        at_line: whether they begin with a line, not within one.
    """
    at = 0 if at_line else data.find(b"\n") + 1
    while at_line or at > 0:
        if data.startswith((b"\r\n", b"\n"), at):
            return  # the end of the head
        if data[at : at + len(_OFFER)].lower() == _OFFER:
            data[at : at + len(_OFFER)] = _HIDDEN
        at_line = False
        at = data.find(b"\n", at) + 1


class DoorProtocol(HttpToolsProtocol):
    """One client connection. Mutable: counts what the head of the current request holds."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _unread_b = 0  # since the last thing the parser told of: what it may be holding
    _is_at_head = True
    _is_at_line = True  # the next byte of the head begins a line
    _held = b""  # the beginning of a line that may become an offer to upgrade
    _head_b = 0
    _headers = 0
    _status = HTTPStatus.BAD_REQUEST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected: its first head is due."""
        super().connection_made(transport)
        self._arm(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._disarm()
        self._unstall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._unread_b += len(data)
        super().data_received(self._without_offers(data) if self._is_at_head else data)
        if self._held and not self._is_at_head:  # the head ended before it: it belongs to the body
            held, self._held = self._held, b""
            super().data_received(held)
        if self._unread_b > MAX_HEAD_B and not self.transport.is_closing():
            self._status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE  # one line that never ends: the parser holds it
            self.send_400_response("")

    def _without_offers(self, data: bytes) -> bytes:
        """The bytes of a head without offers to upgrade, and without what may become one with the next bytes."""
        data, self._held = self._held + data, b""
        at_line = self._is_at_line
        last = data.rfind(b"\n") + 1
        self._is_at_line = data[last:] in {b"", b"\r"} and (last > 0 or at_line)
        if last < len(data) < last + len(_OFFER) and (last or at_line) and _OFFER.startswith(data[last:].lower()):
            data, self._held, self._is_at_line = data[:last], data[last:], True
        if b"pgrade:" not in data.lower():
            return data
        hidden = bytearray(data)
        hide_upgrade(hidden, at_line=at_line)
        return bytes(hidden)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALL_S, self._give_up)

    def resume_writing(self) -> None:
        """It does again."""
        self._unstall()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._head_b = self._headers = 0
        self._arm(HEAD_S)
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """The request is whole; what comes next is the head of another."""
        self._is_at_head = self._is_at_line = True
        self._unread_b = 0
        self._disarm()
        super().on_message_complete()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after the body it is a trailer, which counts for its size and for nothing else (RFC 9110 §6.5)."""
        self._headers += 1
        self._count(len(name) + len(value))
        if self._is_at_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self.parser.should_upgrade():
            raise ValueError("an offer to upgrade that was not hidden")  # the parser turns it into a refusal
        self._disarm()
        self._is_at_head = False
        self._unread_b = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._unread_b = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """A request is answered; a body that is still coming is wanted by nobody, and must not come for ever."""
        super().on_response_complete()
        if not self._is_at_head and self.cycle.response_complete:
            self._arm(REST_S)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be served and close; never so that it would be read as the answer to something else."""
        if not self._may_refuse():
            return
        status = self._status
        code = "headers_too_large" if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE else "bad_request"
        if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            msg = f"The head of the request exceeds {MAX_HEAD_B} bytes or {MAX_HEADERS} headers."
        body = error_body(Refusal(status=status, message=msg, code=code))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _may_refuse(self) -> bool:
        """Whether a refusal would be read as what it is; if not, the connection ends as soon as it may."""
        cycle = self.cycle
        if cycle is None:
            return True
        if self._is_at_head:  # what cannot be parsed comes after the request of this cycle
            if not cycle.response_complete:
                cycle.keep_alive = False  # it is answered, and then the connection ends
            return cycle.response_complete
        if cycle.response_started or self.pipeline:
            self.transport.close()
            return False
        return True

    def _count(self, size: int) -> None:
        self._head_b += size
        if self._head_b > MAX_HEAD_B or self._headers > MAX_HEADERS:
            self._status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise ValueError("head too large")  # the parser turns it into a refusal

    def _arm(self, within_s: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(within_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _give_up(self) -> None:
        """Closing would wait for the client to read what is left."""
        self._stalled = None
        if self.transport is not None:
            self.transport.abort()

    def _too_slow(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
