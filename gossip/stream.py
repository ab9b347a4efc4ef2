"""A stream as the application sees it: read, write, end, reset. A thin shell over one mux stream."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gossip.muxevents import Ended, Received, Replied, ResetCode, ResetReceived, StreamEvent
from registry.errors import TelaError


class StreamReset(TelaError):
    """A stream ended without its end: reset by the other side, or its link was lost."""

    def __init__(self, code: int) -> None:
        try:
            word = ResetCode(code).name.lower()
        except ValueError:
            word = str(code)
        super().__init__(f"stream reset: {word}", code=word)
        self.reset_code = code


class StreamHost(Protocol):
    """What a stream needs of its link."""

    def reply(self, sid: int, head: bytes) -> None:
        """Send the head of an accepted stream."""

    def write(self, sid: int, data: bytes) -> None:
        """Queue bytes."""

    def has_room(self, sid: int) -> bool:
        """Whether more may be queued."""

    def consumed(self, sid: int, n: int) -> None:
        """The application read n bytes."""

    def end(self, sid: int) -> None:
        """Half-close."""

    def reset(self, sid: int, code: int) -> None:
        """End both directions."""

    def forget(self, sid: int) -> None:
        """Feed it no more."""


class Stream:
    """One stream on a live link. Fed by the link, used by one task at a time per direction.

    Args:
        link: the link's verbs; the stream calls them and knows no more of it.
        sid: its id on the link.
        kind: 1 request, 2 ask, 3 circuit.
        head: what the opener said.
    """

    __slots__ = (
        "_code",
        "_ended",
        "_has_ended",
        "_inbox",
        "_link",
        "_reader",
        "_reply",
        "_writer",
        "head",
        "kind",
        "on_lost",
        "peer",
        "sid",
    )

    def __init__(self, link: StreamHost, sid: int, kind: int, head: bytes, peer: str) -> None:
        self.sid = sid
        self.kind = kind
        self.head = head
        self.peer = peer  # the node id at the other end
        self.on_lost: Callable[[], object] | None = None  # called when the peer resets it
        self._link = link
        self._inbox: deque[bytes] = deque()
        self._reply: bytes | None = None
        self._ended = False  # the peer's half
        self._has_ended = False  # ours
        self._code: int | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it was reset, by either side, or its link is gone."""
        return self._code is not None

    # used by the application

    async def reply_head(self) -> bytes:
        """The acceptor's head.

        Raises:
            StreamReset: the stream was reset or its link lost before it came.
        """
        while self._reply is None:
            self._check()
            if self._ended:
                raise StreamReset(ResetCode.TRUNCATED)
            await self._changed()
        return self._reply

    async def read(self) -> bytes | None:
        """The next bytes, None at the clean end. Reading is what grants the peer credit.

        Raises:
            StreamReset: the stream was reset or its link lost.
        """
        while not self._inbox:
            self._check()
            if self._ended:
                return None
            await self._changed()
        data = self._inbox.popleft()
        self._link.consumed(self.sid, len(data))
        return data

    def reply(self, head: bytes) -> None:
        """Answer with a head, once."""
        self._check()
        self._link.reply(self.sid, head)

    def write(self, data: bytes) -> None:
        """Queue bytes; `await drain()` between large ones."""
        self._check()
        self._link.write(self.sid, data)

    async def drain(self) -> None:
        """Wait until there is room to write."""
        while self._code is None and not self._link.has_room(self.sid):
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        self._check()

    def end(self) -> None:
        """Half-close after what was written."""
        self._check()
        self._has_ended = True
        self._link.end(self.sid)

    def reset(self, code: int = ResetCode.CANCEL) -> None:
        """End both directions now. Harmless when it is over already."""
        if self._code is None:
            self._code = code
            self._link.reset(self.sid, code)
            self._wake()

    def close(self) -> None:
        """The application is done with it: forget it, and reset it unless both halves have ended."""
        if not (self._ended and self._has_ended) and self._code is None:
            self.reset()
        self._link.forget(self.sid)

    # fed by the link

    def on(self, event: StreamEvent) -> None:
        """Something happened to this stream."""
        match event:
            case Received(data=data):
                self._inbox.append(data)
            case Replied(head=head):
                self._reply = head
            case Ended():
                self._ended = True
            case ResetReceived(code=code):
                self.lose(code)
            case _:  # Writable, Stopped
                self._let_write()
        self._let_read()

    def lose(self, code: int) -> None:
        """The peer reset the stream, or the link is lost. What was not read is gone, unless both halves had ended."""
        if self._ended and self._has_ended:
            return
        if self._code is None:
            self._code = code
            if self.on_lost is not None:
                self.on_lost()
        self._inbox.clear()
        self._wake()

    def _wake(self) -> None:
        self._let_read()
        self._let_write()

    def _let_read(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _let_write(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _check(self) -> None:
        if self._code is not None:
            raise StreamReset(self._code)

    async def _changed(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader
