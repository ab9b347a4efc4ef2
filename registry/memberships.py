"""Memberships that may count, each with the invite it was made of, and why the others do not. Pure.

What is said here follows from the record, its invite and the charter alone. Whether an invite was accepted, and for
whom, is `registry.admission`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from registry.charter import OWNER, may
from registry.clock import is_expired
from registry.kinds import Charter, Invite, Membership
from registry.mandate import Mandate
from registry.record import Record
from registry.replica import Replica

DAY_S = 86_400.0
# All that an owner for one provider can give. Any other role reaches beyond that provider: whoever is a hub lets
# people in, and an ingress holds everybody's keys.
LEAF_ROLES = frozenset({"worker", "observer"})

_FOR_EVER = float("inf")


class Admission(NamedTuple):
    """A member who counts, and within which limits."""

    provider: str
    roles: frozenset[str]
    not_after: float  # unix seconds, fabric time
    max_nodes: int
    invite: str  # id of the invite behind it; empty: an owner signed it
    by: bytes  # the operator whose word it is


class Offer(NamedTuple):
    """An invite that an owner signed."""

    record: Record
    invite: Invite


class Candidate(NamedTuple):
    """A membership as far as it may count, and the invite it was made of (None: an owner signed it).

    Whoever has a token can sign again what was made of it. So an invite's own terms are what its member has, and the
    membership says only whose it is; a person narrows a node by its certificate.
    """

    record: Record
    member: bytes
    provider: str
    roles: frozenset[str]
    max_nodes: int
    not_after: float  # unix seconds, fabric time; infinite: as long as its acceptance lasts
    offer: Offer | None
    revoked_at: float | None = None  # unix seconds, fabric time; None: it was not

    def admission(self, renewed: float) -> Admission:
        """What it allows, last renewed then (unix seconds; of no matter where an owner signed it)."""
        if self.offer is None:
            by = self.record.key.owner
            return Admission(self.provider, self.roles, self.not_after, self.max_nodes, "", by)
        invite, by = self.offer.record.key.id, self.offer.record.key.owner
        until = renewed + self.offer.invite.days * DAY_S
        return Admission(self.provider, self.roles, until, self.max_nodes, invite, by)


class Candidates:
    """Every candidate of a replica. Filled once, then only read.

    Attributes:
        of_fabric: signed by an owner of the whole fabric.
        of_provider: signed by an owner for one provider.
        invited: by the id of the invite, and by member.
        refused: what does not count for its own sake.
    """

    def __init__(self, replica: Replica, charter: Charter, mandate: Mandate, now: float) -> None:
        self.of_fabric: list[Candidate] = []
        self.of_provider: list[Candidate] = []
        self.invited: dict[str, dict[bytes, Candidate]] = {}
        self.refused: list[tuple[Record, str]] = []
        self._charter = charter
        self._mandate = mandate
        self._now = now
        self._offers: dict[bytes, list[Offer]] = {}  # by the invite's key
        for record, body in replica.of_kind("invite"):
            if isinstance(body, Invite):
                self._take_invite(record, body)
        for record, body in replica.of_kind("membership"):
            if isinstance(body, Membership):
                self._take(record, body)

    def providers(self, targets: frozenset[str], winners: dict[str, bytes]) -> dict[str, frozenset[str]]:
        """By target the providers its revocation is about, whether it is revoked already or not.

        Args:
            targets: ids of invites and of members.
            winners: the member by the id of an invite. A membership that nobody accepted says nothing of a member:
                whoever has an invite of another provider could make one.
        """
        about = [(offer.record.key.id, offer.invite.provider) for offers in self._offers.values() for offer in offers]
        accepted = (self.invited.get(invite, {}).get(member) for invite, member in winners.items())
        firm = [*self.of_fabric, *(each for each in accepted if each is not None)]
        firmly = {each.member for each in firm}
        # As with admission: one provider's owner has nothing to say about whom others let in.
        loose = [each for each in self.of_provider if each.member not in firmly]
        about += [(each.record.key.id, each.provider) for each in (*firm, *loose)]
        found: dict[str, set[str]] = {}
        for target, provider in about:
            if target in targets:
                found.setdefault(target, set()).add(provider)
        return {target: frozenset(names) for target, names in found.items()}

    def _take_invite(self, record: Record, body: Invite) -> None:
        if not may(self._charter, record.key.owner, OWNER, provider=body.provider):
            self.refused.append((record, "signed by nobody who may invite for this provider"))
            return
        if self._mandate.revoked_at(record.key.id, body.provider) is not None:
            self.refused.append((record, "revoked"))
        self._offers.setdefault(body.key, []).append(Offer(record, body))

    def _take(self, record: Record, body: Membership) -> None:
        signer = record.key.owner
        if may(self._charter, signer, OWNER, provider=body.provider):
            self._take_signed(record, body)
        elif signer in self._offers:
            self._take_invited(record, body, self._offers[signer])
        else:
            self.refused.append((record, "signed by no owner of this fabric"))

    def _take_signed(self, record: Record, body: Membership) -> None:
        if body.not_after is None:
            self.refused.append((record, "it says no end, and no invite does"))
            return
        if is_expired(body.not_after, self._now):
            self.refused.append((record, "membership expired"))
            return
        signer = record.key.owner
        candidate = Candidate(
            record,
            body.member,
            body.provider,
            given_roles(self._charter, signer, body.roles),
            body.max_nodes,
            body.not_after,
            None,
            self._revoked_at(record, body.provider, record.key.id),
        )
        (self.of_fabric if may(self._charter, signer, OWNER) else self.of_provider).append(candidate)

    def _take_invited(self, record: Record, body: Membership, offers: list[Offer]) -> None:
        offer = offer_for(body, offers, self._charter)
        invite = offer.invite
        self.invited.setdefault(offer.record.key.id, {})[body.member] = Candidate(
            record,
            body.member,
            invite.provider,
            given_roles(self._charter, offer.record.key.owner, invite.roles),
            invite.max_nodes,
            _FOR_EVER,
            offer,
            self._revoked_at(record, invite.provider, record.key.id, offer.record.key.id),
        )

    def _revoked_at(self, record: Record, provider: str, *targets: str) -> float | None:
        found = [at for target in targets if (at := self._mandate.revoked_at(target, provider)) is not None]
        if not found:
            return None
        self.refused.append((record, "revoked"))
        return min(found)


def given_roles(charter: Charter, signer: bytes, roles: Iterable[str]) -> frozenset[str]:
    """Those of some roles that an owner's signature gives."""
    return frozenset(roles) if may(charter, signer, OWNER) else LEAF_ROLES.intersection(roles)


def offer_for(body: Membership, offers: Iterable[Offer], charter: Charter) -> Offer:
    """The one of several owners' invites for one key that a membership is made of.

    The whole fabric's owner comes first, so that nobody's invite for one provider takes over whom another let in.
    Of providers' owners the one whose provider the membership names.
    """

    def turn(offer: Offer) -> tuple[bool, bool, bytes]:
        is_narrow = not may(charter, offer.record.key.owner, OWNER)
        return is_narrow, offer.invite.provider != body.provider, offer.record.order.hash

    return min(offers, key=turn)
