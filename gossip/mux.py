"""TMX1: many streams on one encrypted link, without I/O.

`receive` takes a record's plaintext and says what happened; `next_record` gives the plaintext to send. Nothing
waits here: a stalled reader costs its own window. See docs/protocol-mux.md.
"""

from typing import Final

from gossip import muxevents as happened
from gossip import muxframes as wire
from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.muxevents import Event, ResetCode
from gossip.muxsend import Half, Outbox, Stream

MAX_STREAMS: Final = 4_096  # per opener; above it an ingress should use more workers
LINK_WINDOW_B: Final = 67_108_864  # 256 stalled readers; at 4 MiB fourteen of them stopped every other stream
RESET_BURST: Final = 1_000  # a client fleet that hangs up at once
RESETS_PER_S: Final = 500.0  # an ingress passes on every client that leaves; an attack brings far more

# Cheaper to look up than attributes of an Enum class, and every frame needs some.
_OPEN, _ENDING, _STOPPED, _DONE = Half


class Mux:
    """One end of a link's stream multiplexer. Both ends must be made with the same windows.

    Each end finishes a stream by `end` or `reset`; it lives until both did, or one reset it. On a stream that
    closed `reset`, `stop` and `consumed` do nothing; the other calls raise LocalProtocolError.

    Args:
        initiator: whether this end dialled the link; it opens the odd stream ids.
        stream_window_b: bytes a peer may send on one stream before they are consumed.
        link_window_b: the same for all streams of the link together.
        max_streams: streams that may live at once, for each opener.
    """

    def __init__(
        self,
        *,
        initiator: bool,
        stream_window_b: int = 262_144,
        link_window_b: int = LINK_WINDOW_B,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._window_b = stream_window_b
        self._link_window_b = link_window_b
        self._max_streams = max_streams
        self._streams: dict[int, Stream] = {}
        self._next_sid = 1 if initiator else 2
        self._peer_sid = 0 if initiator else -1  # the highest id the peer opened; +2 is its next
        self._ours = 0  # live streams we opened
        self._refusing = False  # we went away
        self._peer_gone = False  # it went away, or the link is lost
        self._received = self._consumed = 0  # bytes of DATA on the whole link
        self._recv_limit = link_window_b
        self._out = Outbox(link_window_b)
        # All that honest use can leave unsent: each live stream a few frames, a reset burst, control.
        self._max_urgent = 16 * max_streams + 4 * RESET_BURST
        self._events: list[Event] = []
        self._resets_left = float(RESET_BURST)
        self._reset_at = 0.0
        self._now = 0.0

    @property
    def open_streams(self) -> int:
        """Streams that live, of both openers."""
        return len(self._streams)

    @property
    def has_output(self) -> bool:
        """Whether `next_record()` would return a record."""
        return self._out.is_waiting

    # What the application asks for.

    def open(self, kind: int, head: bytes) -> int:
        """Open a stream and return its id.

        Raises:
            LocalProtocolError: the peer went away, too many streams live, or the head is too long.
        """
        if self._peer_gone or self._next_sid > wire.MAX_SID:
            raise LocalProtocolError("this link takes no new streams", hint="use another link", code="gone")
        if self._ours >= self._max_streams:
            raise LocalProtocolError(f"{self._ours} streams are open on this link", code="too_many_streams")
        self._check_head(head)
        sid = self._next_sid
        self._push(wire.open_frame(sid, kind, head))
        self._next_sid += 2
        self._ours += 1
        self._streams[sid] = Stream(sid, self._window_b, is_ours=True)
        return sid

    def reply(self, sid: int, head: bytes) -> None:
        """Answer the peer's stream with a head, once, before any data."""
        stream = self._live(sid)
        self._check_head(head)
        if stream.sending is _STOPPED:
            return
        if not stream.head_due or stream.sending is not _OPEN:
            raise LocalProtocolError(f"stream {sid} cannot be answered now", code="bad_state")
        stream.head_due = False
        self._out.urgent.append(wire.frame(wire.HEAD, sid, head))

    def send(self, sid: int, data: bytes) -> None:
        """Queue bytes. The caller waits for `Writable` while `room` is 0 or less; nothing is refused here."""
        stream = self._live(sid)
        if stream.sending is _STOPPED or not data:
            return
        if stream.sending is not _OPEN:
            raise LocalProtocolError(f"stream {sid} has ended", code="bad_state")
        stream.head_due = False
        stream.queue += data
        if len(stream.queue) >= wire.SEND_BUFFER_B:
            stream.is_full = True
        self._out.make_ready(stream)

    def room(self, sid: int) -> int:
        """Bytes to queue before the caller should wait for `Writable`; 0 or less means wait now."""
        return wire.SEND_BUFFER_B - len(self._live(sid).queue)

    def end(self, sid: int) -> None:
        """Close our half of a stream once what is queued has been sent."""
        stream = self._live(sid)
        if stream.sending is _ENDING or stream.sending is _DONE:
            raise LocalProtocolError(f"stream {sid} has ended", code="bad_state")
        if stream.queue:
            stream.sending = _ENDING
        else:
            self._out.end(sid)
            self._sending_done(stream)

    def reset(self, sid: int, code: int) -> None:
        """End both directions now and drop what is queued. Idempotent."""
        stream = self._streams.get(sid)
        if stream is not None:
            self._out.urgent.append(wire.coded_frame(wire.RESET, sid, code))
            self._close(stream)

    def stop(self, sid: int, code: int) -> None:
        """Tell the peer that nothing more of its half will be read; what arrives is dropped. Idempotent."""
        stream = self._streams.get(sid)
        if stream is None or stream.is_unwanted:
            return
        stream.is_unwanted = True
        if stream.receiving is _OPEN:
            self._out.urgent.append(wire.coded_frame(wire.STOP, sid, code))
        self._give_back_unread(stream)

    def consumed(self, sid: int, n: int) -> None:
        """Say that the application has read `n` more bytes; credit goes out at half a window."""
        stream = self._streams.get(sid)
        if stream is None or stream.is_unwanted:
            return
        if not 0 <= n <= stream.received - stream.consumed:
            raise LocalProtocolError(f"stream {sid} has no {n} unread bytes", code="bad_state")
        stream.consumed += n
        limit = stream.consumed + self._window_b
        if stream.receiving is _OPEN and 2 * (limit - stream.recv_limit) >= self._window_b:
            stream.recv_limit = limit
            self._out.urgent.append(wire.credit_frame(sid, limit))
        self._give_back(n)

    def control(self, payload: bytes) -> None:
        """Queue a gossip frame; LocalProtocolError when too long or 4 MiB (or 1,024 frames) wait unsent."""
        self._out.control(payload)

    def go_away(self, code: int) -> None:
        """Take no new streams from the peer: it is told, and what it still opens is REFUSED. Idempotent."""
        if not self._refusing:
            self._refusing = True
            self._out.urgent.append(wire.coded_frame(wire.GOAWAY, 0, code))

    # Records out.

    def next_record(self, limit: int = wire.MAX_RECORD_B) -> bytes | None:
        """The plaintext of the next record, None when nothing may be sent.

        Bulk data stops at `limit` bytes of the record; urgent frames may use a whole record.
        """
        out = self._out
        record = out.next_record(limit)
        if out.relieved:
            self._events.extend(happened.Writable(stream.sid) for stream in out.relieved)
            out.relieved.clear()
        if out.ended:
            for stream in out.ended:
                self._sending_done(stream)
            out.ended.clear()
        return record

    def drained(self) -> list[Event]:
        """`Writable` for what `next_record` made room for; call after it. `receive` returns them too."""
        events, self._events = self._events, []
        return events

    # Records in.

    def receive(self, record: bytes, *, now: float = 0.0) -> list[Event]:
        """What one received record says. After an error the link is dropped and `lost` called.

        Args:
            record: the plaintext.
            now: monotonic seconds, for the peer's reset budget.

        Raises:
            RemoteProtocolError: the peer broke the protocol, its windows or its reset budget.
        """
        self._now = now
        for kind, flags, sid, payload in wire.decode(record):
            _MOVES[kind](self, sid, flags, payload)
        return self.drained()

    def lost(self) -> list[Event]:
        """The link ended: every live stream is TRUNCATED, even one whose peer half had ended."""
        events = self.drained()
        events.extend(happened.ResetReceived(sid, ResetCode.TRUNCATED) for sid in self._streams)
        self._streams.clear()
        self._out.clear()
        self._ours = 0
        self._peer_gone = True
        return events

    def _on_open(self, sid: int, flags: int, payload: bytes) -> None:
        if (sid ^ self._peer_sid) & 1 or sid <= self._peer_sid:
            raise RemoteProtocolError(f"stream {sid} cannot be opened by the peer", code="protocol")
        if len(self._out.urgent) >= self._max_urgent:
            raise RemoteProtocolError("the peer opens streams but reads nothing", code="overload")
        self._peer_sid = sid
        if self._refusing or len(self._streams) - self._ours >= self._max_streams:
            self._out.urgent.append(wire.coded_frame(wire.RESET, sid, ResetCode.REFUSED))
            return
        stream = self._streams[sid] = Stream(sid, self._window_b, is_ours=False)
        self._events.append(happened.Opened(sid, payload[0], payload[1:]))
        if flags:
            self._receiving_done(stream)

    def _on_head(self, sid: int, flags: int, payload: bytes) -> None:
        stream = self._past_or_live(sid)
        if stream is None:
            return
        if not stream.head_expected or stream.receiving is _DONE:
            raise RemoteProtocolError(f"a misplaced head on stream {sid}", code="protocol")
        stream.head_expected = False
        self._events.append(happened.Replied(sid, payload))
        if flags:
            self._receiving_done(stream)

    def _on_data(self, sid: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        stream = self._past_or_live(sid)
        if self._received > self._recv_limit:
            raise RemoteProtocolError("the peer overran the link's window", code="flow")
        if stream is None:
            self._give_back(size)
            return
        if stream.receiving is _DONE or not (size or flags):  # an empty frame only ever carries END
            raise RemoteProtocolError(f"misplaced data on stream {sid}", code="protocol")
        stream.received += size
        if stream.received > stream.recv_limit:
            raise RemoteProtocolError(f"the peer overran the window of stream {sid}", code="flow")
        stream.head_expected = False
        if stream.is_unwanted:
            self._give_back_unread(stream)
        elif size:
            self._events.append(happened.Received(sid, payload))
        if flags:
            self._receiving_done(stream)

    def _on_credit(self, sid: int, _flags: int, payload: bytes) -> None:
        offset = int.from_bytes(payload)
        if sid == 0:
            self._check_credit(offset - self._out.sent, self._link_window_b)
            self._out.send_limit = max(self._out.send_limit, offset)
            return
        stream = self._past_or_live(sid)
        if stream is not None:
            self._check_credit(offset - stream.sent, self._window_b)
            stream.send_limit = max(stream.send_limit, offset)
            self._out.make_ready(stream)

    def _on_stop(self, sid: int, _flags: int, payload: bytes) -> None:
        stream = self._past_or_live(sid)
        if stream is None or stream.sending is _STOPPED or stream.sending is _DONE:
            return
        was_ending = stream.sending is _ENDING
        stream.sending = _STOPPED
        self._out.drop(stream)
        self._events.append(happened.Stopped(sid, wire.code_in(payload)))
        if was_ending:
            self._out.end(sid)
            self._sending_done(stream)

    def _on_reset(self, sid: int, _flags: int, payload: bytes) -> None:
        stream = self._past_or_live(sid)
        if stream is None:
            return
        self._events.append(happened.ResetReceived(sid, wire.code_in(payload)))
        self._close(stream)
        if not self._is_ours(sid):
            self._charge_reset()

    def _on_goaway(self, _sid: int, _flags: int, payload: bytes) -> None:
        if not self._peer_gone:
            self._peer_gone = True
            self._events.append(happened.WentAway(wire.code_in(payload)))

    def _on_control(self, _sid: int, _flags: int, payload: bytes) -> None:
        self._events.append(happened.Control(payload))

    def _is_ours(self, sid: int) -> bool:
        return not (sid ^ self._next_sid) & 1

    def _live(self, sid: int) -> Stream:
        stream = self._streams.get(sid)
        if stream is None:
            raise LocalProtocolError(f"stream {sid} is not open", code="stream_closed")
        return stream

    def _past_or_live(self, sid: int) -> Stream | None:
        """The live stream, or None for one that has closed; ids never opened break the protocol."""
        stream = self._streams.get(sid)
        if stream is None and not (sid < self._next_sid if self._is_ours(sid) else sid <= self._peer_sid):
            raise RemoteProtocolError(f"stream {sid} was never opened", code="protocol")
        return stream

    def _check_head(self, head: bytes) -> None:
        if len(head) > wire.MAX_HEAD_B:
            raise LocalProtocolError(f"a head of {len(head)} bytes", code="too_long")

    def _check_credit(self, ahead_b: int, window_b: int) -> None:
        # An honest peer grants a window beyond what it read, and it cannot have read more than we sent.
        if ahead_b > window_b:
            raise RemoteProtocolError("the peer granted more than its window", code="flow")

    def _push(self, written: bytes) -> None:
        if len(self._out.urgent) >= self._max_urgent:
            raise LocalProtocolError("the peer reads too slowly", code="queue_full")
        self._out.urgent.append(written)

    def _charge_reset(self) -> None:
        earned = max(0.0, self._now - self._reset_at) * RESETS_PER_S
        self._reset_at = self._now
        self._resets_left = min(RESET_BURST, self._resets_left + earned) - 1
        if self._resets_left < 0:
            self.go_away(ResetCode.OVERLOAD)
            raise RemoteProtocolError("the peer opens and resets streams too fast", code="overload")

    def _sending_done(self, stream: Stream) -> None:
        stream.sending = _DONE
        if stream.receiving is _DONE:
            self._close(stream)

    def _receiving_done(self, stream: Stream) -> None:
        self._events.append(happened.Ended(stream.sid))
        stream.receiving = _DONE
        if stream.sending is _DONE:
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        self._out.drop(stream)
        self._give_back_unread(stream)
        del self._streams[stream.sid]
        if self._is_ours(stream.sid):
            self._ours -= 1

    def _give_back_unread(self, stream: Stream) -> None:
        unread_b = stream.received - stream.consumed
        stream.consumed = stream.received
        self._give_back(unread_b)

    def _give_back(self, size: int) -> None:
        self._consumed += size
        limit = self._consumed + self._link_window_b
        if 2 * (limit - self._recv_limit) >= self._link_window_b:
            self._recv_limit = limit
            self._out.urgent.append(wire.credit_frame(0, limit))


_MOVES: Final = {
    wire.OPEN: Mux._on_open,
    wire.HEAD: Mux._on_head,
    wire.DATA: Mux._on_data,
    wire.CREDIT: Mux._on_credit,
    wire.STOP: Mux._on_stop,
    wire.RESET: Mux._on_reset,
    wire.GOAWAY: Mux._on_goaway,
    wire.CTL: Mux._on_control,
}
