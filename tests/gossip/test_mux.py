from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import pack
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossip import muxframes as wire
from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.mux import Mux
from gossip.muxevents import (
    Control,
    Ended,
    Event,
    Opened,
    Received,
    Replied,
    ResetCode,
    ResetReceived,
    Stopped,
    WentAway,
    Writable,
)
from registry.errors import TelaError

WINDOW_B = 262_144
LINK_WINDOW_B = 4_194_304
E = TypeVar("E")


def two(max_streams: int = 1_024) -> tuple[Mux, Mux]:
    windows = {"link_window_b": LINK_WINDOW_B, "max_streams": max_streams}
    return Mux(initiator=True, **windows), Mux(initiator=False, **windows)


def flow(source: Mux, sink: Mux) -> list[Event]:
    events: list[Event] = []
    while (record := source.next_record()) is not None:
        events += sink.receive(record)
    return events


def settle(a: Mux, b: Mux) -> None:
    while a.has_output or b.has_output:
        flow(a, b)
        flow(b, a)


def only(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def opened(a: Mux, b: Mux) -> int:
    sid = a.open(1, b"head")
    assert flow(a, b) == [Opened(sid, 1, b"head")]
    return sid


def code_of(mux: Mux, record: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as broken:
        mux.receive(record)
    return broken.value.code


def raw(kind: int, sid: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return pack("!BBHI", kind, flags, len(payload), sid) + payload


def refused_after(error: type[TelaError], attempt: Callable[[int], object]) -> tuple[int, str]:
    """How many times something could be done before it was refused, and the code of the refusal."""
    for number in range(100_000):
        try:
            attempt(number)
        except error as refusal:
            return number, refusal.code
    raise AssertionError("it was never refused")


@dataclass
class End:
    """An application on one mux: it sends what `todo` holds and reads everything but `unread` streams."""

    mux: Mux
    todo: dict[int, int] = field(default_factory=dict)  # bytes still to send, by stream
    got: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    unread: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    answer_b: int = 0

    def pump(self) -> None:
        for sid in list(self.todo):
            while sid not in self.waiting and (left := self.todo[sid]):
                size = min(left, 10_000)
                self.mux.send(sid, bytes(size))
                self.todo[sid] -= size
                if self.mux.room(sid) <= 0:
                    self.waiting.add(sid)
            if not self.todo[sid]:
                self.mux.end(sid)
                del self.todo[sid]

    def take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Opened(sid):
                    self.mux.reply(sid, b"")
                    self.todo[sid] = self.answer_b
                case Received(sid, data):
                    self.got[sid] += len(data)
                    if sid not in self.unread:
                        self.mux.consumed(sid, len(data))
                case Ended(sid):
                    self.ended.add(sid)
                case Writable(sid):
                    self.waiting.discard(sid)
                case _:
                    pass


class Pipe:
    """One direction of a byte pipe that holds `capacity` bytes, records length-prefixed on it."""

    def __init__(self, source: End, sink: End, capacity: int) -> None:
        self.source, self.sink, self.capacity = source, sink, capacity
        self.unwritten = b""
        self.inbox = bytearray()

    def turn(self) -> int:
        """Let at most one pipeful pass, and return its bytes."""
        moved = 0
        while moved < self.capacity:
            if not self.unwritten:
                record = self.source.mux.next_record(4_096)
                self.source.take(self.source.mux.drained())
                if record is None:
                    break
                self.unwritten = pack("!I", len(record)) + record
            part = self.unwritten[: self.capacity - moved]
            self.unwritten = self.unwritten[len(part) :]
            self.inbox += part
            moved += len(part)
        self._deliver()
        return moved

    def _deliver(self) -> None:
        while len(self.inbox) >= 4:
            stop = 4 + int.from_bytes(self.inbox[:4])
            if len(self.inbox) < stop:
                return
            record = bytes(self.inbox[4:stop])
            del self.inbox[:stop]
            self.sink.take(self.sink.mux.receive(record))


def run(a: End, b: End, capacity: int, turns: int = 1_000_000) -> None:
    there, back = Pipe(a, b, capacity), Pipe(b, a, capacity)
    for _ in range(turns):
        a.pump()
        b.pump()
        if not there.turn() + back.turn():
            return
    raise AssertionError("the muxes never came to rest")


# One stream.


def test_a_request_and_its_answer_take_one_record_each():
    a, b = two()
    sid = a.open(1, b"POST /v1")
    a.send(sid, b"question")
    a.end(sid)
    assert flow(a, b) == [Opened(sid, 1, b"POST /v1"), Received(sid, b"question"), Ended(sid)]
    b.reply(sid, b"200")
    b.send(sid, b"ans")
    b.send(sid, b"wer")
    b.end(sid)
    record = b.next_record()
    assert record is not None
    assert not b.has_output
    assert a.receive(record) == [Replied(sid, b"200"), Received(sid, b"answer"), Ended(sid)]
    assert a.open_streams == b.open_streams == 0


def test_an_end_without_data_rides_on_the_head():
    a, b = two()
    sid = a.open(2, b"ask")
    a.end(sid)
    record = a.next_record()
    assert record == raw(wire.OPEN, sid, b"\x02ask", wire.END)
    assert b.receive(record) == [Opened(sid, 2, b"ask"), Ended(sid)]
    b.reply(sid, b"no")
    b.end(sid)
    assert flow(b, a) == [Replied(sid, b"no"), Ended(sid)]
    assert a.open_streams == b.open_streams == 0


def test_the_initiator_opens_odd_ids_and_the_other_even_ones():
    a, b = two()
    assert [a.open(1, b""), a.open(1, b""), b.open(1, b""), b.open(1, b"")] == [1, 3, 2, 4]


def test_the_opener_may_end_first_and_still_read():
    a, b = two()
    sid = opened(a, b)
    a.end(sid)
    flow(a, b)
    b.send(sid, b"late")
    assert flow(b, a) == [Received(sid, b"late")]


def test_the_acceptor_may_end_first_and_still_read():
    a, b = two()
    sid = opened(a, b)
    b.end(sid)
    assert flow(b, a) == [Ended(sid)]
    a.send(sid, b"more")
    assert flow(a, b) == [Received(sid, b"more")]


def test_end_waits_for_all_queued_bytes():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(WINDOW_B + 1))
    a.end(sid)
    assert not only(flow(a, b), Ended)
    b.consumed(sid, WINDOW_B)
    flow(b, a)
    assert flow(a, b) == [Received(sid, b"\0"), Ended(sid)]


def test_what_may_not_be_done_with_a_stream_is_our_error():
    a, b = two()
    sid = opened(a, b)
    with pytest.raises(LocalProtocolError):
        a.reply(sid, b"not mine to answer")
    b.send(sid, b"data")
    with pytest.raises(LocalProtocolError):
        b.reply(sid, b"after data")
    b.end(sid)
    with pytest.raises(LocalProtocolError):
        b.end(sid)
    with pytest.raises(LocalProtocolError):
        b.send(sid, b"after end")
    with pytest.raises(LocalProtocolError):
        a.consumed(sid, 1)


def test_a_head_is_sent_once():
    a, b = two()
    sid = opened(a, b)
    b.reply(sid, b"200")
    with pytest.raises(LocalProtocolError):
        b.reply(sid, b"200")


def test_a_head_longer_than_its_limit_is_our_error():
    a, b = two()
    sid = opened(a, b)
    for attempt in (lambda: a.open(1, bytes(wire.MAX_HEAD_B + 1)), lambda: b.reply(sid, bytes(wire.MAX_HEAD_B + 1))):
        with pytest.raises(LocalProtocolError):
            attempt()
    assert flow(a, b) == []


# Ending early.


def test_reset_ends_both_directions_and_drops_what_is_queued():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, b"never mind")
    a.reset(sid, ResetCode.CANCEL)
    a.reset(sid, ResetCode.CANCEL)
    assert flow(a, b) == [ResetReceived(sid, ResetCode.CANCEL)]
    assert a.open_streams == b.open_streams == 0
    assert not b.has_output


def test_a_reset_of_a_half_open_stream_closes_it():
    a, b = two()
    sid = a.open(1, b"")
    a.end(sid)
    a.reset(sid, ResetCode.TIMEOUT)
    assert flow(a, b) == [Opened(sid, 1, b""), Ended(sid), ResetReceived(sid, ResetCode.TIMEOUT)]
    assert b.open_streams == 0


def test_a_reset_crossing_an_end_is_harmless():
    a, b = two()
    sid = opened(a, b)
    a.end(sid)
    flow(a, b)
    b.send(sid, b"all")
    b.end(sid)
    answer = b.next_record()
    a.reset(sid, ResetCode.CANCEL)
    assert answer is not None
    assert a.receive(answer) == []
    assert flow(a, b) == []
    assert a.open_streams == b.open_streams == 0


def test_an_unknown_reset_code_stays_a_number():
    a, b = two()
    sid = opened(a, b)
    a.reset(sid, 77_777)
    assert flow(a, b) == [ResetReceived(sid, 77_777)]


def test_stop_tells_the_sender_and_drops_its_queue():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(2 * WINDOW_B))
    flow(a, b)
    b.stop(sid, ResetCode.OVERLOAD)
    b.stop(sid, ResetCode.OVERLOAD)
    assert flow(b, a) == [Stopped(sid, ResetCode.OVERLOAD)]
    a.send(sid, b"nobody listens")
    assert not a.has_output
    assert a.room(sid) > 0


def test_a_stopped_stream_closes_when_both_ends_ended_and_its_late_bytes_are_dropped():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(2 * WINDOW_B))
    a.end(sid)
    crossing = a.next_record()
    b.stop(sid, ResetCode.CANCEL)
    assert b.receive(crossing or b"") == []
    assert flow(b, a) == [Stopped(sid, ResetCode.CANCEL)]
    assert flow(a, b) == [Ended(sid)]
    b.consumed(sid, 5)
    b.end(sid)
    assert flow(b, a) == [Ended(sid)]
    assert a.open_streams == b.open_streams == 0


def test_late_calls_on_a_stream_that_closed_are_ignored_or_refused():
    a, b = two()
    sid = opened(a, b)
    a.reset(sid, ResetCode.CANCEL)
    a.consumed(sid, 5)
    a.stop(sid, ResetCode.CANCEL)
    for attempt in (lambda: a.send(sid, b"x"), lambda: a.end(sid), lambda: a.room(sid)):
        with pytest.raises(LocalProtocolError) as closed:
            attempt()
        assert closed.value.code == "stream_closed"


def test_a_lost_link_truncates_every_live_stream_and_nothing_ends_clean():
    a, b = two()
    first, second = opened(a, b), opened(b, a)
    a.send(first, b"on its way")
    assert a.lost() == [ResetReceived(sid, ResetCode.TRUNCATED) for sid in (first, second)]
    assert a.open_streams == 0
    assert not a.has_output
    with pytest.raises(LocalProtocolError):
        a.open(1, b"")


def test_events_before_a_protocol_error_are_not_lost_with_it():
    a, b = two()
    sid = opened(a, b)
    a.end(sid)
    flow(a, b)
    b.end(sid)
    settle(a, b)
    sid = opened(a, b)
    bad = raw(wire.DATA, sid, b"x", wire.END) + raw(wire.DATA, sid, b"y")
    assert code_of(b, bad) == "protocol"
    assert b.lost() == [Received(sid, b"x"), Ended(sid), ResetReceived(sid, ResetCode.TRUNCATED)]


# Going away, and how many.


def test_going_away_refuses_new_streams_and_drains_old_ones():
    a, b = two()
    sid = opened(a, b)
    b.go_away(ResetCode.GONE)
    b.go_away(ResetCode.GONE)
    crossing = a.open(1, b"too late")
    assert flow(a, b) == []
    assert flow(b, a) == [WentAway(ResetCode.GONE), ResetReceived(crossing, ResetCode.REFUSED)]
    with pytest.raises(LocalProtocolError) as gone:
        a.open(1, b"")
    assert gone.value.code == "gone"
    a.send(sid, b"still here")
    a.end(sid)
    assert flow(a, b) == [Received(sid, b"still here"), Ended(sid)]
    b.end(sid)
    flow(b, a)
    assert a.open_streams == b.open_streams == 0


def test_the_end_that_goes_away_may_still_open():
    a, b = two()
    b.go_away(ResetCode.GONE)
    assert flow(a, b) == []
    flow(b, a)
    assert opened(b, a) == 2


def test_more_streams_than_allowed_are_refused_here_and_there():
    a, b = Mux(initiator=True, max_streams=3), Mux(initiator=False, max_streams=2)
    sids = [a.open(1, b"") for _ in range(3)]
    with pytest.raises(LocalProtocolError) as many:
        a.open(1, b"")
    assert many.value.code == "too_many_streams"
    flow(a, b)
    assert flow(b, a) == [ResetReceived(sids[2], ResetCode.REFUSED)]
    assert a.open_streams == b.open_streams == 2


def test_a_stream_counts_until_both_ends_are_done():
    a, b = two(max_streams=1)
    sid = opened(a, b)
    a.end(sid)
    flow(a, b)
    with pytest.raises(LocalProtocolError):
        a.open(1, b"")
    b.end(sid)
    flow(b, a)
    assert opened(a, b) > sid


def test_65535_streams_live_at_once_and_close():
    a, b = two(max_streams=65_535)
    sids = [a.open(1, b"") for _ in range(65_535)]
    flow(a, b)
    assert b.open_streams == 65_535
    for sid in sids:
        a.end(sid)
        b.end(sid)
    settle(a, b)
    assert a.open_streams == b.open_streams == 0


def test_counters_return_to_zero_after_10000_streams_and_no_credit_is_lost():
    a, b = two()
    for number in range(10_000):
        sid = a.open(1, b"")
        a.send(sid, bytes(5_000))
        b.receive(a.next_record() or b"")
        if number % 4 == 0:
            b.stop(sid, ResetCode.CANCEL)
        if number % 2:  # bytes that nobody reads, and bytes that come after the end
            b.reset(sid, ResetCode.INTERNAL)
            a.send(sid, bytes(2_000))
        else:
            a.end(sid)
            b.end(sid)
        settle(a, b)
    assert a.open_streams == b.open_streams == 0
    a_end, b_end = End(a), End(b)
    a_end.todo[a.open(1, b"")] = 2 * LINK_WINDOW_B
    run(a_end, b_end, 100_000)
    assert sum(b_end.got.values()) == 2 * LINK_WINDOW_B


def test_ten_thousand_rapid_resets_end_the_link_after_their_burst():
    a, b = two()

    def rush(_number: int) -> None:
        a.reset(a.open(1, b""), ResetCode.CANCEL)
        flow(a, b)

    assert refused_after(RemoteProtocolError, rush) == (1_000, "overload")
    assert flow(b, a)[-1] == WentAway(ResetCode.OVERLOAD)


def test_resets_at_a_human_pace_never_end_the_link():
    a, b = two()
    for number in range(3_000):
        a.reset(a.open(1, b""), ResetCode.CANCEL)
        b.receive(a.next_record() or b"", now=number / 33)
    assert b.open_streams == 0


def test_a_peer_that_opens_but_reads_nothing_is_dropped_before_refusals_pile_up():
    b = Mux(initiator=False, max_streams=1)
    held, code = refused_after(RemoteProtocolError, lambda number: b.receive(wire.open_frame(2 * number + 1, 1, b"")))
    assert held < 5_000
    assert code == "overload"


# Flow control.


def test_a_transfer_of_ten_windows_passes_both_ways():
    a, b = two()
    a_end, b_end = End(a), End(b, answer_b=10 * WINDOW_B)
    sid = a.open(1, b"")
    a_end.todo[sid] = 10 * WINDOW_B
    run(a_end, b_end, 50_000)
    assert a_end.got[sid] == b_end.got[sid] == 10 * WINDOW_B
    assert a.open_streams == b.open_streams == 0


@pytest.mark.parametrize(("capacity", "size"), [(1, 60), (7, 300), (1_024, 20_000), (65_536, 400_000)])
def test_200_streams_both_ways_through_a_small_pipe_all_finish(capacity: int, size: int):
    a, b = two()
    a_end, b_end = End(a, answer_b=size), End(b, answer_b=size)
    for end in (a_end, b_end):
        for _ in range(100):
            end.todo[end.mux.open(1, b"h")] = size
    run(a_end, b_end, capacity)
    assert len(a_end.ended) == len(b_end.ended) == 200
    assert set(a_end.got.values()) == set(b_end.got.values()) == {size}
    assert a.open_streams == b.open_streams == 0


def test_a_reader_that_never_reads_costs_its_window_and_no_neighbour_waits():
    a, b = two()
    a_end, b_end = End(a), End(b)
    stalled = a.open(1, b"")
    neighbours = [a.open(1, b"") for _ in range(25)]
    b_end.unread.add(stalled)
    for sid in (stalled, *neighbours):
        a_end.todo[sid] = 4 * WINDOW_B
    run(a_end, b_end, 64_000)
    assert [b_end.got[sid] for sid in neighbours] == [4 * WINDOW_B] * 25
    assert b_end.got[stalled] == WINDOW_B
    assert a.room(stalled) > -10_000  # queued at the sender: its buffer and the last piece


def test_no_credit_is_granted_before_the_application_reads():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(WINDOW_B))
    flow(a, b)
    assert not b.has_output
    b.consumed(sid, WINDOW_B // 2 - 1)
    assert not b.has_output
    b.consumed(sid, 1)
    assert b.next_record() == wire.credit_frame(sid, WINDOW_B + WINDOW_B // 2)


def test_unread_readers_together_never_hold_more_than_the_link_window():
    a, b = two()
    for _ in range(100):
        a.send(a.open(1, b""), bytes(WINDOW_B))
    held = sum(len(event.data) for event in only(flow(a, b), Received))
    assert held == LINK_WINDOW_B


def test_resetting_unread_streams_lets_the_link_go_on():
    a, b = two()
    sids = [a.open(1, b"") for _ in range(20)]
    for sid in sids:
        a.send(sid, bytes(WINDOW_B))
    arrived = only(flow(a, b), Received)
    assert sum(len(event.data) for event in arrived) == LINK_WINDOW_B
    held = sum(len(event.data) for event in arrived if event.sid in sids[16:])
    for sid in sids[:16]:
        b.reset(sid, ResetCode.FLOW_STALL)
    assert len(only(flow(b, a), ResetReceived)) == 16
    assert sum(len(event.data) for event in only(flow(a, b), Received)) == 4 * WINDOW_B - held


def test_late_bytes_of_stopped_streams_are_credited_before_they_close():
    a, b = two()
    sids = [a.open(1, b"") for _ in range(32)]
    for sid in sids:
        a.send(sid, bytes(WINDOW_B // 2))
    crossing = [a.next_record() or b"" for _ in range(40)]
    b.receive(crossing[0])
    for sid in sids:
        b.stop(sid, ResetCode.CANCEL)
    for record in crossing[1:]:
        b.receive(record)
    assert wire.credit_frame(0, LINK_WINDOW_B * 3 // 2)[:8] in (b.next_record() or b"")


def test_no_stream_credit_is_granted_after_the_end():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(WINDOW_B))
    a.end(sid)
    flow(a, b)
    b.consumed(sid, WINDOW_B)
    assert not b.has_output


def test_the_sender_is_told_to_wait_and_then_that_there_is_room():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(a.room(sid) - 1))
    assert a.room(sid) == 1
    a.send(sid, b"xx")
    assert a.room(sid) == -1
    while a.room(sid) < 131_072:
        assert a.drained() == []
        b.receive(a.next_record() or b"")
    assert a.drained() == [Writable(sid)]
    assert a.drained() == []


def test_writable_also_comes_with_the_next_record_received():
    a, b = two()
    sid = opened(a, b)
    a.send(sid, bytes(WINDOW_B))
    flow(a, b)
    b.control(b"")
    assert flow(b, a) == [Writable(sid), Control(b"")]


@pytest.mark.parametrize(("stream_b", "link_b"), [(10, 100), (100, 10)])
def test_a_peer_that_overruns_a_window_is_a_flow_error(stream_b: int, link_b: int):
    b = Mux(initiator=False, stream_window_b=stream_b, link_window_b=link_b)
    b.receive(wire.open_frame(1, 1, b"") + raw(wire.DATA, 1, bytes(10)))
    assert code_of(b, raw(wire.DATA, 1, b"x")) == "flow"


def test_data_for_streams_that_closed_counts_against_the_link_window():
    b = Mux(initiator=False, link_window_b=1_000)
    b.receive(wire.open_frame(1, 1, b""))
    b.reset(1, ResetCode.CANCEL)
    for _ in range(100):
        assert b.receive(raw(wire.DATA, 1, bytes(400))) == []
    assert code_of(b, raw(wire.DATA, 1, bytes(1_001))) == "flow"


@pytest.mark.parametrize("sid", [0, 1])
def test_credit_beyond_the_window_is_a_flow_error(sid: int):
    a, b = two()
    opened(a, b)
    window_b = WINDOW_B if sid else LINK_WINDOW_B
    a.receive(wire.credit_frame(sid, window_b))
    assert code_of(a, wire.credit_frame(sid, window_b + 1)) == "flow"
    assert code_of(two()[0], wire.credit_frame(0, 2**64 - 1)) == "flow"


def test_shrinking_or_repeated_credit_changes_nothing():
    a, b = two()
    sid = opened(a, b)
    assert a.receive(wire.credit_frame(sid, 5) + wire.credit_frame(0, 0) + wire.credit_frame(sid, 5)) == []
    a.send(sid, bytes(WINDOW_B))
    assert sum(len(event.data) for event in only(flow(a, b), Received)) == WINDOW_B


def test_credit_for_a_closed_stream_is_ignored_and_for_one_never_opened_refused():
    a, b = two()
    sid = opened(a, b)
    a.reset(sid, ResetCode.CANCEL)
    assert a.receive(wire.credit_frame(sid, 2**60)) == []
    assert code_of(a, wire.credit_frame(sid + 2, 100)) == "protocol"


# Urgent frames.


def test_gossip_and_new_streams_overtake_four_megabytes_of_bulk():
    a, _ = two()
    for _ in range(16):
        a.send(a.open(1, b""), bytes(WINDOW_B))
    assert len(a.next_record() or b"") == wire.MAX_RECORD_B
    a.control(b"alive")
    a.control(b"gossip")
    late = a.open(2, b"ask")
    assert wire.decode(a.next_record(16_384) or b"")[:3] == [
        (wire.CTL, 0, 0, b"alive"),
        (wire.CTL, 0, 0, b"gossip"),
        (wire.OPEN, 0, late, b"\x02ask"),
    ]


def test_control_arrives_as_it_was_sent():
    a, b = two()
    a.control(b"")
    a.control(bytes(wire.MAX_CONTROL_B))
    assert flow(a, b) == [Control(b""), Control(bytes(wire.MAX_CONTROL_B))]
    assert not b.has_output


def test_control_that_nobody_reads_is_refused_at_its_bound():
    a, _ = two()
    assert refused_after(LocalProtocolError, lambda _: a.control(b"gossip")) == (1_024, "queue_full")


def test_streams_that_nobody_reads_are_refused_at_their_bound():
    _, b = two()
    assert refused_after(LocalProtocolError, lambda _: b.reset(b.open(1, b""), 1)) == (10_192, "queue_full")


# Peers that lie.


@pytest.mark.parametrize(
    "record",
    [
        wire.open_frame(2, 1, b""),
        wire.open_frame(1, 1, b""),
        wire.open_frame(3, 1, b"") * 2,
        raw(wire.DATA, 5, b"x"),
        raw(wire.DATA, 2, b"x"),
        raw(wire.HEAD, 7, b"x"),
        raw(wire.HEAD, 1, b"x"),
        raw(wire.RESET, 9, bytes(4)),
        raw(wire.STOP, 9, bytes(4)),
        raw(wire.DATA, 1),
        raw(wire.DATA, 1, b"", wire.END) * 2,
        raw(wire.DATA, 1, b"", wire.END) + raw(wire.DATA, 1, b"x"),
    ],
)
def test_a_frame_that_does_not_fit_its_stream_is_a_protocol_error(record: bytes):
    a, b = two()
    opened(a, b)
    assert code_of(b, record) == "protocol"


@pytest.mark.parametrize("before", [raw(wire.HEAD, 1), raw(wire.DATA, 1, b"x"), raw(wire.DATA, 1, b"", wire.END)])
def test_a_head_comes_once_and_first(before: bytes):
    a, b = two()
    opened(a, b)
    a.receive(before)
    assert code_of(a, raw(wire.HEAD, 1)) == "protocol"


def test_an_id_is_never_used_again():
    a, b = two()
    sid = opened(a, b)
    a.reset(sid, ResetCode.CANCEL)
    flow(a, b)
    assert code_of(b, wire.open_frame(sid, 1, b"")) == "protocol"


def test_a_malformed_record_has_no_effect():
    _, b = two()
    assert code_of(b, wire.open_frame(1, 1, b"") + b"torn") == "protocol"
    assert b.open_streams == 0
    assert b.lost() == []


FRAMES = st.builds(
    raw,
    st.integers(0, 10),
    st.integers(0, 9),
    st.binary(max_size=9) | st.integers(0, 2**64 - 1).map(lambda number: number.to_bytes(8)),
    st.integers(0, 1),
)


@given(st.lists(st.binary(max_size=40) | st.lists(FRAMES, max_size=8).map(b"".join), max_size=8))
@settings(max_examples=400)
def test_arbitrary_records_raise_nothing_but_protocol_errors(records: list[bytes]):
    mux = Mux(initiator=False, stream_window_b=20, link_window_b=30, max_streams=2)
    sid = mux.open(1, b"")
    mux.send(sid, bytes(50))
    for record in records:
        try:
            mux.receive(record)
        except RemoteProtocolError:
            break
        mux.next_record()
    mux.lost()
    assert mux.open_streams == 0
