from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip import muxframes as wire
from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.muxevents import ResetCode
from gossip.muxsend import Outbox, Stream


def raw(kind: int, sid: int, payload: bytes = b"", *, flags: int = 0, size: int | None = None) -> bytes:
    return pack("!BBHI", kind, flags, len(payload) if size is None else size, sid) + payload


def sending(out: Outbox, sid: int, size: int, window_b: int = 1_000_000) -> Stream:
    stream = Stream(sid, window_b, is_ours=True)
    stream.queue += b"x" * size
    out.make_ready(stream)
    return stream


def shares(record: bytes | None) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for _, _, sid, payload in wire.decode(record or b""):
        sizes[sid] = sizes.get(sid, 0) + len(payload)
    return sizes


def test_frames_of_every_type_come_back_as_they_were_written():
    record = b"".join(
        [
            wire.open_frame(1, 3, b"head"),
            wire.frame(wire.HEAD, 2, b"answer"),
            wire.frame(wire.DATA, 1, b"bytes"),
            wire.credit_frame(0, 2**40),
            wire.coded_frame(wire.STOP, 1, ResetCode.CANCEL),
            wire.coded_frame(wire.RESET, 1, 4_000_000_000),
            wire.coded_frame(wire.GOAWAY, 0, 0),
            wire.frame(wire.CTL, 0, b"gossip"),
        ]
    )
    assert wire.decode(record) == [
        (wire.OPEN, 0, 1, b"\x03head"),
        (wire.HEAD, 0, 2, b"answer"),
        (wire.DATA, 0, 1, b"bytes"),
        (wire.CREDIT, 0, 0, (2**40).to_bytes(8)),
        (wire.STOP, 0, 1, b"\0\0\0\1"),
        (wire.RESET, 0, 1, (4_000_000_000).to_bytes(4)),
        (wire.GOAWAY, 0, 0, b"\0\0\0\0"),
        (wire.CTL, 0, 0, b"gossip"),
    ]


def test_an_empty_record_has_no_frames():
    assert wire.decode(b"") == []


@pytest.mark.parametrize(
    "record",
    [
        raw(wire.CTL, 0)[:7],
        raw(wire.DATA, 1, b"abc", size=4),
        raw(wire.DATA, 1, b"abc", size=2),
        raw(0, 1),
        raw(10, 1),
        raw(wire.OPEN, 1),
        raw(wire.OPEN, 0, b"\1"),
        raw(wire.OPEN, 1, bytes(wire.MAX_HEAD_B + 2)),
        raw(wire.HEAD, 1, bytes(wire.MAX_HEAD_B + 1)),
        raw(wire.DATA, 0, b"a"),
        raw(wire.DATA, 2**31, b"a"),
        raw(wire.DATA, 1, bytes(wire.MAX_DATA_B + 1)),
        raw(wire.DATA, 1, b"a", flags=2),
        raw(wire.CREDIT, 1, bytes(7)),
        raw(wire.CREDIT, 1, bytes(8), flags=1),
        raw(wire.STOP, 0, bytes(4)),
        raw(wire.RESET, 1, bytes(5)),
        raw(wire.RESET, 1, bytes(4), flags=1),
        raw(7, 0),
        raw(wire.GOAWAY, 0),
        raw(wire.CTL, 1, b"a"),
        bytes(wire.MAX_RECORD_B + 1),
    ],
)
def test_a_frame_no_correct_peer_sends_is_refused(record: bytes):
    with pytest.raises(RemoteProtocolError):
        wire.decode(record)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_become_frames_or_a_protocol_error(record: bytes):
    try:
        frames = wire.decode(record)
    except RemoteProtocolError:
        return
    assert sum(wire.HEADER_B + len(payload) for *_, payload in frames) == len(record)


def test_a_known_code_becomes_its_name_and_an_unknown_one_stays_a_number():
    assert wire.code_in(b"\0\0\0\2") is ResetCode.REFUSED
    assert wire.code_in(b"\0\0\xff\0") == 0xFF00


def test_end_is_set_on_the_head_of_the_stream_and_on_nothing_else():
    head = wire.frame(wire.HEAD, 2, b"answer")
    ended = wire.with_end(head, 2)
    assert ended is not None
    assert wire.decode(ended) == [(wire.HEAD, wire.END, 2, b"answer")]
    assert wire.with_end(head, 4) is None
    assert wire.with_end(wire.frame(wire.DATA, 2, b"d"), 2) is None


@pytest.mark.parametrize("limit", [1_000, 16_384, 20_000, 65_536])
@pytest.mark.parametrize("sids", [(1, 3), (1, 3, 5)])
def test_streams_share_records_of_any_size_by_bytes(limit: int, sids: tuple[int, ...]):
    out = Outbox(10_000_000)
    for sid in sids:
        sending(out, sid, 900_000)
    sent = dict.fromkeys(sids, 0)
    for _ in range(20):
        for sid, size in shares(out.next_record(limit)).items():
            sent[sid] += size
    assert max(sent.values()) - min(sent.values()) <= wire.MAX_DATA_B


def test_a_small_stream_is_not_behind_a_large_one():
    out = Outbox(10_000_000)
    sending(out, 1, 900_000)
    sending(out, 3, 100)
    assert shares(out.next_record(65_536))[3] == 100


def test_bulk_stops_at_the_limit_and_urgent_frames_do_not():
    out = Outbox(10_000_000)
    sending(out, 1, 900_000)
    assert len(out.next_record(1_000) or b"") == 1_000
    assert out.next_record(wire.HEADER_B) is None
    out.urgent.append(wire.frame(wire.CTL, 0, b"alive"))
    assert wire.decode(out.next_record(0) or b"") == [(wire.CTL, 0, 0, b"alive")]


def test_data_never_passes_an_open_that_did_not_fit():
    out = Outbox(10_000_000)
    out.urgent.append(wire.frame(wire.CTL, 0, bytes(40_000)))
    out.urgent.append(wire.open_frame(1, 1, bytes(wire.MAX_HEAD_B)))
    sending(out, 1, 10)
    kinds = [kind for _ in range(2) for kind, *_ in wire.decode(out.next_record(65_536) or b"")]
    assert kinds == [wire.CTL, wire.OPEN, wire.DATA]


def test_the_link_window_stops_bulk_and_credit_lets_it_go_on():
    out = Outbox(1_000)
    sending(out, 1, 5_000)
    assert shares(out.next_record(65_536)) == {1: 1_000}
    assert not out.is_waiting
    assert out.next_record(65_536) is None
    out.send_limit = 1_500
    assert shares(out.next_record(65_536)) == {1: 500}


def test_the_control_queue_is_bounded_in_frames_and_bytes_and_drains():
    for size, held in ((1, 1_024), (wire.MAX_CONTROL_B, 64)):
        out = Outbox(1_000)
        for _ in range(held):
            out.control(bytes(size))
        with pytest.raises(LocalProtocolError) as refused:
            out.control(bytes(size))
        assert refused.value.code == "queue_full"
        out.next_record(65_536)
        out.control(bytes(size))


def test_the_largest_control_frame_fills_a_record_and_a_larger_one_is_refused():
    out = Outbox(1_000)
    out.control(bytes(wire.MAX_CONTROL_B))
    assert len(out.next_record(65_536) or b"") == wire.MAX_RECORD_B
    with pytest.raises(LocalProtocolError):
        out.control(bytes(wire.MAX_CONTROL_B + 1))
