"""Whether a greeting admits its sender. Pure: the same is asked again while its link is up.

Nothing of a greeting enters the replica unless an owner named in the charter stands behind it: by signing the
membership, or by an invite whose key did. An invite is for one person, whichever key an accepter saw first. Who is
an accepter, and which of several accepted keys counts, is decided in `registry.validity`; here is what a stranger's
own proofs add to that before they are merged.
"""

from typing import NamedTuple

from gossip.frames import CAPABILITY
from gossip.hello import Greeting, read_hello
from gossip.invited import Claim, Door, weigh_invited
from registry.charter import OWNER, may
from registry.clock import is_expired
from registry.ids import key_id
from registry.kinds import Body, Certificate, Membership, Opaque, read_body
from registry.memberships import given_roles
from registry.record import Record
from registry.replica import Replica
from registry.seats import Certified, seat
from registry.validity import FREE_ROLES


class Verdict(NamedTuple):
    """Whether a greeting admits its sender; the proofs are news for the replica when it does."""

    refusal: str | None  # a key of REFUSALS; None: admitted
    proofs: tuple[Record, ...] = ()  # in an order in which each finds its signer vouched for
    greeting: Greeting | None = None
    member: bytes = b""  # whose node it is
    roles: frozenset[str] = frozenset()  # what both proofs allow, whatever the greeting claims
    accept: Record | None = None  # the membership this node should write an acceptance for


def judge(payload: bytes, peer: bytes, door: Door) -> Verdict:
    """Decide whether the holder of the key `peer` may link, from its greeting and what is known."""
    greeting = read_hello(payload)
    if greeting is None:
        return Verdict("bad_hello")
    if greeting.hello.capability < CAPABILITY - 1:
        return Verdict("too_old")
    return weigh(greeting, peer, door)


def weigh(greeting: Greeting, peer: bytes, door: Door) -> Verdict:
    """Decide the same again from a greeting that was read: what was known may have changed."""
    membership, certificate = _newest(greeting.membership, door.replica), _newest(greeting.certificate, door.replica)
    if not isinstance(membership, Membership) or not isinstance(certificate, Certificate):
        return Verdict("bad_hello")
    if door.standing.in_force is None:
        return Verdict("no_charter")
    if key_id(peer) in door.standing.evicted:
        return Verdict("evicted")
    if door.is_revoked(key_id(membership.member)):
        return Verdict("revoked")
    claim = _claim(greeting, membership, peer, door)
    refusal = claim.refusal or _node_refusal(greeting, claim, membership.member, certificate, peer, door)
    if refusal is not None:
        return Verdict(refusal)
    proofs = (claim.invite, greeting.membership, greeting.certificate, claim.acceptance)
    return Verdict(
        None,
        tuple(proof for proof in proofs if proof is not None),
        greeting,
        membership.member,
        frozenset(certificate.roles) & (FREE_ROLES | claim.roles),
        greeting.membership if claim.must_accept else None,
    )


def _claim(greeting: Greeting, membership: Membership, peer: bytes, door: Door) -> Claim:
    assert door.standing.in_force is not None
    charter, signer = door.standing.in_force.current.charter, greeting.membership.key.owner
    if not may(charter, signer, OWNER, provider=membership.provider):
        return weigh_invited(greeting, membership, peer, door)
    if membership.not_after is None:  # only an invite says how long such a one lasts
        return Claim("not_admitted")
    roles = given_roles(charter, signer, membership.roles)
    return Claim(None, membership.not_after, roles, membership.max_nodes)


def _node_refusal(
    greeting: Greeting, claim: Claim, member: bytes, certificate: Certificate, peer: bytes, door: Door
) -> str | None:
    if greeting.certificate.key.owner != member or certificate.node != peer:
        return "not_certified"
    if is_expired(min(claim.until, certificate.not_after), door.now):
        return "clock_off" if door.is_skewed(greeting.hello.wall) else "expired"
    shown = Certified(greeting.certificate, certificate)
    return None if _has_seat(shown, claim.max_nodes, door) else "too_many"


def _newest(proof: Record, replica: Replica) -> Body | Opaque:
    """What a proof says, or its successor where we hold one: an operator's second thoughts count at the door too."""
    held = replica.get(proof.key)
    return held.body if held is not None and held.record.order[:3] > proof.order[:3] else read_body(proof)


def _has_seat(shown: Certified, max_nodes: int, door: Door) -> bool:
    """Whether there is a place for this node, beside those the same member certified; as `registry.validity` counts."""
    held = [
        Certified(record, body)
        for record, body in door.replica.of_kind("certificate")
        if record.key.owner == shown.record.key.owner
        and record.key.id != shown.record.key.id
        and isinstance(body, Certificate)
    ]
    if len(held) < max_nodes:
        return True
    nodes = {record.key.id: record for record, _ in door.replica.of_kind("node")}
    return shown in seat([*held, shown], max_nodes, nodes, door.now).taken
