"""Records in a file: what was written is read, and where it is broken is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.recordfile import MAGIC, MAX_RAW_B, frame, frames, unframe
from registry.record import MAX_RECORD_B

RAWS = [bytes([n]) * (n + 1) for n in range(200)]
WHOLE = frames(RAWS)


@given(st.lists(st.binary(min_size=1, max_size=MAX_RAW_B), max_size=8))
def test_what_is_framed_is_found(raws):
    content = frames(raws)
    assert unframe(content) == (raws, len(content), False, "")


@pytest.mark.parametrize("cut", [0, 5, len(MAGIC) - 1])
def test_a_file_cut_in_its_first_line_is_torn(cut):
    assert unframe(MAGIC[:cut]) == ([], 0, True, "")


def test_every_cut_in_the_last_record_is_torn_and_the_records_before_it_stay():
    for cut in range(1, len(frame(RAWS[-1]))):
        found = unframe(WHOLE[:-cut])
        assert (found.raws, found.is_torn, found.fault) == (RAWS[:-1], True, "")
        assert found.good_b == len(frames(RAWS[:-1]))


def test_zeros_behind_the_last_record_are_torn_however_many():
    found = unframe(WHOLE + bytes(100_000))
    assert (found.raws, found.is_torn, found.fault) == (RAWS, True, "")


@pytest.mark.parametrize("where", [len(MAGIC) + 1, len(MAGIC) + 5, 300, 5000])
def test_a_flipped_bit_far_from_the_end_is_a_fault_and_what_precedes_it_stays(where):
    broken = bytearray(WHOLE)
    broken[where] ^= 0x40
    found = unframe(bytes(broken))
    assert not found.is_torn
    assert "broken" in found.fault
    assert found.raws == RAWS[: len(found.raws)]
    assert found.good_b <= where


def test_another_kind_of_file_is_a_fault():
    assert unframe(b'{"some": "json"}').fault
    assert unframe(bytes(100)).fault


@given(st.binary(max_size=200), st.integers(0, 20_000), st.integers(0, 255))
def test_no_damage_raises_or_invents_a_record(tail, at, value):
    broken = bytearray(WHOLE + tail)
    broken[at % len(broken)] = value
    assert set(unframe(bytes(broken)).raws) <= {*RAWS, *unframe(MAGIC + tail).raws}


def test_every_record_fits():
    assert MAX_RAW_B == MAX_RECORD_B
