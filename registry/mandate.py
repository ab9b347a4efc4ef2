"""Mandates: which acts count, and which of several signers' stands. Pure.

An act counts when its signer may give it to whom it is about, as the charter in force says: a provider's operator to
that provider's nodes, a member to the own ones. It settles nothing else; `registry.validity` draws the conclusions.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from registry.acts import Ordered, standing_order
from registry.charter import OWNER, may
from registry.kinds import ASPECTS, Charter
from registry.record import Record

FLEET = "fleet"  # the verb that may act on nodes
OF_MEMBERS = frozenset({"drain", "undrain", "restart", "ack"})  # what a member may do with the own nodes


class Whose(NamedTuple):
    """Whom the target of an act belongs to. No provider: it is known to none."""

    providers: frozenset[str]
    members: frozenset[bytes] = frozenset()


_NOBODYS = Whose(frozenset())


class Eviction(NamedTuple):
    """An act that keeps a node out, and the time it says (unix seconds, fabric time)."""

    record: Record
    at: float


class Mandate:
    """The acts that are held, read under one charter. Not changed once it is made."""

    def __init__(self, charter: Charter, acts: Iterable[Ordered]) -> None:
        self._charter = charter
        self._by_subject: dict[str, list[Ordered]] = {}
        self._targets: dict[str, dict[str, list[Ordered]]] = {aspect: {} for aspect in ASPECTS.values()}
        for each in acts:
            about = self._targets[ASPECTS[each.act.verb]].setdefault(each.act.target, [])
            about.append(each)
            self._by_subject[each.record.key.id] = about

    def targets(self, *aspects: str) -> frozenset[str]:
        """What the acts of some aspects are about."""
        return frozenset(target for aspect in aspects for target in self._targets[aspect])

    def revoked_at(self, target: str, provider: str) -> float | None:
        """When an owner for this provider took an invite or a member back, unix seconds; None: nobody did.

        Of several the whole fabric's owner says when, and of those the earliest: a provider's owner may take back
        too, but not change since when.
        """
        counting = [
            (-self._authority(each, (provider,)), each.act.at)
            for each in self._targets["revoke"].get(target, ())
            if may(self._charter, each.record.key.owner, OWNER, provider=provider)
        ]
        return min(counting)[1] if counting else None

    def eviction(self, node: str, provider: str) -> Eviction | None:
        """What keeps a node of this provider out; None when it may stay. No provider: only the whole fabric's word."""
        acts = self._targets["evict"].get(node)
        if not acts:
            return None
        counting = [each for each in acts if may(self._charter, each.record.key.owner, FLEET, provider=provider)]
        if not counting:
            return None
        record, act = max(counting, key=lambda each: self._order(each, (provider,)))
        return Eviction(record, act.at) if act.verb == "evict" else None

    def in_force(self, whose: Mapping[str, Whose]) -> tuple[dict[str, Ordered], list[tuple[Record, str]]]:
        """The act that stands on each subject, and those that count nowhere, with the reason.

        Args:
            whose: to whom a target belongs; what is not in it belongs to nobody known.
        """
        standing: dict[str, Ordered] = {}
        refused: list[tuple[Record, str]] = []
        for subject, acts in self._by_subject.items():
            owned = whose.get(acts[0].act.target, _NOBODYS)
            counting = []
            for each in acts:
                why = self._objection(each, owned)
                if why is None:
                    counting.append(each)
                else:
                    refused.append((each.record, why))
            if counting:
                providers = owned.providers or ("",)
                standing[subject] = max(counting, key=lambda each: self._order(each, providers))
        return standing, refused

    def _order(self, each: Ordered, providers: Iterable[str]) -> tuple[int, int, bool, bytes]:
        """Which of the acts that count on one subject stands: the greatest."""
        return standing_order(each, self._authority(each, providers))

    def _authority(self, each: Ordered, providers: Iterable[str]) -> int:
        """Of an act that counts: 2 when the whole fabric's operator signed it, 1 when a provider's, 0 when a member."""
        signer, needed = each.record.key.owner, _needed(each)
        if may(self._charter, signer, needed):
            return 2
        return int(all(may(self._charter, signer, needed, provider=provider) for provider in providers))

    def _objection(self, each: Ordered, whose: Whose) -> str | None:
        signer, verb, needed = each.record.key.owner, each.act.verb, _needed(each)
        # What belongs to two providers is for the whole fabric's operators: neither may act on what is the other's.
        if all(may(self._charter, signer, needed, provider=provider) for provider in whose.providers or ("",)):
            return None
        if signer in whose.members:
            return None if verb in OF_MEMBERS else f"a member may not {verb}"
        if any(operator.key == signer for operator in self._charter.operators):
            return f"its signer may not {verb} here"
        return "its signer is no operator, and the node is not theirs"


def _needed(each: Ordered) -> str:
    return OWNER if each.act.verb == "revoke" else FLEET
