"""TLK1 as it should go: known answers, both implementations, the guard, and misuse."""

import hashlib
import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.handshake import M1_B, Established, Initiator, ReplayGuard, Responder, network_key
from gossip.secure import Opener, Sealer, open_verdict, seal_accept
from gossip.transcript import MAX_HELLO_B
from tests.gossip.tlk1_reference import End

VECTORS = json.loads(Path(__file__).with_name("vectors_tlk1.json").read_text())
NETWORK = network_key(bytes(32))


def secret(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def dial(*, payload: bytes = b"hello of I", pinned: bytes | None = None, session: str = "1") -> Initiator:
    return Initiator(
        seed=secret("I"),
        network=NETWORK,
        payload=payload,
        pinned=pinned,
        ephemeral_seed=secret("eI" + session),
        nonce=secret("rI" + session)[:16],
    )


def answer(*, payload: bytes = b"hello of R", session: str = "1") -> Responder:
    return Responder(
        seed=secret("R"),
        network=NETWORK,
        payload=payload,
        ephemeral_seed=secret("eR" + session),
        guard=ReplayGuard(),
    )


def reference(role: str, **changes: object) -> End:
    given_: dict[str, object] = {
        "seed": secret(role),
        "network": NETWORK,
        "payload": b"hello of " + role.encode(),
        "ephemeral_seed": secret("e" + role),
        **changes,
    }
    return End(**given_)  # type: ignore[arg-type]


def meet(initiator: Initiator, responder: Responder) -> tuple[Established, Established]:
    m3, at_initiator = initiator.receive(responder.receive_first(initiator.first(), 0.0))
    return at_initiator, responder.receive_last(m3)


def from_vector(vector: dict[str, str]) -> tuple[dict[str, bytes], Initiator, Responder]:
    v = {name: bytes.fromhex(value) for name, value in vector.items() if name != "magic"}
    magic, network = vector["magic"].encode(), network_key(v["fabric_id"])
    initiator = Initiator(
        seed=v["initiator_seed"],
        network=network,
        payload=v["initiator_payload"],
        pinned=v["responder_id"],
        ephemeral_seed=v["initiator_ephemeral_seed"],
        nonce=v["nonce"],
        magic=magic,
    )
    responder = Responder(
        seed=v["responder_seed"],
        network=network,
        payload=v["responder_payload"],
        ephemeral_seed=v["responder_ephemeral_seed"],
        guard=ReplayGuard(),
        magic=magic,
    )
    return v, initiator, responder


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["magic"])
def test_the_messages_and_keys_are_the_known_answers(vector: dict[str, str]) -> None:
    v, initiator, responder = from_vector(vector)
    assert network_key(v["fabric_id"]) == v["network_key"]
    assert initiator.first() == v["m1"]
    assert responder.receive_first(v["m1"], 0.0) == v["m2"]
    m3, at_initiator = initiator.receive(v["m2"])
    assert m3 == v["m3"]
    assert at_initiator == Established(
        peer=v["responder_id"],
        payload=v["responder_payload"],
        send_key=v["i2r"],
        receive_key=v["r2i"],
        binding=v["binding"],
    )
    assert responder.receive_last(v["m3"]) == Established(
        peer=v["initiator_id"],
        payload=v["initiator_payload"],
        send_key=v["r2i"],
        receive_key=v["i2r"],
        binding=v["binding"],
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["magic"])
def test_the_verdicts_are_the_known_answers(vector: dict[str, str]) -> None:
    v, _, _ = from_vector(vector)
    assert open_verdict(Opener(v["r2i"]), v["binding"], v["accept"]) is None
    assert open_verdict(Opener(v["r2i"]), v["binding"], v["reject"]) == "membership_expired"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["magic"])
def test_the_reference_gives_the_known_answers_too(vector: dict[str, str]) -> None:
    v, _, _ = from_vector(vector)
    ends = [
        End(
            seed=v[f"{role}_seed"],
            network=v["network_key"],
            payload=v[f"{role}_payload"],
            ephemeral_seed=v[f"{role}_ephemeral_seed"],
            nonce=v["nonce"],
            magic=vector["magic"].encode(),
        )
        for role in ("initiator", "responder")
    ]
    assert ends[0].m1() == v["m1"]
    assert ends[1].m2(v["m1"]) == v["m2"]
    ends[0].read_m2(v["m2"])
    assert ends[0].m3() == v["m3"]
    ends[1].read_m3(v["m3"])
    assert [(end.th, end.key(b"i2r"), end.key(b"r2i")) for end in ends] == [(v["binding"], v["i2r"], v["r2i"])] * 2


def test_an_initiator_meets_the_reference() -> None:
    ours, theirs = dial(), reference("R")
    m3, established = ours.receive(theirs.m2(ours.first()))
    theirs.read_m3(m3)
    assert (established.peer, established.payload) == (theirs.id, b"hello of R")
    assert theirs.peer_payload == b"hello of I"
    assert (established.send_key, established.receive_key) == (theirs.key(b"i2r"), theirs.key(b"r2i"))
    assert established.binding == theirs.th


def test_the_reference_meets_a_responder() -> None:
    ours, theirs = answer(), reference("I")
    theirs.read_m2(ours.receive_first(theirs.m1(), 0.0))
    established = ours.receive_last(theirs.m3())
    assert (established.peer, established.payload) == (theirs.id, b"hello of I")
    assert theirs.peer_payload == b"hello of R"
    assert (established.send_key, established.receive_key) == (theirs.key(b"r2i"), theirs.key(b"i2r"))
    assert established.binding == theirs.th


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_both_ends_agree_whatever_their_hellos(said_by_i: bytes, said_by_r: bytes) -> None:
    at_initiator, at_responder = meet(dial(payload=said_by_i), answer(payload=said_by_r))
    assert (at_initiator.payload, at_responder.payload) == (said_by_r, said_by_i)
    assert at_initiator.binding == at_responder.binding
    assert at_initiator.send_key == at_responder.receive_key
    assert at_initiator.receive_key == at_responder.send_key


def test_the_messages_have_the_specified_sizes() -> None:
    initiator, responder = dial(payload=bytes(40)), answer(payload=bytes(40))
    m1 = initiator.first()
    m2 = responder.receive_first(m1, 0.0)
    m3, _ = initiator.receive(m2)
    done = responder.receive_last(m3)
    m4 = seal_accept(Sealer(done.send_key), done.binding)
    assert [len(message) for message in (m1, m2, m3, m4)] == [M1_B, 184, 152, 47]
    assert M1_B == 70


def test_the_largest_hello_passes() -> None:
    at_initiator, _ = meet(dial(), answer(payload=bytes(MAX_HELLO_B)))
    assert len(at_initiator.payload) == MAX_HELLO_B


def test_a_larger_hello_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="at most"):
        dial(payload=bytes(MAX_HELLO_B + 1))


def test_a_larger_hello_of_theirs_is_refused() -> None:
    ours, theirs = dial(), reference("R", payload=bytes(MAX_HELLO_B + 1))
    with pytest.raises(RemoteProtocolError, match="M2 has"):
        ours.receive(theirs.m2(ours.first()))


def test_the_pinned_responder_is_met() -> None:
    at_initiator, _ = meet(dial(pinned=reference("R").id), answer())
    assert at_initiator.peer == reference("R").id


def test_messages_may_arrive_as_bytearrays() -> None:
    initiator, responder = dial(), answer()
    m2 = responder.receive_first(bytearray(initiator.first()), 0.0)
    m3, at_initiator = initiator.receive(bytearray(m2))
    assert responder.receive_last(bytearray(m3)).binding == at_initiator.binding


def test_every_session_has_its_own_keys() -> None:
    sessions = [meet(dial(session=i), answer(session=r))[0] for i, r in product(("1", "2"), ("1", "2"))]
    keys = {key for s in sessions for key in (s.send_key, s.receive_key, s.binding)}
    assert len(keys) == 12


def test_fabrics_have_different_network_keys() -> None:
    assert network_key(b"a") != network_key(b"b")


def test_a_fabric_without_id_has_no_network_key() -> None:
    with pytest.raises(LocalProtocolError):
        network_key(b"")


# the replay guard


def test_the_guard_admits_a_mac_once() -> None:
    guard = ReplayGuard()
    assert [guard.admit(b"a", 0.0), guard.admit(b"b", 1.0), guard.admit(b"a", 299.0)] == [True, True, False]


def test_the_guard_forgets_after_its_time() -> None:
    guard = ReplayGuard(keep_s=300.0)
    guard.admit(b"a", 0.0)
    guard.admit(b"b", 100.0)
    assert not guard.admit(b"b", 300.5)
    assert guard.admit(b"a", 300.5)


def test_the_guard_remembers_from_the_last_replay() -> None:
    guard = ReplayGuard(keep_s=300.0)
    assert [guard.admit(b"a", now) for now in (0.0, 200.0, 400.0, 701.0)] == [True, False, False, True]


@given(st.lists(st.binary(min_size=1, max_size=2)))
def test_the_guard_never_outgrows_its_capacity(macs: list[bytes]) -> None:
    guard = ReplayGuard(capacity=4)
    for now, mac in enumerate(macs):
        guard.admit(mac, float(now))
    assert guard.size <= 4
    assert not any(guard.admit(mac, float(len(macs))) for mac in macs[-1:])


def test_a_full_guard_forgets_the_oldest() -> None:
    guard = ReplayGuard(capacity=2)
    assert all(guard.admit(mac, 0.0) for mac in (b"a", b"b", b"c"))
    assert not guard.admit(b"c", 0.0)
    assert guard.admit(b"a", 0.0)


def test_a_replayed_mac_is_not_the_oldest_any_more() -> None:
    guard = ReplayGuard(capacity=2)
    for mac in (b"a", b"b", b"a", b"c"):
        guard.admit(mac, 0.0)
    assert not guard.admit(b"a", 0.0)
    assert guard.admit(b"b", 0.0)


def test_a_guard_without_room_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        ReplayGuard(capacity=0)


# misuse


def test_an_initiator_must_speak_first() -> None:
    with pytest.raises(LocalProtocolError, match="HALF wanted, it is FRESH"):
        dial().receive(bytes(200))


def test_an_initiator_speaks_first_once() -> None:
    initiator = dial()
    initiator.first()
    with pytest.raises(LocalProtocolError):
        initiator.first()


def test_an_initiator_is_used_once() -> None:
    initiator, responder = dial(), answer()
    m2 = responder.receive_first(initiator.first(), 0.0)
    initiator.receive(m2)
    with pytest.raises(LocalProtocolError, match="it is OVER"):
        initiator.receive(m2)


def test_a_responder_hears_the_first_message_first() -> None:
    with pytest.raises(LocalProtocolError):
        answer().receive_last(bytes(152))


def test_a_responder_is_used_once() -> None:
    initiator, responder = dial(), answer()
    m3, _ = initiator.receive(responder.receive_first(initiator.first(), 0.0))
    with pytest.raises(LocalProtocolError):
        responder.receive_first(bytes(70), 0.0)
    responder.receive_last(m3)
    with pytest.raises(LocalProtocolError):
        responder.receive_last(m3)


def test_a_refusal_ends_an_initiator() -> None:
    initiator, responder = dial(), answer()
    m2 = responder.receive_first(initiator.first(), 0.0)
    with pytest.raises(RemoteProtocolError):
        initiator.receive(b"")
    with pytest.raises(LocalProtocolError):
        initiator.receive(m2)


def test_a_refusal_ends_a_responder() -> None:
    responder = answer()
    with pytest.raises(RemoteProtocolError):
        responder.receive_first(b"", 0.0)
    with pytest.raises(LocalProtocolError):
        responder.receive_first(dial().first(), 0.0)


@pytest.mark.parametrize("name", ["seed", "network", "pinned", "ephemeral_seed", "nonce", "magic"])
def test_an_initiator_refuses_arguments_of_the_wrong_size(name: str) -> None:
    good = {
        "seed": bytes(32),
        "network": bytes(32),
        "payload": b"",
        "pinned": None,
        "ephemeral_seed": bytes(32),
        "nonce": bytes(16),
    }
    with pytest.raises(LocalProtocolError, match="bytes"):
        Initiator(**{**good, name: bytes(31)})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["seed", "network", "ephemeral_seed", "magic"])
def test_a_responder_refuses_arguments_of_the_wrong_size(name: str) -> None:
    good = {"seed": bytes(32), "network": bytes(32), "payload": b"", "ephemeral_seed": bytes(32)}
    with pytest.raises(LocalProtocolError, match="bytes"):
        Responder(**{**good, "guard": ReplayGuard(), name: bytes(31)})  # type: ignore[arg-type]


def test_no_secret_shows_in_a_repr() -> None:
    initiator, responder = dial(), answer()
    established, _ = meet(initiator, responder)
    shown = repr(established) + repr(initiator) + repr(responder)
    secrets = [established.send_key, established.receive_key, established.binding, established.payload]
    secrets += [secret(name) for name in ("I", "R", "eI1", "eR1")] + [NETWORK]
    assert not any(repr(value)[2:-1] in shown or value.hex() in shown for value in secrets)


def test_a_finished_core_keeps_no_ephemeral_key() -> None:
    initiator, responder = dial(), answer()
    meet(initiator, responder)
    held = [getattr(core, name) for core in (initiator, responder) for name in core.__slots__]
    assert not [value for value in held if value in {secret("eI1"), secret("eR1")}]
    assert initiator._ephemeral == (b"", b"")
    assert responder._prk == b""
