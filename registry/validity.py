"""What counts: a view over the same map, so the order in which records arrive never matters.

Merge accepts whatever a record proves about itself. Whether its signer was entitled to write it is decided here, again
and again, from all that is known now: charter → invite → acceptance → membership → certificate → node, and acts.
"""

from collections.abc import Mapping
from typing import NamedTuple

from registry.acts import Ordered, acts_of
from registry.admission import Members, settle
from registry.charter import Chartered, Grant, InForce, charter_in_force
from registry.clock import LEEWAY_S
from registry.kinds import Charter, Node
from registry.mandate import Mandate, Whose
from registry.memberships import Admission, Candidates
from registry.record import Record
from registry.replica import Replica

FREE_ROLES = frozenset({"observer"})  # to look is every member's right, so no membership has to name it


class Standing(NamedTuple):
    """Who is entitled to what.

    A grant belongs to a node and the member who certified it: it counts for a node that names that member, so
    nobody can take another's node over, or down, by certifying it.
    """

    in_force: InForce | None
    admissions: dict[bytes, Admission]  # by member key
    grants: dict[tuple[str, bytes], Grant]  # by node id and member key; none of an evicted node
    evicted: dict[str, Record]  # by node id: the act
    acts: dict[str, Ordered]  # by subject: the act that stands
    accepters: frozenset[bytes]  # keys of hubs whose word on a new member counts
    refused: tuple[tuple[Record, str], ...]  # records that count nowhere, and why
    valid_until: float  # unix seconds, fabric time: when the next expiry may change this
    former: Mapping[bytes, float] = {}  # keys of hubs that are none any more, until when what they said counts


def nothing_known() -> Standing:
    """The standing before the charter is held."""
    return Standing(None, {}, {}, {}, {}, frozenset(), (), float("inf"))


def standing(replica: Replica, fabric_id: bytes, now_fabric: float) -> Standing:
    """Derive who counts from a replica."""
    charters = [
        Chartered(entry.record, entry.body) for entry in replica.of_kind("charter") if isinstance(entry.body, Charter)
    ]
    in_force = charter_in_force(fabric_id, charters)
    if in_force is None:
        return nothing_known()
    charter = in_force.current.charter
    mandate = Mandate(charter, acts_of(replica))
    candidates = Candidates(replica, charter, mandate, now_fabric)
    members = settle(replica, in_force, candidates, mandate, now_fabric)
    revocable = candidates.providers(mandate.targets("revoke"), members.winners)
    whose = {target: Whose(providers) for target, providers in revocable.items()} | _owners(replica, members, mandate)
    acts, void = mandate.in_force(whose)
    evicted = {each.act.target: each.record for each in acts.values() if each.act.verb == "evict"}
    grants = _grants(members, mandate, evicted)
    ends = members.ends + [grant.not_after for grant in grants.values()]
    refused = sorted(members.refused + void, key=lambda each: (each[0].key.kind, each[0].order.hash, each[1]))
    return Standing(
        in_force,
        members.admissions,
        grants,
        evicted,
        acts,
        members.accepters,
        tuple(refused),
        min(ends, default=float("inf")) + LEEWAY_S,
        members.former,
    )


def _owners(replica: Replica, members: Members, mandate: Mandate) -> dict[str, Whose]:
    """Whom the nodes that acts are about belong to: the member they name, as far as that one certified them.

    An expired certificate will do: a node must not get rid of its operator's acts by letting it end.
    """
    targets = mandate.targets("drain", "restart", "evict", "ack")
    if not targets:
        return {}
    certifiers: dict[str, dict[bytes, str]] = {}
    for member, admission in members.admissions.items():
        for record, _ in members.certified.get(member, ()):
            if record.key.id in targets:
                certifiers.setdefault(record.key.id, {})[member] = admission.provider
    named = {
        record.key.id: body.member
        for record, body in replica.of_kind("node")
        if record.key.id in targets and isinstance(body, Node)
    }
    owners: dict[str, Whose] = {}
    for node, by in certifiers.items():
        whose = named.get(node)
        counting = {whose: by[whose]} if whose is not None and whose in by else by
        owners[node] = Whose(frozenset(counting.values()), frozenset(counting))
    return owners


def _grants(members: Members, mandate: Mandate, evicted: dict[str, Record]) -> dict[tuple[str, bytes], Grant]:
    grants: dict[tuple[str, bytes], Grant] = {}
    watched = mandate.targets("evict")
    for member, seated in members.seated.items():
        admission = members.admissions[member]
        allowed, provider = admission.roles | FREE_ROLES, admission.provider
        for record, body in seated:
            node = record.key.id
            if node in watched and (node in evicted or mandate.eviction(node, provider) is not None):
                continue
            until = min(body.not_after, admission.not_after)
            grants[node, member] = Grant(provider, allowed.intersection(body.roles), until)
    return grants
