"""Two muxes over a link that delivers when it likes, against plain byte strings."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gossip.mux import Mux
from gossip.muxevents import Control, Ended, Event, Opened, Received, Replied, ResetReceived, Stopped

WINDOW_B = 64
LINK_WINDOW_B = 200
SIDES = st.integers(0, 1)
PICKS = st.integers(0, 10_000)


@dataclass
class Half:
    """What one side has sent on a stream and what the other has seen of it, as the model knows it."""

    sent: bytearray = field(default_factory=bytearray)
    head: bytes | None = None
    is_ended: bool = False  # by the sender
    is_stopped: bool = False  # the reader called stop
    is_cut: bool = False  # the sender was told to stop, so what it sends may be dropped
    seen: bytearray = field(default_factory=bytearray)
    seen_head: bytes | None = None
    seen_end: bool = False
    read: int = 0


class Side:
    """One mux, the records on their way to it, and the streams its application holds open."""

    def __init__(self, *, initiator: bool) -> None:
        self.mux = Mux(initiator=initiator, stream_window_b=WINDOW_B, link_window_b=LINK_WINDOW_B, max_streams=4)
        self.coming: deque[bytes] = deque()
        self.open: set[int] = set()  # neither reset nor ended by both, as seen here
        self.urgent_sent: list[bytes] = []
        self.urgent_seen: list[bytes] = []


class TwoMuxes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sides = (Side(initiator=True), Side(initiator=False))
        self.halves: dict[tuple[int, int], Half] = {}  # (stream, sending side)
        self.reset_sids: set[int] = set()

    def pick(self, side: int, number: int) -> int | None:
        sids = sorted(self.sides[side].open)
        return sids[number % len(sids)] if sids else None

    def forget_if_over(self, side: int, sid: int) -> None:
        if self.halves[sid, side].is_ended and self.halves[sid, 1 - side].seen_end:
            self.sides[side].open.discard(sid)

    @rule(side=SIDES, head=st.binary(max_size=6))
    def open_stream(self, side: int, head: bytes) -> None:
        if sum(sid % 2 != side for sid in self.sides[side].open) >= 2:
            return
        if side_is_full(self.sides[side].mux, self.sides[1 - side].mux):
            return
        sid = self.sides[side].mux.open(1, head)
        assert sid % 2 != side
        self.halves[sid, side] = Half(head=head)
        self.halves[sid, 1 - side] = Half()
        self.sides[side].open.add(sid)

    @rule(side=SIDES, number=PICKS, head=st.binary(max_size=6))
    def reply(self, side: int, number: int, head: bytes) -> None:
        sid = self.pick(side, number)
        if sid is None or sid % 2 != side:
            return
        half = self.halves[sid, side]
        if half.head is None and not half.sent and not half.is_ended:
            self.sides[side].mux.reply(sid, head)
            if not half.is_cut:
                half.head = head

    @rule(side=SIDES, number=PICKS, data=st.binary(max_size=150))
    def send(self, side: int, number: int, data: bytes) -> None:
        sid = self.pick(side, number)
        if sid is not None and not self.halves[sid, side].is_ended:
            self.sides[side].mux.send(sid, data)
            self.halves[sid, side].sent += data

    @rule(side=SIDES, number=PICKS)
    def end(self, side: int, number: int) -> None:
        sid = self.pick(side, number)
        if sid is not None:
            self.finish(side, sid)

    def finish(self, side: int, sid: int) -> None:
        if not self.halves[sid, side].is_ended:
            self.sides[side].mux.end(sid)
            self.halves[sid, side].is_ended = True
            self.forget_if_over(side, sid)

    @rule(side=SIDES, number=PICKS)
    def reset(self, side: int, number: int) -> None:
        sid = self.pick(side, number)
        if sid is not None:
            self.sides[side].mux.reset(sid, 1)
            self.sides[side].open.discard(sid)
            self.reset_sids.add(sid)

    @rule(side=SIDES, number=PICKS)
    def stop(self, side: int, number: int) -> None:
        sid = self.pick(side, number)
        if sid is not None:
            self.sides[side].mux.stop(sid, 1)
            self.halves[sid, 1 - side].is_stopped = True

    @rule(side=SIDES, number=PICKS, share=st.integers(1, 4))
    def read(self, side: int, number: int, share: int) -> None:
        sid = self.pick(side, number)
        if sid is not None:
            half = self.halves[sid, 1 - side]
            size = (len(half.seen) - half.read) // share
            self.sides[side].mux.consumed(sid, size)
            half.read += size

    @rule(side=SIDES, payload=st.binary(max_size=4))
    def speak(self, side: int, payload: bytes) -> None:
        here = self.sides[side]
        here.mux.control(payload)
        here.urgent_sent.append(payload)

    @rule(side=SIDES, limit=st.integers(0, 100) | st.just(65_536))
    def write_record(self, side: int, limit: int) -> None:
        here, there = self.sides[side], self.sides[1 - side]
        had_output = here.mux.has_output
        record = here.mux.next_record(limit)
        if limit == 65_536:
            assert had_output == (record is not None)
        if record is not None:
            there.coming.append(record)

    @rule(side=SIDES)
    def deliver(self, side: int) -> None:
        here = self.sides[side]
        if here.coming:
            for event in here.mux.receive(here.coming.popleft()):
                self.see(side, event)

    def see(self, side: int, event: Event) -> None:
        here = self.sides[side]
        match event:
            case Opened(sid, _, head):
                here.open.add(sid)
                self.halves[sid, 1 - side].seen_head = head
            case Replied(sid, head):
                self.halves[sid, 1 - side].seen_head = head
            case Received(sid, data):
                half = self.halves[sid, 1 - side]
                assert sid in here.open
                assert not half.seen_end
                assert not half.is_stopped
                half.seen += data
                assert half.sent.startswith(half.seen)
                assert len(half.seen) - half.read <= WINDOW_B
            case Ended(sid):
                half = self.halves[sid, 1 - side]
                assert half.is_ended
                assert half.is_stopped or (half.seen, half.seen_head) == (half.sent, half.head)
                half.seen_end = True
                self.forget_if_over(side, sid)
            case ResetReceived(sid):
                assert sid in self.reset_sids
                here.open.discard(sid)
            case Stopped(sid):
                self.halves[sid, side].is_cut = True
            case Control(payload):
                self.sides[1 - side].urgent_seen.append(payload)
            case _:
                raise AssertionError(f"unexpected {event}")

    @invariant()
    def urgent_frames_arrive_in_order(self) -> None:
        assert all(side.urgent_sent[: len(side.urgent_seen)] == side.urgent_seen for side in self.sides)

    @invariant()
    def the_unread_fit_the_link_window(self) -> None:
        for number, side in enumerate(self.sides):
            unread = sum(
                len(self.halves[sid, 1 - number].seen) - self.halves[sid, 1 - number].read
                for sid in side.open
                if not self.halves[sid, 1 - number].is_stopped
            )
            assert unread <= LINK_WINDOW_B

    @rule()
    def settle(self) -> None:
        while any(side.mux.has_output or side.coming for side in self.sides):
            for side in (0, 1):
                self.write_record(side, 65_536)
                self.deliver(side)

    def teardown(self) -> None:
        """Whatever happened, all streams can be finished, nothing is left, and no credit has leaked."""
        self.settle()
        for side in (0, 1):
            for sid in sorted(self.sides[side].open):
                self.finish(side, sid)
        self.settle()
        for _ in range(1 + sum(len(half.sent) for half in self.halves.values())):
            for side in (0, 1):
                for number in range(len(self.sides[side].open)):
                    self.read(side, number, 1)
            if not any(side.mux.has_output for side in self.sides):
                break
            self.settle()
        assert [side.mux.open_streams for side in self.sides] == [0, 0]
        assert all(side.urgent_sent == side.urgent_seen for side in self.sides)
        self.moves_three_link_windows()

    def moves_three_link_windows(self) -> None:
        self.open_stream(0, b"")
        sid = max(self.sides[0].open)
        self.settle()
        self.sides[0].mux.send(sid, bytes(3 * LINK_WINDOW_B))
        self.halves[sid, 0].sent += bytes(3 * LINK_WINDOW_B)
        for _ in range(3 * LINK_WINDOW_B // WINDOW_B + 2):
            self.settle()
            self.read(1, 0, 1)
        assert len(self.halves[sid, 0].seen) == 3 * LINK_WINDOW_B


def side_is_full(mux: Mux, other: Mux) -> bool:
    """Whether a new stream might be refused: the two ends may know of different streams."""
    return mux.open_streams >= 4 or other.open_streams >= 4


TestTwoMuxes = TwoMuxes.TestCase
TestTwoMuxes.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
