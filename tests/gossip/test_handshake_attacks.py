"""TLK1 as somebody on the wire, or at the other end, would like it to go. Each test is one attack."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.errors import RemoteProtocolError
from gossip.handshake import (
    CIRCUIT_MAGIC,
    LINK_MAGIC,
    MAX_M2_B,
    MAX_M3_B,
    Initiator,
    ReplayGuard,
    Responder,
    network_key,
)
from registry.errors import RecordRefused
from registry.record import Draft, decode, seal, seed_signer
from tests.gossip.tlk1_reference import End, first_message, th_next

NETWORK = network_key(bytes(32))
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the Ed25519 base point, RFC 8032 §5.1
PRIME = 2**255 - 19

# The x-coordinates of order 1, 2, 4 and 8 on Curve25519 and its twist (cr.yp.to/ecdh.html).
LOW_ORDER = [
    0,
    1,
    PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]
NOT_CANONICAL = [*range(PRIME, 2**255), *(2**255 + u for u in (*LOW_ORDER, 9, *range(PRIME, 2**255)))]
POINTS = [u.to_bytes(32, "little") for u in LOW_ORDER + NOT_CANONICAL]

# Every encoding of the eight Ed25519 points of order 1, 2, 4 and 8, canonical or not.
_ORDER_8 = [
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03",
]
SMALL_ORDER = [bytes.fromhex(_ORDER_8[0] + end) for end in ("05", "85")]
SMALL_ORDER += [bytes.fromhex(_ORDER_8[1] + end) for end in ("7a", "fa")]
SMALL_ORDER += [(y + sign).to_bytes(32, "little") for y in (0, 1, PRIME - 1, PRIME, PRIME + 1) for sign in (0, 2**255)]


def secret(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def identity(name: str) -> bytes:
    return seed_signer(secret(name))[0]


def sign_as(name: str) -> Callable[[bytes], bytes]:
    return seed_signer(secret(name))[1]


def dial(
    who: str = "I",
    *,
    pinned: bytes | None = None,
    network: bytes = NETWORK,
    magic: bytes = LINK_MAGIC,
    session: str = "1",
) -> Initiator:
    return Initiator(
        seed=secret(who),
        network=network,
        payload=b"hello",
        pinned=pinned,
        ephemeral_seed=secret("initiator's" + session),
        nonce=secret("nonce" + session)[:16],
        magic=magic,
    )


def answer(
    who: str = "R",
    *,
    guard: ReplayGuard | None = None,
    network: bytes = NETWORK,
    magic: bytes = LINK_MAGIC,
    session: str = "1",
) -> Responder:
    return Responder(
        seed=secret(who),
        network=network,
        payload=b"hello",
        ephemeral_seed=secret("responder's" + session),
        guard=guard or ReplayGuard(),
        magic=magic,
    )


def attacker(
    who: str = "E",
    *,
    claims: bytes | None = None,
    signs: Callable[[bytes], bytes] | None = None,
    payload: bytes = b"hello",
) -> End:
    return End(
        seed=secret(who),
        network=NETWORK,
        payload=payload,
        ephemeral_seed=secret("attacker's"),
        claims=claims,
        signs=signs,
    )


@contextmanager
def refused(*codes: str) -> Iterator[None]:
    with pytest.raises(RemoteProtocolError) as caught:
        yield
    assert caught.value.code.removeprefix("handshake_") in codes


def offer_m2(end: End, code: str, *, pinned: bytes | None = None) -> None:
    """Let `end` answer an honest initiator, which must refuse."""
    initiator = dial(pinned=pinned)
    m2 = end.m2(initiator.first())
    with refused(code):
        initiator.receive(m2)


def offer_m3(end: End, code: str) -> None:
    """Let `end` dial an honest responder, which must refuse its M3."""
    responder = answer()
    end.read_m2(responder.receive_first(end.m1(), 0.0))
    with refused(code):
        responder.receive_last(end.m3())


def transcript() -> tuple[bytes, bytes, bytes]:
    initiator, responder = dial(), answer()
    m1 = initiator.first()
    m2 = responder.receive_first(m1, 0.0)
    return m1, m2, initiator.receive(m2)[0]


def offer_to_responder(m1: bytes) -> None:
    answer().receive_first(m1, 0.0)


def offer_to_initiator(m2: bytes) -> None:
    initiator = dial()
    initiator.first()
    initiator.receive(m2)


def offer_last(m3: bytes) -> None:
    responder = answer()
    responder.receive_first(dial().first(), 0.0)
    responder.receive_last(m3)


OFFERS = [offer_to_responder, offer_to_initiator, offer_last]
each_message = pytest.mark.parametrize("number", [0, 1, 2], ids=["M1", "M2", "M3"])


# damaged messages


@each_message
def test_the_undamaged_message_is_taken(number: int) -> None:
    OFFERS[number](transcript()[number])


@each_message
def test_every_flipped_bit_is_refused(number: int) -> None:
    message = transcript()[number]
    codes = set()
    for bit in range(len(message) * 8):
        damaged = bytearray(message)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError) as caught:
            OFFERS[number](bytes(damaged))
        codes.add(caught.value.code.removeprefix("handshake_"))
    assert codes == [{"magic", "version", "network"}, {"point", "box"}, {"box"}][number]


@each_message
def test_every_truncation_is_refused(number: int) -> None:
    message = transcript()[number]
    for length in range(len(message)):
        with refused("length", "box"):
            OFFERS[number](message[:length])


@each_message
def test_anything_appended_is_refused(number: int) -> None:
    message = transcript()[number]
    for more in (b"\0", message, bytes(100_000)):
        with refused("length", "box"):
            OFFERS[number](message + more)


@pytest.mark.parametrize(("number", "limit"), [(1, MAX_M2_B), (2, MAX_M3_B)])
def test_an_oversize_message_is_refused_by_its_length(number: int, limit: int) -> None:
    with refused("length"):
        OFFERS[number](bytes(limit + 1))


@each_message
def test_no_message_stands_in_for_another(number: int) -> None:
    for other, message in enumerate(transcript()):
        if other != number:
            with refused("length", "magic", "box", "point"):
                OFFERS[number](message)


@given(number=st.integers(0, 2), message=st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_and_nothing_else_escapes(number: int, message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        OFFERS[number](message)


@pytest.mark.parametrize("version", [b"\0\0", b"\2\0", b"\1\1", b"\xff\xff"])
def test_another_version_or_suite_is_refused_even_when_well_formed(version: bytes) -> None:
    m1 = first_message(NETWORK, LINK_MAGIC, attacker().public, bytes(16), version)
    with refused("version"):
        offer_to_responder(m1)


# degenerate keys and signatures


@pytest.mark.parametrize("point", POINTS, ids=bytes.hex)
def test_a_bad_ephemeral_key_of_an_initiator_is_refused(point: bytes) -> None:
    with refused("point"):
        offer_to_responder(first_message(NETWORK, LINK_MAGIC, point, bytes(16)))


@pytest.mark.parametrize("point", POINTS, ids=bytes.hex)
def test_a_bad_ephemeral_key_of_a_responder_is_refused(point: bytes) -> None:
    with refused("point"):
        offer_to_initiator(point + bytes(112))


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
def test_a_small_order_id_is_refused(offer: Callable[[End, str], None]) -> None:
    for claimed, commitment in product(SMALL_ORDER, SMALL_ORDER):
        forged = commitment + bytes(32)
        offer(attacker(claims=claimed, signs=lambda _, forged=forged: forged), "signature")  # type: ignore[misc]


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
def test_a_signature_with_a_small_order_commitment_is_refused(offer: Callable[[End, str], None]) -> None:
    digest = hashlib.sha512(secret("E")).digest()
    scalar = int.from_bytes(digest[:32], "little") & (2**254 - 8) | 2**254

    def sign(message: bytes) -> bytes:
        commitment = (1).to_bytes(32, "little")  # the neutral element: S = k·a solves S·B = R + k·A
        challenge = hashlib.sha512(commitment + identity("E") + message).digest()
        response = int.from_bytes(challenge, "little") * scalar % ORDER
        return commitment + response.to_bytes(32, "little")

    offer(attacker(signs=sign), "signature")


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
@pytest.mark.parametrize("times", [1, 2, 15])
def test_a_malleated_signature_is_refused(offer: Callable[[End, str], None], times: int) -> None:
    def sign(message: bytes) -> bytes:
        good = sign_as("E")(message)
        response = int.from_bytes(good[32:], "little") + times * ORDER
        return good[:32] + response.to_bytes(32, "little")

    offer(attacker(signs=sign), "signature")


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
def test_every_flipped_bit_of_a_signature_under_a_fresh_seal_is_refused(
    offer: Callable[[End, str], None],
) -> None:
    for bit in range(512):

        def sign(message: bytes, bit: int = bit) -> bytes:
            good = bytearray(sign_as("E")(message))
            good[bit // 8] ^= 1 << bit % 8
            return bytes(good)

        offer(attacker(signs=sign), "signature")


def test_an_honest_signature_under_a_fresh_seal_is_taken() -> None:
    initiator, end = dial(), attacker()
    assert initiator.receive(end.m2(initiator.first()))[1].peer == identity("E")


# replay and reflection


def test_a_replayed_first_message_is_refused() -> None:
    guard, m1 = ReplayGuard(), dial().first()
    answer(guard=guard).receive_first(m1, 0.0)
    with refused("replay"):
        answer(guard=guard, session="2").receive_first(m1, 299.0)


def test_a_forged_first_message_leaves_no_trace_in_the_guard() -> None:
    guard = ReplayGuard()
    with refused("network"):
        answer(guard=guard).receive_first(dial().first()[:-1] + b"\0", 0.0)
    assert guard.size == 0


def test_a_last_message_does_not_fit_another_session() -> None:
    _, _, m3 = transcript()
    responder = answer(session="2")
    responder.receive_first(dial(session="2").first(), 0.0)
    with refused("box"):
        responder.receive_last(m3)


def test_a_replayed_transcript_fails_where_the_guard_forgot() -> None:
    m1, _, m3 = transcript()
    responder = answer(session="2")
    responder.receive_first(m1, 0.0)
    with refused("box"):
        responder.receive_last(m3)


def test_a_replayed_answer_does_not_fit_another_session() -> None:
    _, m2, _ = transcript()
    initiator = dial(session="2")
    initiator.first()
    with refused("box"):
        initiator.receive(m2)


def test_a_first_message_reflected_as_an_answer_is_refused() -> None:
    initiator = dial()
    with refused("length"):
        initiator.receive(initiator.first())


def test_a_padded_reflection_is_refused_for_its_ephemeral_key() -> None:
    initiator = dial()
    m1 = initiator.first()
    with refused("reflected"):
        initiator.receive(m1[6:38] + bytes(112))


def test_a_responder_refuses_its_own_ephemeral_key() -> None:
    _, m2, _ = transcript()
    with refused("reflected"):
        offer_to_responder(first_message(NETWORK, LINK_MAGIC, m2[:32], bytes(16)))


def test_a_node_does_not_link_to_itself() -> None:
    initiator, responder = dial("R"), answer("R")
    m2 = responder.receive_first(initiator.first(), 0.0)
    with refused("own_id"):
        initiator.receive(m2)


def test_an_initiator_with_the_responders_own_id_is_refused() -> None:
    offer_m3(attacker("R"), "own_id")


def test_two_initiators_do_not_meet() -> None:
    one, other = dial(session="1"), dial("E", session="2")
    first_of_one, first_of_other = one.first(), other.first()
    for end, message in ((one, first_of_other), (other, first_of_one)):
        with refused("length"):
            end.receive(message)


def test_an_answer_is_no_last_message_though_both_are_introductions() -> None:
    end = attacker()
    responder = answer()
    m2 = responder.receive_first(end.m1(), 0.0)
    with refused("box"):
        responder.receive_last(m2[32:])


# impersonation


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
def test_an_id_without_its_signature_is_refused(offer: Callable[[End, str], None]) -> None:
    offer(attacker(claims=identity("X")), "signature")


def test_a_middleman_cannot_pass_on_a_responders_introduction() -> None:
    to_responder, responder = attacker(), answer()
    to_responder.read_m2(responder.receive_first(to_responder.m1(), 0.0))
    stolen = to_responder.peer_signature
    offer_m2(attacker(claims=identity("R"), signs=lambda _: stolen), "signature")


def test_a_middleman_cannot_pass_on_an_initiators_introduction() -> None:
    to_initiator, initiator = attacker(), dial()
    m3, _ = initiator.receive(to_initiator.m2(initiator.first()))
    to_initiator.read_m3(m3)
    stolen = to_initiator.peer_signature
    offer_m3(attacker(claims=identity("I"), signs=lambda _: stolen), "signature")


def test_a_middleman_cannot_put_its_own_last_message_into_a_session_it_relays() -> None:
    initiator, responder, mine = dial(), answer(), attacker()
    m2 = responder.receive_first(initiator.first(), 0.0)
    initiator.receive(m2)
    mine.m2(first_message(NETWORK, LINK_MAGIC, attacker().public, bytes(16)))  # some keys, not theirs
    with refused("box"):
        responder.receive_last(mine.m3())


def test_both_ends_of_a_relayed_session_name_each_other() -> None:
    initiator, responder = dial(), answer()
    m3, at_initiator = initiator.receive(responder.receive_first(initiator.first(), 0.0))
    at_responder = responder.receive_last(m3)
    assert (at_initiator.peer, at_responder.peer) == (identity("R"), identity("I"))


def test_a_hello_is_signed_by_who_said_it() -> None:
    end, initiator = attacker(), dial()
    honest: list[bytes] = []
    end.sign = lambda message: honest.append(message) or sign_as("E")(message)  # type: ignore[func-returns-value]
    end.m2(initiator.first())
    offer_m2(attacker(payload=b"i am an ingress", signs=lambda _: sign_as("E")(honest[0])), "signature")


def test_a_stolen_key_of_the_initiator_does_not_let_others_pose_to_it() -> None:
    offer_m2(attacker("I", claims=identity("R")), "signature", pinned=identity("R"))
    offer_m2(attacker("I", claims=identity("R")), "signature")


def test_a_stolen_key_of_the_initiator_does_not_answer_it() -> None:
    offer_m2(attacker("I"), "own_id")


def test_a_stolen_key_of_the_responder_does_not_let_others_pose_to_it() -> None:
    offer_m3(attacker("R", claims=identity("I")), "signature")


def test_the_roles_sign_in_different_domains() -> None:
    def as_initiator(message: bytes) -> bytes:
        return sign_as("E")(message.replace(b"link R", b"link I"))

    def as_responder(message: bytes) -> bytes:
        return sign_as("E")(message.replace(b"link I", b"link R"))

    offer_m2(attacker(signs=as_initiator), "signature")
    offer_m3(attacker(signs=as_responder), "signature")


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
def test_a_signature_without_its_domain_is_refused(offer: Callable[[End, str], None]) -> None:
    offer(attacker(signs=lambda message: sign_as("E")(message[16:])), "signature")


@pytest.mark.parametrize("offer", [offer_m2, offer_m3])
def test_a_record_signature_is_no_handshake_signature(offer: Callable[[End, str], None]) -> None:
    def sign(message: bytes) -> bytes:
        record = seal(Draft("note", "x", message), identity("E"), sign_as("E"))
        return record.raw[-64:]

    offer(attacker(signs=sign), "signature")


def test_a_handshake_signature_is_no_record_signature() -> None:
    initiator, end = dial(), attacker()
    m3, _ = initiator.receive(end.m2(initiator.first()))
    end.read_m3(m3)
    record = seal(Draft("note", "x", b"{}"), identity("I"), sign_as("I"))
    with pytest.raises(RecordRefused):
        decode(record.raw[:-64] + end.peer_signature)


# the wrong door


def test_another_responder_than_the_pinned_one_is_refused() -> None:
    offer_m2(attacker(), "pin", pinned=identity("R"))


def test_a_node_of_another_fabric_is_refused_by_the_responder() -> None:
    with refused("network"):
        answer().receive_first(dial(network=network_key(b"other")).first(), 0.0)


def answer_without_asking(m1: bytes, network: bytes) -> bytes:
    """M2 of a responder that does not mind which network M1 is from."""
    end = attacker()
    end.network = network
    end.th = th_next(th_next(bytes(32), m1), end.public)
    end._agree(theirs=m1[6:38], initiator=m1[6:38], responder=end.public)
    return end.public + end._introduce(b"m2", b"tela link R\0\0\0\0\0")


def test_a_node_of_another_fabric_is_refused_by_the_initiator() -> None:
    m1 = dial().first()
    offer_to_initiator(answer_without_asking(m1, NETWORK))
    with refused("box"):
        offer_to_initiator(answer_without_asking(m1, network_key(b"other")))


@pytest.mark.parametrize(("dialled", "answered"), [(LINK_MAGIC, CIRCUIT_MAGIC), (CIRCUIT_MAGIC, LINK_MAGIC)])
def test_a_link_and_a_circuit_do_not_meet(dialled: bytes, answered: bytes) -> None:
    with refused("magic"):
        answer(magic=answered).receive_first(dial(magic=dialled).first(), 0.0)


def test_a_circuits_answer_does_not_fit_a_link() -> None:
    m1 = first_message(NETWORK, CIRCUIT_MAGIC, dial().first()[6:38], secret("nonce1")[:16])
    m2 = answer(magic=CIRCUIT_MAGIC).receive_first(m1, 0.0)
    with refused("box"):
        offer_to_initiator(m2)


def test_no_secret_shows_in_a_refusal() -> None:
    refusals = []
    for number, message in enumerate(transcript()):
        with pytest.raises(RemoteProtocolError) as caught:
            OFFERS[number](message[:-1] + bytes([message[-1] ^ 1]))
        refusals.append(caught.value)
    shown = "".join(f"{e!r}{e.message}{e.hint}{e.__cause__!r}" for e in refusals)
    secrets = [secret(name) for name in ("I", "R", "initiator's1", "responder's1")] + [NETWORK]
    assert not any(repr(value)[2:-1] in shown or value.hex()[:16] in shown for value in secrets)
