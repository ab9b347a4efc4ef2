"""Records and verdicts: what libsodium promises, and the ends of a stream, which it leaves to us."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.secure import (
    HEADER_B,
    MAX_MESSAGE_B,
    MAX_PLAIN_B,
    OVERHEAD_B,
    Opener,
    Sealer,
    open_verdict,
    seal_accept,
    seal_reject,
)
from tests.gossip.tlk1_reference import Stream

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
BINDING = b"b" * 32
VECTORS = json.loads(Path(__file__).with_name("vectors_tlk1.json").read_text())
TAG_PUSH, TAG_REKEY, TAG_FINAL = 1, 2, 3


def pair() -> tuple[Sealer, Opener]:
    return Sealer(KEY), Opener(KEY)


def running_pair() -> tuple[Sealer, Opener]:
    """A pair past its first record."""
    sealer, opener = pair()
    opener.open(sealer.seal(b"first"))
    return sealer, opener


def reference() -> Stream:
    return Stream(KEY, bytes(range(100, 124)))


@contextmanager
def refused(code: str) -> Iterator[None]:
    with pytest.raises(RemoteProtocolError) as caught:
        yield
    assert caught.value.code == code


# records


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=8))
def test_records_arrive_as_they_were_sent(plains: list[bytes]) -> None:
    sealer, opener = pair()
    assert [opener.open(sealer.seal(plain)) for plain in plains] == plains


def test_only_the_first_message_carries_the_header() -> None:
    sealer = Sealer(KEY)
    assert len(sealer.seal(b"x")) == HEADER_B + 1 + OVERHEAD_B
    assert len(sealer.seal(b"x")) == 1 + OVERHEAD_B


def test_the_largest_record_passes() -> None:
    sealer, opener = pair()
    message = sealer.seal(bytes(MAX_PLAIN_B))
    assert len(message) == MAX_MESSAGE_B
    assert opener.open(message) == bytes(MAX_PLAIN_B)
    assert opener.open(sealer.seal(bytes(MAX_PLAIN_B))) == bytes(MAX_PLAIN_B)


def test_a_larger_record_is_our_own_mistake() -> None:
    sealer, opener = pair()
    with pytest.raises(LocalProtocolError, match="at most 65536"):
        sealer.seal(bytes(MAX_PLAIN_B + 1))
    assert opener.open(sealer.seal(b"goes on")) == b"goes on"


@pytest.mark.parametrize("first", [True, False])
def test_a_larger_record_of_theirs_is_refused_before_it_is_opened(first: bool) -> None:
    stream, opener = reference(), Opener(KEY)
    if not first:
        opener.open(stream.push(b"first", 0))
    with refused("record_size"):
        opener.open(stream.push(bytes(MAX_PLAIN_B + 1), 0))


def test_an_empty_record_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="empty"):
        Sealer(KEY).seal(b"")


def test_an_empty_record_of_theirs_is_refused() -> None:
    with refused("record_empty"):
        Opener(KEY).open(reference().push(b"", 0))


def test_an_empty_message_is_refused() -> None:
    with refused("record_size"):
        Opener(KEY).open(b"")
    _, opener = running_pair()
    with refused("record_size"):
        opener.open(b"")


def test_messages_may_arrive_as_bytearrays() -> None:
    sealer, opener = pair()
    assert opener.open(bytearray(sealer.seal(b"one"))) == b"one"
    assert opener.open(bytearray(sealer.seal(b"two"))) == b"two"


def test_a_record_that_is_no_bytes_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="made of bytes"):
        Sealer(KEY).seal(bytearray(b"x"))  # type: ignore[arg-type]


def test_the_same_words_are_sealed_differently_each_time() -> None:
    sealer = Sealer(KEY)
    assert len({sealer.seal(b"same")[-21:] for _ in range(50)}) == 50


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5), st.binary(max_size=40))
def test_the_references_stream_is_understood(plains: list[bytes], ad: bytes) -> None:
    stream, opener = reference(), Opener(KEY)
    assert [opener.open(stream.push(plain, 0, ad), ad=ad) for plain in plains] == plains


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5), st.binary(max_size=40))
def test_the_reference_makes_the_same_stream(plains: list[bytes], ad: bytes) -> None:
    sealer = Sealer(KEY)
    messages = [sealer.seal(plain, ad=ad) for plain in plains]
    stream = Stream(KEY, messages[0][:HEADER_B])
    assert [stream.push(plain, 0, ad) for plain in plains] == messages


@pytest.mark.parametrize("make", [Sealer, Opener])
@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytearray(32)])
def test_a_key_of_the_wrong_size_is_our_own_mistake(make: Callable[[bytes], object], key: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        make(key)


# attacks on records


def test_every_flipped_bit_is_refused() -> None:
    messages = [seal(Sealer(KEY)) for seal in (lambda s: s.seal(b"record"), lambda s: s.finish(b"last"))]
    for message in messages:
        for bit in range(len(message) * 8):
            damaged = bytearray(message)
            damaged[bit // 8] ^= 1 << bit % 8
            with refused("record_forged"):
                Opener(KEY).open(damaged)


def test_every_truncation_is_refused() -> None:
    message = Sealer(KEY).seal(b"a record of some length")
    for length in range(len(message)):
        with pytest.raises(RemoteProtocolError):
            Opener(KEY).open(message[:length])


def test_every_truncation_of_a_later_record_is_refused() -> None:
    sealer = Sealer(KEY)
    first, second = sealer.seal(b"first"), sealer.seal(b"second")
    for length in range(len(second)):
        opener = Opener(KEY)
        opener.open(first)
        with pytest.raises(RemoteProtocolError):
            opener.open(second[:length])


def test_a_replayed_record_is_refused() -> None:
    sealer, opener = running_pair()
    record = sealer.seal(b"once")
    opener.open(record)
    with refused("record_forged"):
        opener.open(record)


def test_a_replayed_first_message_is_refused() -> None:
    sealer, opener = pair()
    message = sealer.seal(b"first")
    opener.open(message)
    with refused("record_forged"):
        opener.open(message)


def test_a_skipped_record_is_noticed() -> None:
    sealer, opener = running_pair()
    sealer.seal(b"lost")
    with refused("record_forged"):
        opener.open(sealer.seal(b"next"))


def test_a_skipped_first_message_is_noticed() -> None:
    sealer, opener = pair()
    sealer.seal(b"lost")
    with refused("record_forged"):
        opener.open(sealer.seal(b"a record longer than a header"))


def test_reordered_records_are_noticed() -> None:
    sealer, opener = running_pair()
    _, second = sealer.seal(b"one"), sealer.seal(b"two")
    with refused("record_forged"):
        opener.open(second)


def test_our_own_records_do_not_come_back_as_theirs() -> None:
    with refused("record_forged"):
        Opener(OTHER_KEY).open(Sealer(KEY).seal(b"mine"))


def test_a_record_of_another_stream_under_the_same_key_is_refused() -> None:
    _, opener = running_pair()
    stranger, _ = running_pair()
    with refused("record_forged"):
        opener.open(stranger.seal(b"second"))


def test_other_associated_data_is_refused() -> None:
    sealer, opener = pair()
    with refused("record_forged"):
        opener.open(sealer.seal(b"x", ad=b"one"), ad=b"two")


@pytest.mark.parametrize("tag", [TAG_PUSH, TAG_REKEY, 4, 255])
def test_a_tag_we_never_send_is_refused(tag: int) -> None:
    with refused("record_tag"):
        Opener(KEY).open(reference().push(b"x", tag))


def test_libsodium_alone_would_go_on_after_a_failure_and_after_the_end() -> None:
    """The reason why `Opener` keeps its own end; if this fails, libsodium does more for us."""
    push = bindings.crypto_secretstream_xchacha20poly1305_push
    pull = bindings.crypto_secretstream_xchacha20poly1305_pull
    sending, receiving = (bindings.crypto_secretstream_xchacha20poly1305_state() for _ in range(2))
    header = bindings.crypto_secretstream_xchacha20poly1305_init_push(sending, KEY)
    bindings.crypto_secretstream_xchacha20poly1305_init_pull(receiving, header, KEY)
    with pytest.raises(RuntimeError):
        pull(receiving, bytes(20))
    assert pull(receiving, push(sending, b"last", b"", TAG_FINAL)) == (b"last", TAG_FINAL)
    assert pull(receiving, push(sending, b"more")) == (b"more", 0)


def test_a_failure_is_for_ever() -> None:
    sealer, opener = running_pair()
    good = sealer.seal(b"good")
    with refused("record_forged"):
        opener.open(good[:-1] + bytes([good[-1] ^ 1]))
    for message in (good, b"", sealer.seal(b"next")):
        with refused("link_dead"):
            opener.open(message)
    assert not opener.finished


@given(st.lists(st.binary(max_size=120), min_size=1, max_size=4))
def test_arbitrary_first_messages_are_refused_and_nothing_else_escapes(messages: list[bytes]) -> None:
    opener = Opener(KEY)
    for message in messages:
        with pytest.raises(RemoteProtocolError):
            opener.open(message)


@given(st.lists(st.binary(max_size=120), min_size=1, max_size=4), st.binary(max_size=9))
def test_arbitrary_later_messages_are_refused_and_nothing_else_escapes(messages: list[bytes], ad: bytes) -> None:
    _, opener = running_pair()
    for message in messages:
        with pytest.raises(RemoteProtocolError):
            opener.open(message, ad=ad)


# the end


@pytest.mark.parametrize("words", [b"", b"goodbye"])
def test_the_last_record_finishes_both_ends(words: bytes) -> None:
    sealer, opener = running_pair()
    assert opener.open(sealer.finish(words)) == words
    assert opener.finished


def test_a_stream_may_finish_at_once() -> None:
    sealer, opener = pair()
    assert opener.open(sealer.finish()) == b""
    assert opener.finished


def test_an_opener_is_not_finished_before_the_last_record() -> None:
    _, opener = running_pair()
    assert not opener.finished


def test_nothing_is_sealed_after_the_last_record() -> None:
    sealer, _ = running_pair()
    sealer.finish()
    with pytest.raises(LocalProtocolError, match="follow"):
        sealer.seal(b"more")
    with pytest.raises(LocalProtocolError, match="follow"):
        sealer.finish()


def test_data_after_the_last_record_is_refused() -> None:
    stream, opener = reference(), Opener(KEY)
    opener.open(stream.push(b"last", TAG_FINAL))
    with refused("record_after_final"):
        opener.open(stream.push(b"more", 0))
    with refused("record_after_final"):
        opener.open(stream.push(b"more", TAG_FINAL))


def test_a_replayed_last_record_is_refused() -> None:
    sealer, opener = running_pair()
    last = sealer.finish()
    opener.open(last)
    with refused("record_after_final"):
        opener.open(last)


# the verdict


def test_an_acceptance_lets_records_follow() -> None:
    sealer, opener = pair()
    assert open_verdict(opener, BINDING, seal_accept(sealer, BINDING)) is None
    assert opener.open(sealer.seal(b"welcome")) == b"welcome"


@pytest.mark.parametrize("code", ["a", "membership_expired", "9" * 32])
def test_a_refusal_says_why(code: str) -> None:
    sealer, opener = pair()
    assert open_verdict(opener, BINDING, seal_reject(sealer, BINDING, code)) == code
    assert opener.finished


def test_nothing_is_sealed_after_a_refusal() -> None:
    sealer = Sealer(KEY)
    seal_reject(sealer, BINDING, "revoked")
    with pytest.raises(LocalProtocolError, match="follow"):
        sealer.seal(b"but")


def test_a_record_after_a_refusal_is_refused() -> None:
    stream, opener = reference(), Opener(KEY)
    open_verdict(opener, BINDING, stream.push(b"REJECTrevoked", TAG_PUSH, BINDING))
    with refused("record_after_final"):
        opener.open(stream.push(b"but", 0))


@pytest.mark.parametrize("code", ["", "A", "a b", "a\n", "é", "x" * 33, "\x1b[2j"])
def test_a_malformed_code_is_our_own_mistake(code: str) -> None:
    with pytest.raises(LocalProtocolError, match="refusal code"):
        seal_reject(Sealer(KEY), BINDING, code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ACC",
        b"ACCEPT\0",
        b"accept",
        b"REJECT",
        b"REJECTNo",
        b"REJECT\x1b[2j",
        b"REJECT\xff",
        b"revoked",
        b"REJECTa\n",
        b"REJECT" + b"x" * 33,
    ],
)
def test_a_verdict_that_says_neither_is_refused(body: bytes) -> None:
    opener = Opener(KEY)
    with refused("verdict"):
        open_verdict(opener, BINDING, reference().push(body, TAG_PUSH, BINDING))
    with refused("link_dead"):
        opener.open(b"x" * 40)


@pytest.mark.parametrize("tag", [0, TAG_REKEY, TAG_FINAL])
def test_a_record_is_no_verdict(tag: int) -> None:
    with refused("verdict"):
        open_verdict(Opener(KEY), BINDING, reference().push(b"ACCEPT", tag, BINDING))


def test_a_verdict_is_no_record() -> None:
    with refused("record_tag"):
        Opener(KEY).open(seal_accept(Sealer(KEY), BINDING), ad=BINDING)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["magic"])
@pytest.mark.parametrize("name", ["accept", "reject"])
def test_every_flipped_bit_of_a_verdict_is_refused(vector: dict[str, str], name: str) -> None:
    key, binding, message = (bytes.fromhex(vector[field]) for field in ("r2i", "binding", name))
    for bit in range(len(message) * 8):
        damaged = bytearray(message)
        damaged[bit // 8] ^= 1 << bit % 8
        with refused("record_forged"):
            open_verdict(Opener(key), binding, damaged)


def test_every_truncation_of_a_verdict_is_refused() -> None:
    message = seal_accept(Sealer(KEY), BINDING)
    for length in range(len(message)):
        with pytest.raises(RemoteProtocolError):
            open_verdict(Opener(KEY), BINDING, message[:length])


def test_an_oversize_verdict_is_refused() -> None:
    with refused("record_size"):
        open_verdict(Opener(KEY), BINDING, bytes(MAX_MESSAGE_B + 1))


def test_a_verdict_of_another_session_is_refused() -> None:
    with refused("record_forged"):
        open_verdict(Opener(KEY), BINDING, seal_accept(Sealer(OTHER_KEY), BINDING))


def test_a_verdict_for_another_transcript_is_refused() -> None:
    with refused("record_forged"):
        open_verdict(Opener(KEY), b"c" * 32, seal_accept(Sealer(KEY), BINDING))


def test_a_verdict_comes_first_when_it_is_sealed() -> None:
    sealer, _ = running_pair()
    with pytest.raises(LocalProtocolError, match="first record"):
        seal_accept(sealer, BINDING)


def test_a_verdict_comes_first_when_it_is_opened() -> None:
    sealer, opener = running_pair()
    with pytest.raises(LocalProtocolError, match="first record"):
        open_verdict(opener, BINDING, sealer.seal(b"x"))


def test_a_verdict_is_not_opened_where_the_link_is_dead() -> None:
    opener = Opener(KEY)
    with refused("record_size"):
        opener.open(b"")
    with refused("link_dead"):
        open_verdict(opener, BINDING, seal_accept(Sealer(KEY), BINDING))


def test_a_binding_of_the_wrong_size_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="binding"):
        seal_accept(Sealer(KEY), b"")
    with pytest.raises(LocalProtocolError, match="binding"):
        open_verdict(Opener(KEY), b"", bytes(47))


@given(st.binary(max_size=120))
def test_arbitrary_verdicts_are_refused_and_nothing_else_escapes(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        open_verdict(Opener(KEY), BINDING, message)


def test_no_key_shows_in_a_repr_or_a_refusal() -> None:
    sealer, opener = pair()
    shown = repr(sealer) + repr(opener)
    with pytest.raises(RemoteProtocolError) as caught:
        opener.open(bytes(60))
    shown += f"{caught.value!r}{caught.value.__cause__!r}"
    assert KEY.hex() not in shown
    assert repr(KEY)[2:-1] not in shown
