"""The HTTP protocol at the door: uvicorn's, with a deadline and a bound for the head of a request.

Without them a client that sends a byte now and then holds a connection for ever, and one that sends headers without
end holds memory. What cannot be parsed is answered in the shape of every other error.
"""

import asyncio
import re
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from node.ingress.openai import Refusal, error_body

HEAD_S = 10.0  # from the first byte of a request, or from the connection, to the end of its head
MAX_HEAD_B = 32_768
MAX_HEADERS = 100
STALL_S = 60.0  # a client that takes nothing of its answer for so long will take nothing more


# Some clients offer HTTP/2 with every plain request (RFC 7540 §3.2). Nothing here is upgraded, and a server may
# ignore the offer (RFC 9110 §7.8), but the parser would stop at it and lose the body: it is hidden in place.
_UPGRADE = re.compile(rb"\A((?:[^\r\n]+\r\n)+?)upgrade:", re.IGNORECASE)


def _ignored(found: re.Match[bytes]) -> bytes:
    return found[1] + b"x-ignor:"


class DoorProtocol(HttpToolsProtocol):
    """One client connection. Mutable: counts what the head of the current request holds."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _raw_b = 0  # of the current head, parsed or not
    _is_at_head = True
    _head_b = 0
    _headers = 0
    _status = HTTPStatus.BAD_REQUEST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected: its first head is due."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._disarm()
        self._unstall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if not self._is_at_head:
            super().data_received(data)
            return
        if b"pgrade:" in data.lower():
            data = _UPGRADE.sub(_ignored, data, count=1)
        self._raw_b += len(data)
        super().data_received(data)
        if self._is_at_head and self._raw_b > MAX_HEAD_B and not self.transport.is_closing():
            self._status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE  # one line that never ends: the parser holds it
            self.send_400_response("")

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
        self._arm()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """The request is whole; what comes next is the head of another."""
        self._is_at_head = True
        self._raw_b = 0
        super().on_message_complete()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._headers += 1
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._disarm()
        self._is_at_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be served and close."""
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

    def _count(self, size: int) -> None:
        self._head_b += size
        if self._head_b > MAX_HEAD_B or self._headers > MAX_HEADERS:
            self._status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise ValueError("head too large")  # the parser turns it into a refusal

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(HEAD_S, self._too_slow)

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
