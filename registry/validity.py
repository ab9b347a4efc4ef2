"""What counts: a view over the same map, so the order in which records arrive never matters.

Merge accepts whatever a record proves about itself. Whether its signer was entitled to write it (a charter
that names the operator, a membership not expired, a certificate within its member's quota) is decided here,
again and again, from all that is known now.
"""

from typing import NamedTuple

from registry.charter import OWNER, Chartered, Grant, InForce, charter_in_force, holds
from registry.clock import LEEWAY_S, is_expired
from registry.ids import key_id
from registry.kinds import Certificate, Charter, Membership
from registry.record import Record
from registry.replica import Replica


class Standing(NamedTuple):
    """Who is entitled to what.

    A grant belongs to a node and the member who certified it: it counts for a node that names that member, so
    nobody can take another's node over, or down, by certifying it.
    """

    in_force: InForce | None
    grants: dict[tuple[str, bytes], Grant]  # by node id and member key
    refused: tuple[tuple[Record, str], ...]  # records that count nowhere, and why
    valid_until: float  # unix seconds, fabric time: when the next expiry may change this


def standing(replica: Replica, fabric_id: bytes, now_fabric: float) -> Standing:
    """Derive who counts from a replica."""
    charters = [
        Chartered(entry.record, entry.body) for entry in replica.of_kind("charter") if isinstance(entry.body, Charter)
    ]
    in_force = charter_in_force(fabric_id, charters)
    if in_force is None:
        return Standing(None, {}, (), float("inf"))
    refused: list[tuple[Record, str]] = []
    members = _members(replica, in_force.current.charter, now_fabric, refused)
    grants = _grants(replica, members, now_fabric, refused)
    ends = [membership.not_after for membership in members.values()]
    ends += [grant.not_after for grant in grants.values()]
    return Standing(in_force, grants, tuple(refused), min(ends, default=float("inf")) + LEEWAY_S)


def _members(
    replica: Replica, charter: Charter, now_fabric: float, refused: list[tuple[Record, str]]
) -> dict[bytes, Membership]:
    members: dict[bytes, Membership] = {}
    for entry in replica.of_kind("membership"):
        body = entry.body
        if not isinstance(body, Membership):
            continue
        if not holds(charter, entry.record.key.owner, OWNER):
            refused.append((entry.record, "signed by no owner of this fabric"))
        elif is_expired(body.not_after, now_fabric):
            refused.append((entry.record, "membership expired"))
        else:
            held = members.get(body.member)
            if held is None or body.not_after > held.not_after:  # two operators admitted one key
                members[body.member] = body
    return members


def _grants(
    replica: Replica,
    members: dict[bytes, Membership],
    now_fabric: float,
    refused: list[tuple[Record, str]],
) -> dict[tuple[str, bytes], Grant]:
    used: dict[bytes, int] = {}
    grants: dict[tuple[str, bytes], Grant] = {}
    entitled: list[tuple[Record, Certificate]] = []
    for record, body in replica.of_kind("certificate"):
        if not isinstance(body, Certificate):
            continue
        if record.key.owner in members:
            entitled.append((record, body))
        else:
            refused.append((record, "signed by no member of this fabric"))
    # Certificates count upward (milliseconds of their signer's clock): the first ones keep their place when a
    # member signs more than the membership allows.
    entitled.sort(key=lambda each: each[0].order)
    for record, body in entitled:
        member = members[record.key.owner]
        if is_expired(body.not_after, now_fabric):
            refused.append((record, "certificate expired"))
        elif used.get(record.key.owner, 0) >= member.max_nodes:
            refused.append((record, f"membership allows {member.max_nodes} nodes"))
        else:
            used[record.key.owner] = used.get(record.key.owner, 0) + 1
            roles = frozenset(body.roles) & frozenset(member.roles)
            until = min(body.not_after, member.not_after)
            grants[key_id(body.node), record.key.owner] = Grant(member.provider, roles, until)
    return grants
