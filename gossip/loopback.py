"""Streams of a node to itself: an ingress that is a worker too serves its own slots, and links to nobody for that.

They behave as those on a link: bounded buffers, heads, ends and resets, and nothing is told within the call that
caused it. There is no peer to distrust here, so there are no frames.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

from gossip.errors import LocalProtocolError
from gossip.mux import MAX_STREAMS
from gossip.muxevents import Ended, Received, Replied, ResetCode, ResetReceived, StreamEvent, Writable
from gossip.muxframes import MAX_HEAD_B
from gossip.stream import Stream

BUFFER_B: Final = 262_144  # written and not read, before its writer should wait: one stream window of a link


class Loopback:
    """What stands for a link of a node to itself. Mutable: knows the streams that live.

    Args:
        node: the id of this node, which is at both ends.
        opened: is given the far end of each stream.
    """

    def __init__(self, node: str, opened: Callable[[Stream], None]) -> None:
        self.node = node
        self.is_live = True
        self._opened = opened
        self._live: dict[int, tuple[_Half, _Half]] = {}
        self._sids = count(1)
        self._loop = asyncio.get_running_loop()

    def open(self, kind: int, head: bytes) -> Stream:
        """Open a stream and return its near end.

        Raises:
            LocalProtocolError: this node stops, too many streams live, or the head is too long.
        """
        if not self.is_live:
            raise LocalProtocolError("this node stops", code="gone")
        if len(self._live) >= MAX_STREAMS:
            raise LocalProtocolError(f"{len(self._live)} streams to this node itself are open", code="too_many_streams")
        _check_head(head)
        sid = next(self._sids)
        near, far = self._live[sid] = _joined(partial(self._live.pop, sid, None))
        near.stream, far.stream = (Stream(half, sid, kind, head, self.node) for half in (near, far))
        self._loop.call_soon(self._opened, far.stream)
        return near.stream

    def close(self) -> None:
        """This node stops: what still lives is truncated, and nothing is opened any more."""
        self.is_live = False
        for halves in list(self._live.values()):
            for half in halves:
                half.hear(ResetReceived(half.stream.sid, ResetCode.TRUNCATED))
        self._live.clear()


class _Half:
    """One end of a stream; a `StreamHost` for it. Mutable."""

    __slots__ = (
        "_done",
        "_is_full",
        "_is_head_due",
        "_is_over",
        "_loop",
        "has_ended",
        "partner",
        "stream",
        "unread_b",
    )

    partner: "_Half"
    stream: Stream

    def __init__(self, *, is_acceptor: bool, done: Callable[[], object]) -> None:
        self.has_ended = False  # half-closed
        self.unread_b = 0  # what was written here and not read there
        self._done = done
        self._is_head_due = is_acceptor
        self._is_over = False  # reset, or its user is done with it: it hears nothing more
        self._is_full = False  # its writer waits, or should
        self._loop = asyncio.get_running_loop()

    def reply(self, _sid: int, head: bytes) -> None:
        """Send the head of an accepted stream."""
        _check_head(head)
        if not self._is_head_due or self.has_ended:
            raise LocalProtocolError("a stream is answered once, and before any data", code="bad_state")
        self._is_head_due = False
        self._tell(Replied(self.stream.sid, head))

    def write(self, _sid: int, data: bytes) -> None:
        """Queue bytes."""
        self._check_open()
        if not data:
            return
        self._is_head_due = False
        self.unread_b += len(data)
        self._is_full = self._is_full or self.unread_b >= BUFFER_B
        self._tell(Received(self.stream.sid, data))

    def has_room(self, _sid: int) -> bool:
        """Whether more may be queued."""
        return self._is_over or self.unread_b < BUFFER_B

    def consumed(self, _sid: int, n: int) -> None:
        """The application read n bytes."""
        self.partner.was_read(n)

    def end(self, _sid: int) -> None:
        """Half-close."""
        self._check_open()
        self.has_ended = True
        self._tell(Ended(self.stream.sid))
        if self.partner.has_ended:
            self._done()

    def reset(self, _sid: int, code: int) -> None:
        """End both directions."""
        self._is_over = True
        self._tell(ResetReceived(self.stream.sid, code))
        self._done()

    def forget(self, _sid: int) -> None:
        """Feed it no more; what it did not read it will not."""
        self._is_over = True
        self.partner.was_read(self.partner.unread_b)

    # what one half tells the other

    def was_read(self, n: int) -> None:
        """The other end read n bytes; whoever waits for room is told at half a buffer, as on a link."""
        self.unread_b -= n
        if self._is_full and 2 * self.unread_b <= BUFFER_B:
            self._is_full = False
            self._loop.call_soon(self.hear, Writable(self.stream.sid))

    def hear(self, event: StreamEvent) -> None:
        """Something happened to this end."""
        if not self._is_over:
            self._is_over = isinstance(event, ResetReceived)
            self.stream.on(event)

    def _tell(self, event: StreamEvent) -> None:
        self._loop.call_soon(self.partner.hear, event)

    def _check_open(self) -> None:
        if self.has_ended:
            raise LocalProtocolError(f"stream {self.stream.sid} has ended", code="bad_state")


def _joined(done: Callable[[], object]) -> tuple[_Half, _Half]:
    near, far = _Half(is_acceptor=False, done=done), _Half(is_acceptor=True, done=done)
    near.partner, far.partner = far, near
    return near, far


def _check_head(head: bytes) -> None:
    if len(head) > MAX_HEAD_B:
        raise LocalProtocolError(f"a head of {len(head)} bytes", code="too_long")
