import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import RecordRefused, TelaError
from registry.record import DOMAIN, MAX_RECORD_B, Draft, decode, seal
from tests.people import MEMBER, OPERATOR, node_record

GOOD = node_record(MEMBER)


def test_a_sealed_record_decodes_to_itself():
    assert decode(GOOD.raw) == GOOD


def test_every_flipped_bit_is_refused():
    for at in range(len(GOOD.raw) * 8):
        bad = bytearray(GOOD.raw)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(RecordRefused):
            decode(bytes(bad))


def test_every_truncation_and_a_trailing_byte_are_refused():
    for length in range(len(GOOD.raw)):
        with pytest.raises(RecordRefused):
            decode(GOOD.raw[:length])
    with pytest.raises(RecordRefused, match="length"):
        decode(GOOD.raw + b"\0")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_with_a_reason(raw):
    with pytest.raises(RecordRefused) as refusal:
        decode(raw)
    assert refusal.value.reason


@given(st.binary(max_size=300))
def test_arbitrary_bytes_after_a_good_version_are_refused(raw):
    with pytest.raises(RecordRefused):
        decode(b"\x01\x00" + raw)


def test_a_record_over_the_limit_is_refused():
    with pytest.raises(RecordRefused, match="at most"):
        decode(b"\x01" * (MAX_RECORD_B + 1))
    with pytest.raises(TelaError):
        seal(Draft("node", "a", b"x" * MAX_RECORD_B), OPERATOR.key, OPERATOR.sign)


def test_a_signature_by_another_key_is_refused():
    with pytest.raises(TelaError, match="signature"):
        seal(Draft("node", "a", b"{}"), OPERATOR.key, MEMBER.sign)


def test_a_signature_without_the_domain_string_is_refused():
    signed = OPERATOR.sign(GOOD.raw[:-64])
    with pytest.raises(RecordRefused, match="signature"):
        decode(GOOD.raw[:-64] + signed)
    assert len(DOMAIN) == 16


@pytest.mark.parametrize("draft", [
    Draft("Node", "a", b""), Draft("", "a", b""), Draft("node", "", b""), Draft("node", "a b", b""),
    Draft("node", "é", b""), Draft("node", "a", b"", run=-1), Draft("node", "a", b"", seq=1 << 64),
    Draft("node", "x" * 300, b""),
])  # fmt: skip
def test_a_malformed_draft_is_not_signed(draft):
    with pytest.raises(TelaError):
        seal(draft, OPERATOR.key, OPERATOR.sign)
