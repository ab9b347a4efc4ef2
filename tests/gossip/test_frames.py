import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.errors import RemoteProtocolError
from gossip.frames import (
    MAX_FRAME_B,
    MAX_GAUGE_ROWS,
    MAX_RECORDS,
    PAIR_B,
    Bye,
    Entries,
    GaugeRow,
    Gauges,
    Ping,
    Records,
    Subscribe,
    Sum,
    Want,
    batches,
    decode,
    encode,
    shelf_of,
)
from registry.digest import BUCKETS, DIGEST_B
from registry.record import MAX_RECORD_B, Audience

SUMS_B = BUCKETS * DIGEST_B
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SHELVES = st.sampled_from([0, 1])
ROWS = st.builds(
    GaugeRow,
    st.sampled_from(["a" * 24, "z2" * 12]),
    st.integers(0, 2**53),
    st.dictionaries(st.text("abc_", min_size=1, max_size=24), st.integers(-(2**53), 2**53), max_size=4),
)
FRAMES = st.one_of(
    st.builds(Ping, st.lists(st.binary(min_size=16, max_size=16), max_size=2).map(tuple), FINITE),
    st.builds(Records, st.lists(st.binary(max_size=100), max_size=20).map(tuple)),
    st.builds(Sum, SHELVES, st.binary(min_size=SUMS_B, max_size=SUMS_B)),
    st.builds(Entries, SHELVES, st.integers(0, BUCKETS - 1), st.integers(0, 9).map(lambda n: bytes(range(PAIR_B)) * n)),
    st.builds(Want, SHELVES, st.integers(0, 9).map(lambda n: bytes(DIGEST_B * n))),
    st.builds(Bye, st.text(max_size=64)),
    st.builds(Gauges, st.lists(ROWS, max_size=3).map(tuple)),
    st.builds(Subscribe, st.booleans()),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=64),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


def packed(tag: int, value: object) -> bytes:
    return bytes((tag,)) + msgspec.msgpack.encode(value)


def decodes(data: bytes) -> bool:
    """Whether bytes are a frame; anything but a frame, None or RemoteProtocolError fails the test."""
    try:
        decode(data)
    except RemoteProtocolError:
        return False
    return True


@given(FRAMES)
def test_every_frame_comes_back_as_it_was(frame):
    assert decode(encode(frame)) == frame


@given(st.integers(9, 255), st.binary(max_size=50))
def test_a_type_of_a_newer_release_is_skipped(tag, rest):
    assert decode(bytes((tag,)) + rest) is None


def test_fields_a_newer_release_adds_at_the_end_are_skipped():
    assert decode(packed(6, ["left", {"more": [1, 2]}, 3])) == Bye("left")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_the_peers_fault(data):
    decodes(data)


@given(st.integers(1, 8), ANYTHING)
def test_any_value_in_a_known_type_decodes_or_is_the_peers_fault(tag, value):
    decodes(packed(tag, value))


@given(FRAMES, st.data())
def test_a_frame_cut_short_is_refused(frame, data):
    whole = encode(frame)
    with pytest.raises(RemoteProtocolError):
        decode(whole[: data.draw(st.integers(1, len(whole) - 1))])


@given(FRAMES, st.data())
def test_a_frame_with_one_wrong_byte_never_does_worse_than_being_refused(frame, data):
    damaged = bytearray(encode(frame))
    damaged[data.draw(st.integers(0, min(len(damaged) - 1, 80)))] = data.draw(st.integers(0, 255))
    decodes(bytes(damaged))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed(6, ["x" * 65]),
        packed(6, ["left"]) + b"\x00",
        packed(6, {"reason": "left"}),
        b"\x06\x91\xa2\xff\xfe",
        b"\x06" + b"\0" * MAX_FRAME_B,
        packed(1, [[b"\0" * 15], 0.0]),
        packed(1, [[b"\0" * 16] * 3, 0.0]),
        packed(1, [[], "now"]),
        packed(2, [[b""] * (MAX_RECORDS + 1)]),
        packed(2, [[b"\0" * (MAX_RECORD_B + 1)]]),
        packed(3, [0, b"\0" * (SUMS_B - 1)]),
        packed(3, [2, b"\0" * SUMS_B]),
        packed(4, [0, BUCKETS, b""]),
        packed(4, [0, -1, b""]),
        packed(4, [0, 0, b"\0" * (PAIR_B + 1)]),
        packed(5, [0, b"\0" * (DIGEST_B - 1)]),
        packed(7, [[["a" * 23, 0, {}]]]),
        packed(7, [[["a" * 24, -1, {}]]]),
        packed(7, [[["a" * 24, 0, {"Load": 1}]]]),
        packed(7, [[["a" * 24, 0, {"load": 1.5}]]]),
        packed(7, [[["a" * 24, 0, {"loads": 2**54}]]]),
        packed(7, [[["a" * 24, 0, {f"{chr(97 + n)}": 1 for n in range(17)}]]]),
        packed(7, [[["a" * 24, 0, {}]] * (MAX_GAUGE_ROWS + 1)]),
        packed(8, [1]),
        b"\x02\x91\xdd\xff\xff\xff\xff",
        b"\x02\x91\x91\xc6\xff\xff\xff\xff",
    ],
    ids=lambda data: f"{data[:12].hex()}-{len(data)}",
)
def test_what_breaks_a_limit_is_refused(data):
    with pytest.raises(RemoteProtocolError) as refused:
        decode(data)
    assert refused.value.code == "bad_frame"


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x01"], ids=["arrays", "maps"])
def test_nesting_in_a_skipped_field_is_refused_instead_of_exhausting_the_stack(opening):
    ping = b"\x01\x93\x90" + b"\xcb" + struct.pack(">d", 0.0)
    with pytest.raises(RemoteProtocolError):
        decode(ping + opening * 20_000)


@pytest.mark.parametrize("wall", [float("nan"), float("inf"), float("-inf")])
def test_a_ping_whose_time_is_no_number_is_refused(wall):
    with pytest.raises(RemoteProtocolError):
        decode(encode(Ping((), wall)))


@given(st.lists(st.integers(0, MAX_RECORD_B), max_size=60))
def test_batches_keep_every_record_in_order_and_fit_a_frame(sizes):
    raws = [bytes((at % 256,)) * size for at, size in enumerate(sizes)]
    frames = list(batches(raws))
    assert [raw for frame in frames for raw in frame.raws] == raws
    assert all(decode(encode(frame)) == frame for frame in frames)


def test_batches_split_at_the_count_as_well_as_at_the_size():
    assert [len(frame.raws) for frame in batches([b"x"] * (MAX_RECORDS + 1))] == [MAX_RECORDS, 1]
    assert [len(frame.raws) for frame in batches([b"x" * MAX_RECORD_B] * 15)] == [14, 1]


def test_nothing_makes_no_batch():
    assert not list(batches([]))


def test_a_shelf_number_names_its_audience():
    assert [shelf_of(0), shelf_of(1)] == [Audience.PUBLIC, Audience.ACCOUNTS]
