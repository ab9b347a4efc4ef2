from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.errors import RemoteProtocolError
from gossip.handshake import Initiator, ReplayGuard, Responder, network_key
from gossip.muxevents import Control, Opened
from gossip.secure import MAX_PLAIN_B
from gossip.session import Event, Finished, Refused, Session, Stage, Up
from tests.people import FABRIC, Person

DIALLER, DIALLED = Person(500), Person(501)
NK = network_key(FABRIC)
_seeds = count(1)


def anyone(_key, _payload):
    return None


def nobody(_key, _payload):
    return "not_admitted"


def initiator(admit=anyone, *, pinned=DIALLED.key) -> Session:
    shake = Initiator(
        seed=DIALLER.seed,
        network=NK,
        payload=b"I am the dialler",
        pinned=pinned,
        ephemeral_seed=next(_seeds).to_bytes(32, "little"),
        nonce=bytes(16),
    )
    return Session(shake, admit)


def responder(admit=anyone, *, guard=None) -> Session:
    shake = Responder(
        seed=DIALLED.seed,
        network=NK,
        payload=b"I was dialled",
        ephemeral_seed=next(_seeds).to_bytes(32, "little"),
        guard=guard or ReplayGuard(),
    )
    return Session(shake, admit)


def sent(session: Session) -> list[bytes]:
    return list(iter(session.outgoing, None))


def pump(*ends: Session) -> tuple[list[Event], ...]:
    """Carry messages both ways until both are silent; what happened at each end."""
    happened: tuple[list[Event], ...] = ([], [])
    while any(messages := [sent(end) for end in ends]):
        for at, batch in enumerate(messages):
            for message in batch:
                happened[1 - at].extend(ends[1 - at].receive(message, 0.0))
    return happened


def started(*ends: Session) -> tuple[list[Event], ...]:
    for end in ends:
        end.start()
    return pump(*ends)


def live() -> tuple[Session, Session]:
    ends = initiator(), responder()
    started(*ends)
    return ends


def test_a_handshake_ends_with_both_ends_up_and_each_knowing_the_other():
    a, b = initiator(), responder()
    at_a, at_b = started(a, b)
    assert at_a == [Up(DIALLED.key, b"I was dialled")]
    assert at_b == [Up(DIALLER.key, b"I am the dialler")]
    assert (a.stage, b.stage) == (Stage.LIVE, Stage.LIVE)


def test_a_responder_that_refuses_says_why_and_both_ends_are_over():
    a, b = initiator(), responder(nobody)
    at_a, at_b = started(a, b)
    assert at_a == [Refused(DIALLED.key, "not_admitted", by_peer=True)]
    assert at_b == [Refused(DIALLER.key, "not_admitted", by_peer=False)]
    assert (a.stage, b.stage) == (Stage.OVER, Stage.OVER)


def test_an_initiator_that_refuses_says_nothing_of_itself():
    a, b = initiator(nobody), responder()
    at_a, at_b = started(a, b)
    assert at_a == [Refused(DIALLED.key, "not_admitted", by_peer=False)]
    assert not at_b
    assert (a.stage, b.stage) == (Stage.OVER, Stage.HELLO)


@pytest.mark.parametrize("end", [0, 1])
def test_each_end_is_asked_once_and_with_what_the_other_proved(end):
    asked: list = []

    def admit(*who):
        asked.append(who)

    ends = (initiator(admit), responder()) if end == 0 else (initiator(), responder(admit))
    started(*ends)
    assert asked == [[(DIALLED.key, b"I was dialled")], [(DIALLER.key, b"I am the dialler")]][end]


def test_an_initiator_sends_no_frame_before_it_was_let_in():
    a, b = initiator(), responder()
    a.start()
    a.mux.control(b"early")
    for _ in range(2):
        (message,) = sent(a)
        assert b.receive(message, 0.0) in ([], [Up(DIALLER.key, b"I am the dialler")])
        (answer,) = sent(b)
        a.receive(answer, 0.0)
    assert pump(a, b) == ([], [Control(b"early")])


def test_frames_cross_a_live_session_both_ways():
    a, b = live()
    sid = a.mux.open(1, b"head")
    b.mux.control(b"gossip")
    at_a, at_b = pump(a, b)
    assert at_a == [Control(b"gossip")]
    assert at_b == [Opened(sid, 1, b"head")]


@pytest.mark.parametrize("ender", [0, 1])
def test_an_end_mark_is_the_only_clean_end(ender):
    ends = live()
    last = ends[ender].finish()
    assert last is not None
    assert ends[1 - ender].receive(last, 0.0) == [Finished()]
    assert ends[1 - ender].stage is Stage.OVER


def test_an_end_mark_carries_the_urgent_frames_that_waited_and_no_bulk():
    a, b = live()
    sid = a.mux.open(1, b"")
    a.mux.send(sid, b"bulk" * 1_000)
    a.mux.control(b"farewell")
    last = a.finish()
    assert last is not None
    assert b.receive(last, 0.0) == [Opened(sid, 1, b""), Control(b"farewell"), Finished()]


def test_an_end_mark_carries_no_more_than_a_record():
    a, b = live()
    for _ in range(3):
        a.mux.control(b"x" * 60_000)
    last = a.finish()
    assert last is not None
    assert len(last) <= MAX_PLAIN_B + 17
    assert b.receive(last, 0.0)[-1] == Finished()


def test_nothing_may_follow_the_end_mark():
    a, b = live()
    a.mux.control(b"one")
    (record,) = sent(a)
    last = a.finish()
    assert last is not None
    b.receive(record, 0.0)
    b.receive(last, 0.0)
    with pytest.raises(RemoteProtocolError) as refused:
        b.receive(record, 0.0)
    assert refused.value.code == "after_end"


def test_a_finished_session_sends_nothing_more():
    a, _ = live()
    a.finish()
    a.mux.control(b"late")
    assert a.outgoing() is None
    assert a.finish() is None


@pytest.mark.parametrize("stage", ["fresh", "begun"])
def test_there_is_no_end_mark_before_the_session_was_live(stage):
    a = initiator()
    if stage == "begun":
        a.start()
    assert a.finish() is None
    assert a.stage is Stage.OVER


def stopped(turns: int) -> tuple[Session, Session, list[bytes]]:
    """A handshake after so many messages: who waits for the next one, who owes it, and what was said."""
    speaks, hears = initiator(), responder()
    speaks.start()
    said = []
    for _ in range(turns):
        (message,) = sent(speaks)
        said.append(message)
        hears.receive(message, 0.0)
        speaks, hears = hears, speaks
    return hears, speaks, said


NAMES = ["M1", "M2", "M3", "M4", "record"]


@pytest.mark.parametrize("turns", range(5), ids=NAMES)
@given(data=st.binary(max_size=300))
def test_garbage_is_the_peers_fault_at_every_stage_and_ends_the_session(turns, data):
    end, _, _ = stopped(turns)
    for message in (data, data):  # what was refused once is refused again, not taken for a mistake of ours
        with pytest.raises(RemoteProtocolError):
            end.receive(message, 0.0)
    assert end.stage is Stage.OVER
    assert end.outgoing() is None


@pytest.mark.parametrize("turns", range(5), ids=NAMES)
@pytest.mark.parametrize("other", range(4), ids=NAMES[:4])
def test_messages_of_another_handshake_are_refused(turns, other):
    end, _, _ = stopped(turns)
    foreign = stopped(4)[2][other]
    if turns == other == 0:
        assert not end.receive(foreign, 0.0)  # a first message begins any handshake
        return
    with pytest.raises(RemoteProtocolError):
        end.receive(foreign, 0.0)


@pytest.mark.parametrize("at", range(4), ids=["M1", "M2", "M3", "M4"])
@given(st.data())
def test_a_handshake_message_with_a_wrong_byte_never_leads_to_a_link(at, data):
    end, speaks, _ = stopped(at)
    damaged = bytearray(sent(speaks)[0])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteProtocolError):
        end.receive(bytes(damaged), 0.0)
    assert end.stage is Stage.OVER


def test_a_replayed_first_message_is_refused():
    guard = ReplayGuard()
    a = initiator()
    a.start()
    (first,) = sent(a)
    responder(guard=guard).receive(first, 0.0)
    with pytest.raises(RemoteProtocolError) as refused:
        responder(guard=guard).receive(first, 1.0)
    assert refused.value.code == "handshake_replay"


def test_a_verdict_repeated_on_its_own_link_is_no_record():
    a, b = initiator(), responder()
    a.start()
    b.receive(sent(a)[0], 0.0)
    a.receive(sent(b)[0], 0.0)
    b.receive(sent(a)[0], 0.0)
    (verdict,) = sent(b)
    assert a.receive(verdict, 0.0) == [Up(DIALLED.key, b"I was dialled")]
    with pytest.raises(RemoteProtocolError):
        a.receive(verdict, 0.0)


def test_a_record_repeated_or_out_of_order_ends_the_session():
    a, b = live()
    a.mux.control(b"1")
    (one,) = sent(a)
    a.mux.control(b"2")
    (two,) = sent(a)
    with pytest.raises(RemoteProtocolError):
        b.receive(two, 0.0)
    with pytest.raises(RemoteProtocolError):
        b.receive(one, 0.0)


def test_a_peer_that_breaks_the_mux_ends_the_session():
    a, b = live()
    assert a._sealer is not None
    with pytest.raises(RemoteProtocolError) as refused:
        b.receive(a._sealer.seal(b"\xff" * 8), 0.0)
    assert refused.value.code == "protocol"
    assert b.stage is Stage.OVER


def test_a_session_that_has_not_begun_takes_no_answer():
    with pytest.raises(RemoteProtocolError):
        initiator().receive(stopped(2)[2][1], 0.0)


def test_a_dialler_that_met_another_key_makes_no_link():
    a, b = initiator(pinned=DIALLER.key[::-1]), responder()
    a.start()
    b.receive(sent(a)[0], 0.0)
    with pytest.raises(RemoteProtocolError) as refused:
        a.receive(sent(b)[0], 0.0)
    assert refused.value.code == "handshake_pin"
