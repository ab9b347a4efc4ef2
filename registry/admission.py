"""Admission: which memberships count, and which hubs' word on a new member does. Pure.

A membership counts when an owner signed it, or when it was made of an owner's invite and an accepter said so. Who is an
accepter follows from memberships again, so it is settled in rounds: what an earlier one decided stays, and no order in
which records came can matter.
"""

from collections.abc import Iterable
from typing import NamedTuple

from registry.charter import InForce
from registry.clock import LEEWAY_S, is_expired
from registry.ids import key_id
from registry.kinds import HUB_ROLES, Acceptance, Certificate
from registry.mandate import Mandate
from registry.memberships import Admission, Candidate, Candidates
from registry.record import Record
from registry.replica import Replica
from registry.seats import Certified, seat

_FOR_EVER = float("inf")


class Members(NamedTuple):
    """What was settled."""

    admissions: dict[bytes, Admission]  # by member key
    seated: dict[bytes, list[Certified]]  # by member key: the nodes there is a place for, evicted ones too
    certified: dict[bytes, list[Certified]]  # by member key: every certificate that is held
    accepters: frozenset[bytes]
    former: dict[bytes, float]  # by the key of a hub that is none any more: unix seconds, until when its word counts
    winners: dict[str, bytes]  # by the id of an invite: whom it was accepted for
    refused: list[tuple[Record, str]]
    ends: list[float]  # unix seconds: when something of this changes by itself


class _Word(NamedTuple):
    """An acceptance; the earlier one is the smaller."""

    at: float
    hash: bytes
    record: Record
    body: Acceptance


def settle(replica: Replica, in_force: InForce, candidates: Candidates, mandate: Mandate, now: float) -> Members:
    """Say who is a member, with which nodes.

    Args:
        replica: what is held.
        in_force: the charter.
        candidates: the memberships that may count.
        mandate: the acts: an evicted hub admits nobody any more.
        now: unix seconds, fabric time.
    """
    return _Settling(replica, in_force, candidates, mandate, now).settled()


class _Settling:
    """One derivation. Mutable while it goes on."""

    def __init__(
        self, replica: Replica, in_force: InForce, candidates: Candidates, mandate: Mandate, now: float
    ) -> None:
        self._candidates = candidates
        self._mandate = mandate
        self._now = now
        self._words = _words(replica)
        self._certified = _certified(replica)
        self._nodes = {entry.record.key.id: entry.record for entry in replica.of_kind("node")}
        self._admissions: dict[bytes, Admission] = {}
        self._seated: dict[bytes, list[Certified]] = {}
        self._winners: dict[str, bytes] = {}
        self._refused = list(candidates.refused)
        self._ends: list[float] = []
        self._accepters: set[bytes] = set()
        self._named: set[bytes] = set()  # accepters found in this round
        self._rounds: list[set[bytes]] = []  # those that are still to be heard, in this order
        # Hubs that are none any more, and until when their word counts. They are heard when nobody else has anything
        # to say: so they take nothing from anybody, and a hub that is put out does not take all with it whom it let in.
        self._former: dict[bytes, float] = {}
        self._heard_late: dict[bytes, float] = {}
        for key in {hub.key for each in (*in_force.former, in_force.current.charter) for hub in each.hubs}:
            self._name_former(key, key_id(key), "", _FOR_EVER)
        for hub in in_force.current.charter.hubs:
            self._name_hub(hub.key, key_id(hub.key), "")
        self._end_round()  # the charter's hubs are heard before all others, as they are at the door

    def settled(self) -> Members:
        """Go on until nothing is new."""
        self._admit_signed(self._candidates.of_fabric)
        self._hear_all()
        self._admit_signed(self._candidates.of_provider)  # late: it may not take over whom anybody else let in
        self._hear_all()
        self._refuse()
        self._ends += [admission.not_after for admission in self._admissions.values()]
        return Members(
            self._admissions,
            self._seated,
            self._certified,
            frozenset(self._accepters),
            {key: until for key, until in self._heard_late.items() if key not in self._accepters},
            self._winners,
            self._refused,
            self._ends,
        )

    # --- members and their nodes

    def _admit_signed(self, candidates: list[Candidate]) -> None:
        for candidate in candidates:
            self._retire(candidate)
        self._admit([(each.admission(_FOR_EVER), each) for each in candidates if each.revoked_at is None])

    def _admit(self, entitled: list[tuple[Admission, Candidate]]) -> None:
        """Let in whom nothing let in before; what lasts longest counts, where a key has several at once."""
        best: dict[bytes, tuple[float, bytes, Admission]] = {}
        for admission, candidate in entitled:
            member = candidate.member
            if member not in self._admissions:
                this = (admission.not_after, candidate.record.order.hash, admission)
                best[member] = max(best.get(member, this), this)
        for member, (_, _, admission) in best.items():
            self._admissions[member] = admission
            self._seat(member, admission)

    def _seat(self, member: bytes, admission: Admission) -> None:
        seats = seat(self._certified.get(member, ()), admission.max_nodes, self._nodes, self._now)
        self._seated[member] = seats.taken
        self._refused += seats.refused
        may_be_hub = admission.roles & HUB_ROLES
        for record, body in seats.taken if may_be_hub else ():
            if not may_be_hub.isdisjoint(body.roles):
                self._name_hub(body.node, record.key.id, admission.provider)
        if may_be_hub:
            self._name_all_former(member, admission.provider, _FOR_EVER)

    def _retire(self, candidate: Candidate) -> None:
        """What the hubs of a member who is none any more said before counts."""
        if candidate.revoked_at is not None and not candidate.roles.isdisjoint(HUB_ROLES):
            self._name_all_former(candidate.member, candidate.provider, candidate.revoked_at)

    def _name_hub(self, key: bytes, node: str, provider: str) -> None:
        if self._mandate.eviction(node, provider) is None and key not in self._accepters:
            self._named.add(key)

    def _name_all_former(self, member: bytes, provider: str, until: float) -> None:
        """Name every node of a member who may have hubs: one that is none now, shut down perhaps, may have been one.

        Which roles a certificate gave before is not known, since another one took its place.
        """
        for record, body in self._certified.get(member, ()):
            self._name_former(body.node, record.key.id, provider, min(until, body.not_after + LEEWAY_S))

    def _name_former(self, key: bytes, node: str, provider: str, until: float) -> None:
        eviction = self._mandate.eviction(node, provider)
        until = until if eviction is None else min(until, eviction.at)
        self._former[key] = max(self._former.get(key, until), until)

    def _end_round(self) -> None:
        if self._named:
            self._rounds.append(self._named)
            self._named = set()

    # --- what hubs said

    def _hear_all(self) -> None:
        self._end_round()
        while self._rounds or self._former:
            if self._rounds:
                heard = self._rounds.pop(0) - self._accepters
                self._accepters |= heard
                self._hear([word for key in heard for word in self._words.get(key, ())])
            else:
                late, self._former = self._former, {}
                self._heard_late |= {key: max(until, self._heard_late.get(key, until)) for key, until in late.items()}
                self._hear([word for key, until in late.items() for word in self._said_until(key, until)])
            self._end_round()

    def _said_until(self, key: bytes, until: float) -> list[_Word]:
        if key in self._accepters:  # it was heard as what it is now
            return []
        return [word for word in self._words.get(key, ()) if word.body.renewed <= until]

    def _hear(self, words: Iterable[_Word]) -> None:
        by_invite: dict[str, list[_Word]] = {}
        for word in words:
            by_invite.setdefault(word.record.key.id, []).append(word)
        entitled: list[tuple[Admission, Candidate]] = []
        for invite, said in by_invite.items():
            candidate = self._accepted(invite, said)
            if candidate is None:
                continue
            admission = self._lasting(candidate, said)
            if is_expired(admission.not_after, self._now):
                continue
            held = self._admissions.get(candidate.member)
            if held is None:
                entitled.append((admission, candidate))
            elif held.invite == invite and held.not_after < admission.not_after:
                self._admissions[candidate.member] = admission
        self._admit(entitled)

    def _accepted(self, invite: str, said: list[_Word]) -> Candidate | None:
        """The candidate that these words are for; None when there is none, or they do not count.

        Only of a key with a membership: else a hub could use an invite up of which it knows nothing but the name.
        """
        candidates = self._candidates.invited.get(invite, {})
        said = [word for word in said if word.body.member in candidates]
        if invite not in self._winners:
            timely = [word for word in said if _is_timely(word, candidates[word.body.member])]
            self._refused += [(word.record, "it came after its invite's time") for word in said if word not in timely]
            if not timely:
                return None
            self._winners[invite] = min(timely).body.member
        member = self._winners[invite]
        if all(word.body.member != member for word in said):
            return None
        self._retire(candidates[member])
        return candidates[member] if candidates[member].revoked_at is None else None

    def _lasting(self, candidate: Candidate, said: list[_Word]) -> Admission:
        """What the words for a candidate come to. Each of them has an end that may change who is whose accepter."""
        ends = [candidate.admission(word.body.renewed) for word in said if word.body.member == candidate.member]
        self._ends += [each.not_after for each in ends if not is_expired(each.not_after, self._now)]
        return max(ends, key=lambda each: each.not_after)

    # --- what counts nowhere

    def _refuse(self) -> None:
        for invite, candidates in self._candidates.invited.items():
            winner = self._winners.get(invite)
            for member, candidate in candidates.items():
                if candidate.revoked_at is None and (why := self._why_not(member, winner)) is not None:
                    self._refused.append((candidate.record, why))
        for member in self._certified.keys() - self._admissions.keys():
            self._refused += [(each.record, "signed by no member of this fabric") for each in self._certified[member]]
        for key in self._words.keys() - self._accepters:
            self._refused += [
                (word.record, why) for word in self._words[key] if (why := self._unheard(word)) is not None
            ]

    def _unheard(self, word: _Word) -> str | None:
        until = self._heard_late.get(word.record.key.owner)
        if until is None:
            return "its signer may not accept members"
        return "its signer was no hub any more" if word.body.renewed > until else None

    def _why_not(self, member: bytes, winner: bytes | None) -> str | None:
        if winner is None:
            return "no hub has accepted it yet"
        if member != winner:
            return "its invite was accepted by another key"
        return None if member in self._admissions else "membership expired"


def _is_timely(word: _Word, candidate: Candidate) -> bool:
    assert candidate.offer is not None  # it is an invited one
    return not is_expired(candidate.offer.invite.accept_by, word.at)


def _words(replica: Replica) -> dict[bytes, list[_Word]]:
    """Every acceptance, by who said it."""
    words: dict[bytes, list[_Word]] = {}
    for record, body in replica.of_kind("acceptance"):
        if isinstance(body, Acceptance):
            words.setdefault(record.key.owner, []).append(_Word(body.at, record.order.hash, record, body))
    return words


def _certified(replica: Replica) -> dict[bytes, list[Certified]]:
    """Every certificate, by the member who signed it."""
    certified: dict[bytes, list[Certified]] = {}
    for record, body in replica.of_kind("certificate"):
        if isinstance(body, Certificate):
            certified.setdefault(record.key.owner, []).append(Certified(record, body))
    return certified
