"""Memberships that may count, each with the invite it was made of, and why the others do not. Pure.

What is said here follows from the record, its invite and the charter alone. Whether an invite was accepted, and for
whom, is `registry.admission`.
"""

from typing import NamedTuple

from registry.charter import OWNER, may
from registry.clock import is_expired
from registry.kinds import Charter, Invite, Membership
from registry.mandate import Mandate
from registry.record import Record
from registry.replica import Replica

DAY_S = 86_400.0

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
    """A membership, and the invite it was made of (None: an owner signed it)."""

    record: Record
    body: Membership
    offer: Offer | None
    is_revoked: bool

    def admission(self, renewed: float) -> Admission:
        """What it allows, last renewed then (unix seconds; of no matter where an owner signed it)."""
        body, offer = self.body, self.offer
        until = _FOR_EVER if body.not_after is None else body.not_after
        if offer is None:
            return Admission(body.provider, frozenset(body.roles), until, body.max_nodes, "", self.record.key.owner)
        until = min(until, renewed + offer.invite.days * DAY_S)
        invite, by = offer.record.key.id, offer.record.key.owner
        return Admission(body.provider, frozenset(body.roles), until, body.max_nodes, invite, by)


class Candidates:
    """Every candidate of a replica. Filled once, then only read.

    Attributes:
        of_fabric: signed by an owner of the whole fabric.
        of_provider: signed by an owner for one provider.
        invited: by the id of the invite, and by member.
        accept_by: by the id of an invite: unix seconds, when it has to be accepted by.
        refused: what does not count for its own sake.
    """

    def __init__(self, replica: Replica, charter: Charter, mandate: Mandate, now: float) -> None:
        self.of_fabric: list[Candidate] = []
        self.of_provider: list[Candidate] = []
        self.invited: dict[str, dict[bytes, Candidate]] = {}
        self.accept_by: dict[str, float] = {}
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
        firmly = {each.body.member for each in firm}
        # As with admission: one provider's owner has nothing to say about whom others let in.
        loose = [each for each in self.of_provider if each.body.member not in firmly]
        about += [(each.record.key.id, each.body.provider) for each in (*firm, *loose)]
        found: dict[str, set[str]] = {}
        for target, provider in about:
            if target in targets:
                found.setdefault(target, set()).add(provider)
        return {target: frozenset(names) for target, names in found.items()}

    def _take_invite(self, record: Record, body: Invite) -> None:
        if not may(self._charter, record.key.owner, OWNER, provider=body.provider):
            self.refused.append((record, "signed by nobody who may invite for this provider"))
            return
        if self._mandate.is_revoked(record.key.id, body.provider):
            self.refused.append((record, "revoked"))
        self._offers.setdefault(body.key, []).append(Offer(record, body))
        self.accept_by[record.key.id] = max(self.accept_by.get(record.key.id, 0.0), body.accept_by)

    def _take(self, record: Record, body: Membership) -> None:
        offers = self._offers.get(record.key.owner)
        if offers is not None:
            self._take_invited(record, body, offers)
        elif not may(self._charter, record.key.owner, OWNER, provider=body.provider):
            self.refused.append((record, "signed by no owner of this fabric"))
        elif body.not_after is None:
            self.refused.append((record, "it says no end, and no invite does"))
        elif is_expired(body.not_after, self._now):
            self.refused.append((record, "membership expired"))
        else:
            candidate = Candidate(record, body, None, self._is_revoked(record.key.id, body.provider, record))
            is_wide = may(self._charter, record.key.owner, OWNER)
            (self.of_fabric if is_wide else self.of_provider).append(candidate)

    def _take_invited(self, record: Record, body: Membership, offers: list[Offer]) -> None:
        wide = [why for offer in offers if (why := beyond(body, offer.invite)) is not None]
        if len(wide) == len(offers):
            self.refused.append((record, wide[0]))
            return
        # Somebody else's invite of the same key can be added, and can take nothing away.
        fitting = [offer for offer in offers if beyond(body, offer.invite) is None]
        offer = min(fitting, key=lambda offer: offer.record.order.hash)
        is_revoked = self._is_revoked(record.key.id, body.provider, record) or self._is_revoked(
            offer.record.key.id, body.provider, record
        )
        self.invited.setdefault(offer.record.key.id, {})[body.member] = Candidate(record, body, offer, is_revoked)

    def _is_revoked(self, target: str, provider: str, record: Record) -> bool:
        if not self._mandate.is_revoked(target, provider):
            return False
        self.refused.append((record, "revoked"))
        return True


def beyond(body: Membership, invite: Invite) -> str | None:
    """Why a membership says more than its invite allows; None when it does not."""
    if body.provider != invite.provider or not set(body.roles) <= set(invite.roles):
        return "it takes more than its invite gives"
    return "it takes more nodes than its invite gives" if body.max_nodes > invite.max_nodes else None
