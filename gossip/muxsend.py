"""What one end of a link still has to send: the state of its streams and the two-priority queue.

`Outbox` packs what waits into records; when anything may be sent is `gossip.mux`.
"""

from collections import deque
from enum import Enum

from gossip import muxframes as wire
from gossip.errors import LocalProtocolError


class Half(Enum):
    """One direction of a stream: OPEN, then for a sender perhaps ENDING or STOPPED, then DONE."""

    OPEN = 1
    ENDING = 2  # END waits behind queued bytes
    STOPPED = 3  # the receiver wants no more, END is still to be sent
    DONE = 4  # END was queued or arrived


class Stream:
    """What one end knows of a live stream; its Mux and that Mux's Outbox change it."""

    __slots__ = (
        "consumed",  # bytes the application has read
        "head_due",  # our HEAD may still be sent (acceptor only)
        "head_expected",  # the peer's HEAD may still come (opener only)
        "is_full",  # the sender was told to wait for Writable
        "is_ready",  # it is in the round robin: bytes queued and stream credit left
        "is_unwanted",  # we sent STOP: what still arrives is dropped
        "queue",  # bytes not yet in a record
        "received",
        "receiving",
        "recv_limit",  # offset granted to the peer
        "send_limit",  # offset granted by the peer
        "sending",
        "sent",
        "sid",
    )

    def __init__(self, sid: int, window_b: int, *, is_ours: bool) -> None:
        self.sid = sid
        self.queue = bytearray()
        self.sending = self.receiving = Half.OPEN
        self.sent = self.received = self.consumed = 0
        self.send_limit = self.recv_limit = window_b
        self.head_due = not is_ours
        self.head_expected = is_ours
        self.is_full = self.is_ready = self.is_unwanted = False


class Outbox:
    """What waits to be sent: urgent frames, first in first out; behind them bytes, streams taking turns.

    The Mux appends urgent frames and calls the methods; `next_record` takes away. It leaves the streams whose
    END it wrote in `ended`, and those that have room again in `relieved`, for the Mux to clear.
    """

    def __init__(self, link_window_b: int) -> None:
        self.urgent: deque[bytes] = deque()
        self.sent = 0  # bytes of DATA on the whole link
        self.send_limit = link_window_b
        self.ended: list[Stream] = []
        self.relieved: list[Stream] = []
        self._control_b = 0  # CTL among the urgent frames, as billed
        self._ready: deque[Stream] = deque()
        self._turn_b = wire.MAX_DATA_B  # what the first ready stream may still send before the next one

    @property
    def is_waiting(self) -> bool:
        """Whether something may be sent now."""
        return bool(self.urgent) or (bool(self._ready) and self.sent < self.send_limit)

    def control(self, payload: bytes) -> None:
        """Queue a CTL frame; full means that the peer reads too slowly for gossip."""
        billed = max(len(payload), wire.CONTROL_FLOOR_B)
        if len(payload) > wire.MAX_CONTROL_B or self._control_b + billed > wire.MAX_CONTROL_QUEUED_B:
            raise LocalProtocolError(f"no room for {len(payload)} bytes of control", code="queue_full")
        self._control_b += billed
        self.urgent.append(wire.frame(wire.CTL, 0, payload))

    def end(self, sid: int) -> None:
        """Queue END for a stream without queued bytes: on its OPEN or HEAD if that is the last frame here."""
        ended = wire.with_end(self.urgent[-1], sid) if self.urgent else None
        if ended is None:
            self.urgent.append(wire.data_header(sid, 0, wire.END))
        else:
            self.urgent[-1] = ended

    def make_ready(self, stream: Stream) -> None:
        """Let a stream take turns if it has both bytes and credit."""
        if not stream.is_ready and stream.queue and stream.sent < stream.send_limit:
            stream.is_ready = True
            self._ready.append(stream)

    def drop(self, stream: Stream) -> None:
        """Forget the queued bytes of a stream."""
        stream.queue = bytearray()
        stream.is_full = False
        self._unready(stream)

    def clear(self) -> None:
        """Forget everything: the link is gone."""
        self.urgent.clear()
        self._ready.clear()
        self._control_b = 0

    def next_record(self, limit: int) -> bytes | None:
        """The next record; bulk stops at `limit` bytes, urgent frames may fill the record."""
        parts: list[bytes | bytearray] = []
        size = 0
        urgent = self.urgent
        while urgent and size + len(urgent[0]) <= wire.MAX_RECORD_B:
            written = urgent.popleft()
            size += len(written)
            parts.append(written)
            if written[0] == wire.CTL:
                self._control_b -= max(len(written) - wire.HEADER_B, wire.CONTROL_FLOOR_B)
        if self._ready and not urgent:  # never past an OPEN that still waits
            self._pack_bulk(parts, min(limit, wire.MAX_RECORD_B) - size)
        return b"".join(parts) if parts else None

    def _pack_bulk(self, parts: list[bytes | bytearray], space_b: int) -> None:
        while self._ready and space_b > wire.HEADER_B:
            stream = self._ready[0]
            size = min(
                len(stream.queue),
                self._turn_b,
                stream.send_limit - stream.sent,
                self.send_limit - self.sent,
                space_b - wire.HEADER_B,
            )
            if size <= 0:  # the link window is used up
                return
            taken = self._take(stream, size)
            is_last = stream.sending is Half.ENDING and not stream.queue
            parts.append(wire.data_header(stream.sid, size, wire.END if is_last else 0))
            parts.append(taken)
            space_b -= wire.HEADER_B + size
            self._next_turn(stream, size)
            if is_last:
                self.ended.append(stream)

    def _take(self, stream: Stream, size: int) -> bytearray:
        self.sent += size
        stream.sent += size
        taken = stream.queue
        if size == len(taken):
            stream.queue = bytearray()
        else:
            taken = taken[:size]
            del stream.queue[:size]
        if stream.is_full and 2 * len(stream.queue) <= wire.SEND_BUFFER_B:
            stream.is_full = False
            self.relieved.append(stream)
        return taken

    def _next_turn(self, stream: Stream, size: int) -> None:
        # A stream cut short by the record or the link keeps the rest of its turn: round robin by bytes.
        self._turn_b -= size
        if not stream.queue or stream.sent >= stream.send_limit:
            self._unready(stream)
        elif self._turn_b <= 0:
            self._ready.rotate(-1)
            self._turn_b = wire.MAX_DATA_B

    def _unready(self, stream: Stream) -> None:
        if stream.is_ready:
            if stream is self._ready[0]:
                self._turn_b = wire.MAX_DATA_B
            stream.is_ready = False
            self._ready.remove(stream)
