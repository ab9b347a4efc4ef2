import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.frames import CAPABILITY
from gossip.hello import REFUSALS, Hello, encode_hello
from gossip.invited import Door
from gossip.memory import MemoryNetwork
from gossip.transcript import MAX_HELLO_B
from gossip.verdict import judge
from registry.clock import LEEWAY_S
from registry.kinds import Membership
from registry.lifecycle import Rank
from registry.replica import Replica
from registry.validity import standing
from tests.autojump import run
from tests.mesh import MeshNode, started, until
from tests.people import FABRIC, MEMBER, OPERATOR, Person, certificate, membership, node_record, registry_of

NODE, OTHER, STRANGER, HUB = Person(400), Person(401), Person(402), Person(403)
NOW = 1_000_000.0
BARE = registry_of()


def hello(*proofs, capability=CAPABILITY, hub=False) -> bytes:
    records = proofs or (membership(), certificate(NODE))
    return encode_hello(
        Hello(capability=capability, release="1", hub=hub, accounts=False, proofs=tuple(each.raw for each in records))
    )


def verdict(payload: bytes, *, peer=NODE, replica=BARE, now=NOW):
    return judge(payload, peer.key, Door(HUB.key, standing(replica, FABRIC, now), replica, now, frozenset()))


def test_a_certified_node_nobody_has_heard_of_is_admitted_with_its_proofs():
    found = verdict(hello())
    assert found.refusal is None
    assert [proof.key.kind for proof in found.proofs] == ["membership", "certificate"]


def test_the_roles_are_those_both_proofs_allow_whatever_the_greeting_says():
    proofs = membership(roles=("worker", "ingress")), certificate(NODE, roles=("worker", "relay"))
    assert verdict(hello(*proofs, hub=True)).roles == {"worker"}


def test_a_release_older_than_the_one_before_is_refused():
    assert verdict(hello(capability=CAPABILITY - 2)).refusal == "too_old"
    assert verdict(hello(capability=CAPABILITY - 1)).refusal is None


def test_a_newer_release_is_admitted_and_what_it_adds_is_skipped():
    newer = [99, "2", False, False, [membership().raw, certificate(NODE).raw], NOW, {"more": 1}]
    assert verdict(msgspec.msgpack.encode(newer)).refusal is None


def test_a_node_without_the_charter_admits_nobody():
    assert verdict(hello(), replica=Replica()).refusal == "no_charter"


def test_a_membership_signed_by_no_owner_is_refused():
    assert verdict(hello(membership(by=STRANGER), certificate(NODE))).refusal == "not_admitted"


@pytest.mark.parametrize(
    ("proofs", "peer"),
    [
        ((membership(), certificate(NODE, by=STRANGER)), NODE),
        ((membership(), certificate(OTHER)), NODE),
        ((membership(), certificate(NODE)), OTHER),
        ((membership(STRANGER), certificate(NODE)), NODE),
    ],
    ids=["by another member", "of another node", "shown by another node", "membership of another member"],
)
def test_a_certificate_that_is_not_this_nodes_is_refused(proofs, peer):
    assert verdict(hello(*proofs), peer=peer).refusal == "not_certified"


@pytest.mark.parametrize(
    "proofs",
    [(membership(not_after=NOW), certificate(NODE)), (membership(), certificate(NODE, not_after=NOW))],
    ids=["membership", "certificate"],
)
def test_an_expired_proof_counts_to_the_end_of_the_leeway(proofs):
    assert verdict(hello(*proofs), now=NOW + LEEWAY_S).refusal is None
    assert verdict(hello(*proofs), now=NOW + LEEWAY_S + 0.1).refusal == "expired"


def test_an_operators_newer_membership_counts_at_the_door_of_who_holds_it():
    body = Membership(member=MEMBER.key, provider="lab", roles=("worker",), not_after=NOW - 1_000, max_nodes=1)
    shortened = OPERATOR.write(body, MEMBER.id, seq=2)
    assert verdict(hello(), replica=registry_of(shortened)).refusal == "expired"


def test_a_node_beyond_what_the_membership_allows_is_refused():
    few = membership(max_nodes=2)
    replica = registry_of(certificate(OTHER, seq=1), certificate(STRANGER, seq=2))
    assert verdict(hello(few, certificate(NODE, seq=3)), replica=replica).refusal == "too_many"
    assert verdict(hello(membership(max_nodes=3), certificate(NODE, seq=3)), replica=replica).refusal is None


def test_neither_renewed_nor_later_nor_expired_certificates_use_up_the_membership():
    few = membership(max_nodes=1)
    held = certificate(NODE, seq=1), certificate(OTHER, seq=9), certificate(STRANGER, seq=2, not_after=1.0)
    assert verdict(hello(few, certificate(NODE, seq=5)), replica=registry_of(*held)).refusal is None


def test_a_node_that_left_frees_its_place():
    few = membership(max_nodes=1)
    held = certificate(OTHER, seq=1), node_record(OTHER, rank=Rank.LEFT)
    assert verdict(hello(few, certificate(NODE, seq=2)), replica=registry_of(*held)).refusal is None


def test_to_look_is_every_members_right():
    assert verdict(hello(membership(roles=("worker",)), certificate(NODE, roles=("observer",)))).roles == {"observer"}


@pytest.mark.parametrize(
    "proofs",
    [
        (certificate(NODE), membership()),
        (membership(), membership()),
        (certificate(NODE), certificate(NODE)),
        (membership(), node_record(NODE)),
        (membership(),),
        (membership(), certificate(NODE), certificate(OTHER)),
    ],
    ids=["swapped", "two memberships", "two certificates", "another kind", "one", "three"],
)
def test_anything_but_a_membership_and_a_certificate_is_a_bad_greeting(proofs):
    assert verdict(hello(*proofs)).refusal == "bad_hello"


def test_a_greeting_without_proofs_is_bad():
    assert verdict(encode_hello(Hello(1, "", False, False, ()))).refusal == "bad_hello"


def test_a_proof_with_one_bit_flipped_is_a_bad_greeting():
    raw = bytearray(certificate(NODE).raw)
    raw[-1] ^= 1
    payload = encode_hello(Hello(1, "", False, False, (membership().raw, bytes(raw))))
    assert verdict(payload).refusal == "bad_hello"


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x95", hello()[:-1], hello() + b"\0"])
def test_bytes_that_are_no_greeting_are_bad(payload):
    assert verdict(payload).refusal == "bad_hello"


def test_an_oversized_greeting_is_bad_even_if_it_decodes():
    fields = [1, "", False, False, [membership().raw, certificate(NODE).raw]]
    assert verdict(msgspec.msgpack.encode([*fields, None, b"x" * 9_000])).refusal is None
    assert verdict(msgspec.msgpack.encode([*fields, None, b"x" * MAX_HELLO_B])).refusal == "bad_hello"


def test_nesting_in_a_skipped_field_is_a_bad_greeting_instead_of_exhausting_the_stack():
    start = b"\x97" + b"".join(msgspec.msgpack.encode(field) for field in (1, "", False, False, [], None))
    assert verdict(start + b"\x91" * 9_000).refusal == "bad_hello"


@given(st.binary(max_size=300))
def test_random_bytes_never_raise(payload):
    assert verdict(payload).refusal == "bad_hello"


@given(st.data())
def test_a_greeting_with_one_wrong_byte_is_admitted_or_refused_with_a_word_of_the_list(data):
    damaged = bytearray(hello())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    refusal = verdict(bytes(damaged)).refusal
    assert refusal is None or refusal in REFUSALS


def test_judging_changes_nothing_in_the_replica():
    replica = registry_of()
    before = replica.version
    verdict(hello(), replica=replica)
    verdict(hello(membership(by=STRANGER), certificate(NODE)), replica=replica)
    assert replica.version == before


def test_a_refused_stranger_leaves_nothing_in_the_replica_and_an_admitted_one_its_proofs():
    async def main():
        network = MemoryNetwork()
        hub = MeshNode(OTHER, network.host("hub"), listen="hub:0")
        hubs: list = []
        bad = MeshNode(
            STRANGER, network.host("bad"), hubs=hubs, proofs=(membership(by=STRANGER), certificate(STRANGER))
        )
        good = MeshNode(NODE, network.host("good"), hubs=hubs)
        async with started(hub, bad, good):
            hubs.append(hub.address())
            await until(lambda: hub.mesh.linked() == {good.id})
            await until(lambda: NODE.id in hub.view().nodes)
            owners = {entry.record.key.owner for entry in hub.replica}
            subjects = {entry.record.key.id for entry in hub.replica}
            assert STRANGER.key not in owners
            assert STRANGER.id not in subjects
            assert NODE.id in subjects

    run(main())
