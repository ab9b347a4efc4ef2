"""The HELLO inside the handshake: who is there and by what right. Checked before anything else is carried.

It carries the membership and the certificate of the node, so that a hub can admit a node it has never heard
of. Nothing of it enters the replica unless an owner named in the charter signed the membership.
"""

from typing import Annotated, NamedTuple

import msgspec

from gossip.frames import CAPABILITY
from gossip.transcript import MAX_HELLO_B
from registry.charter import OWNER, holds
from registry.clock import is_expired
from registry.errors import RecordRefused
from registry.kinds import Body, Certificate, Membership, Opaque, read_body
from registry.record import MAX_RECORD_B, Record, decode
from registry.replica import Replica
from registry.validity import standing

REFUSALS = {
    "bad_hello": "its greeting does not decode",
    "too_old": "its release is too old to speak with this one",
    "no_charter": "this node does not hold the charter yet",
    "not_admitted": "its membership was signed by no owner of this fabric",
    "not_certified": "its key was certified by another member, or by none",
    "expired": "its membership or certificate has expired",
    "too_many": "its membership allows no further node",
    "duplicate": "another link to it is already up",
}


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of itself inside the encrypted handshake."""

    capability: int
    release: Annotated[str, msgspec.Meta(max_length=64)]
    hub: bool
    accounts: bool  # it holds the accounts grant and wants that shelf
    proofs: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_B)], ...], msgspec.Meta(max_length=2)
    ]  # the raw membership and certificate


_DECODER = msgspec.msgpack.Decoder(Hello)


class Verdict(NamedTuple):
    """Whether a greeting admits its sender; the proofs are news for the replica when it does."""

    refusal: str | None  # a key of REFUSALS; None: admitted
    proofs: tuple[Record, ...] = ()
    hello: Hello | None = None
    roles: frozenset[str] = frozenset()  # what both proofs allow, whatever the greeting claims


def encode_hello(hello: Hello) -> bytes:
    """The bytes of a greeting."""
    return msgspec.msgpack.encode(hello)


def judge(payload: bytes, peer: bytes, replica: Replica, fabric_id: bytes, now_fabric: float) -> Verdict:
    """Decide whether the holder of the key `peer` may link, from its greeting and what is known."""
    try:
        hello = _DECODER.decode(payload) if len(payload) <= MAX_HELLO_B else None
        proofs = tuple(decode(raw) for raw in hello.proofs) if hello else ()
        bodies = tuple(_newest(proof, replica) for proof in proofs)
    except (msgspec.MsgspecError, RecordRefused, RecursionError):  # the last from fields that are skipped unread
        return Verdict("bad_hello")
    if hello is None or len(bodies) != 2:
        return Verdict("bad_hello")
    if hello.capability < CAPABILITY - 1:
        return Verdict("too_old")
    known = standing(replica, fabric_id, now_fabric)
    if known.in_force is None:
        return Verdict("no_charter")
    membership, certificate = bodies
    if not isinstance(membership, Membership) or not isinstance(certificate, Certificate):
        return Verdict("bad_hello")
    if not holds(known.in_force.current.charter, proofs[0].key.owner, OWNER):
        return Verdict("not_admitted")
    if proofs[1].key.owner != membership.member or certificate.node != peer:
        return Verdict("not_certified")
    if is_expired(min(membership.not_after, certificate.not_after), now_fabric):
        return Verdict("expired")
    if _earlier_nodes(proofs[1], replica, now_fabric) >= membership.max_nodes:
        return Verdict("too_many")
    return Verdict(None, proofs, hello, frozenset(membership.roles) & frozenset(certificate.roles))


def _newest(proof: Record, replica: Replica) -> Body | Opaque:
    """What a proof says, or its successor where we hold one: an operator's second thoughts count at the door too."""
    held = replica.get(proof.key)
    return held.body if held is not None and held.record.order[:3] > proof.order[:3] else read_body(proof)


def _earlier_nodes(certificate: Record, replica: Replica, now_fabric: float) -> int:
    """How many other nodes the same member certified before this one; the same count as in `registry.validity`."""
    return sum(
        record.key.owner == certificate.key.owner
        and record.key.id != certificate.key.id
        and record.order < certificate.order
        and isinstance(body, Certificate)
        and not is_expired(body.not_after, now_fabric)
        for record, body in replica.of_kind("certificate")
    )
