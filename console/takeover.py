"""Taking over what an operator signed, before a charter without them makes it void. Pure.

What is lost is not guessed: the registry judges what is held under the charter that is to come, and what it counts no
more is signed again, as it stands, by whoever removes the operator. A restart is not: it would happen twice.
"""

from collections.abc import Iterable
from typing import NamedTuple

from registry.accounts import KeyRow, key_rows
from registry.acts import Ordered, acts_of, write_act
from registry.charter import OWNER, admit, may, offer
from registry.clock import is_expired
from registry.ids import key_id
from registry.kinds import Acceptance, Body, Charter, Invite, Membership, audience_of, encode_body, kind_of, read_body
from registry.record import Draft, Record, Sign, seal
from registry.replica import Replica
from registry.validity import Standing, standing

KINDS = ("charter", "invite", "membership", "acceptance", "certificate", "node", "act")
ACCOUNTS = ("key", "mint", "revocation")
ONCE = frozenset({"restart"})


class Judged(NamedTuple):
    """What counts of a replica."""

    replica: Replica
    standing: Standing
    keys: dict[str, KeyRow]  # empty where the accounts shelf is not held
    at: float  # unix seconds, fabric time

    @property
    def charter(self) -> Charter:
        """The one in force."""
        assert self.standing.in_force is not None  # the replica came with the charter that is followed
        return self.standing.in_force.current.charter

    @property
    def live(self) -> frozenset[str]:
        """Keys that may still be used, or claimed."""
        return frozenset(row.id for row in self.keys.values() if self._is_live(row))

    def _is_live(self, row: KeyRow) -> bool:
        is_over = row.expires_at is not None and is_expired(row.expires_at, self.at)
        is_lapsed = not row.digest and is_expired(row.claim_by, self.at)
        return not (row.revoked or is_over or is_lapsed)


class Estate(NamedTuple):
    """What an operator signed that counts, and would not any more."""

    invites: tuple[tuple[Record, Invite], ...]
    unused: frozenset[str]  # ids of those invites that nobody used yet, and still may
    memberships: tuple[tuple[Record, Membership], ...]
    acts: tuple[Ordered, ...]
    grants: tuple[KeyRow, ...]
    revocations: tuple[Record, ...]  # of keys that would be valid again

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take over."""
        return not (self.invites or self.memberships or self.acts or self.grants or self.revocations)


class Loss(NamedTuple):
    """What counts no more from one charter to the next."""

    members: tuple[bytes, ...]
    keys: tuple[str, ...]
    acts: tuple[Ordered, ...]
    revived: tuple[str, ...]  # keys that were revoked, and are valid again

    @property
    def is_empty(self) -> bool:
        """Whether everything counts as before."""
        return not (self.members or self.keys or self.acts or self.revived)


def judge(replica: Replica, fabric_id: bytes, at: float) -> Judged:
    """What counts of a replica at a time (unix seconds, fabric time)."""
    judged = standing(replica, fabric_id, at)
    return Judged(replica, judged, key_rows(replica, judged)[0], at)


def with_records(before: Judged, fabric_id: bytes, records: Iterable[Record]) -> Judged:
    """What would count if these records were held too."""
    replica = Replica()
    for record in (*(entry.record for entry in before.replica), *records):
        replica.apply(record)
    return judge(replica, fabric_id, before.at)


def loss(before: Judged, after: Judged) -> Loss:
    """What counts no more."""
    return Loss(
        tuple(before.standing.admissions.keys() - after.standing.admissions.keys()),
        tuple(sorted(before.live - after.live)),
        tuple(each for each in _lasting(before) if not _stands(each, after)),
        tuple(sorted(name for name, row in before.keys.items() if row.revoked and _is_valid(name, after))),
    )


def estate(before: Judged, after: Judged, owner: bytes) -> Estate:
    """What one operator signed that counts before, and does not after."""
    used, unused = _invites(before, after, owner)
    acts = [each for each in _lasting(before) if each.record.key.owner == owner and not _stands(each, after)]
    revived = {name for name, row in before.keys.items() if row.revoked and _is_valid(name, after)}
    return Estate(
        tuple(used + unused),
        frozenset(record.key.id for record, _ in unused),
        tuple(_memberships(before, after, owner)),
        tuple(sorted(acts, key=lambda each: each.record.order.hash)),
        tuple(row for name, row in sorted(before.keys.items()) if name in before.live and _is_void(row, after, owner)),
        tuple(
            record
            for record, _ in before.replica.of_kind("revocation")
            if record.key.owner == owner and record.key.id in revived
        ),
    )


def missing_verbs(held: Estate, charter: Charter, key: bytes) -> tuple[str, ...]:
    """Verbs without which a key's own word on an estate would not count under this charter."""
    needed = {"keys"} if held.grants or held.revocations else set()
    needed |= {"fleet"} if any(each.act.verb != "revoke" for each in held.acts) else set()
    owned = held.invites or held.memberships or any(each.act.verb == "revoke" for each in held.acts)
    needed |= {OWNER} if owned else set()
    return tuple(verb for verb in sorted(needed) if not may(charter, key, verb))


def signed_again(held: Estate, before: Judged, owner: bytes, sign: Sign) -> list[Record]:
    """The records of an estate by another operator: what they say, and when an act was given, stays.

    Args:
        held: what to sign.
        before: what counts now.
        owner: the operator's public key.
        sign: signs with it.
    """
    replica = before.replica
    records = [offer(body, owner, sign, seq=_next(replica, record, owner)) for record, body in held.invites]
    records += [admit(body, owner, sign, seq=_next(replica, record, owner)) for record, body in held.memberships]
    shelf = [*(row.record for row in held.grants), *held.revocations]
    records += [_copied(record, owner, sign, _next(replica, record, owner)) for record in shelf]
    return records + _acts_again(held.acts, before, owner, sign)


def _acts_again(acts: Iterable[Ordered], before: Judged, owner: bytes, sign: Sign) -> list[Record]:
    known = Replica()  # what counts, and the signer's own: anybody else may have written the greatest number there is
    own = [each for each in acts_of(before.replica) if each.record.key.owner == owner]
    for each in (*before.standing.acts.values(), *own):
        known.apply(each.record)
    records = []
    for each in acts:
        act = each.act
        record = write_act(
            known, act.verb, act.target, owner=owner, sign=sign, at=act.at, run=act.run, reason=act.reason
        )
        known.apply(record)  # each names the one before
        records.append(record)
    return records


def _copied(record: Record, owner: bytes, sign: Sign, seq: int) -> Record:
    body = read_body(record)
    assert isinstance(body, Body)  # it counted
    return seal(Draft(kind_of(body), record.key.id, encode_body(body), audience_of(body), seq=seq), owner, sign)


def _next(replica: Replica, record: Record, owner: bytes) -> int:
    """Above what the signer said of the same before."""
    held = replica.get(record.key._replace(owner=owner))
    return 1 if held is None else held.record.order.seq + 1


# --- who loses what


def _invites(
    before: Judged, after: Judged, owner: bytes
) -> tuple[list[tuple[Record, Invite]], list[tuple[Record, Invite]]]:
    """Invites that members were made of, and invites that still may be used."""
    used: list[tuple[Record, Invite]] = []
    unused: list[tuple[Record, Invite]] = []
    members: dict[str, list[bytes]] = {}
    for member, admission in before.standing.admissions.items():
        members.setdefault(admission.invite, []).append(member)
    spoken = {
        record.key.id
        for record, body in before.replica.of_kind("acceptance")
        if isinstance(body, Acceptance) and record.key.owner in before.standing.accepters
    }
    for record, body in before.replica.of_kind("invite"):
        if not isinstance(body, Invite) or not _is_losing(record, body.provider, before, after, owner):
            continue
        name = record.key.id
        if name in members:
            if not all(_is_offered(member, name, after) for member in members[name]):
                used.append((record, body))
        elif _is_open(body, name, before) and name not in spoken and not _is_copied(record, body, after):
            unused.append((record, body))
    return used, unused


def _is_open(body: Invite, name: str, before: Judged) -> bool:
    return not is_expired(body.accept_by, before.at) and f"revoke/{name}" not in before.standing.acts


def _is_copied(record: Record, body: Invite, after: Judged) -> bool:
    """Whether somebody who still may signed the very same."""
    return any(
        other.key.id == record.key.id
        and same == body
        and may(after.charter, other.key.owner, OWNER, provider=body.provider)
        for other, same in after.replica.of_kind("invite")
    )


def _is_offered(member: bytes, name: str, after: Judged) -> bool:
    """Whether somebody who still may stands behind the invite a member's membership was made of."""
    offers = [
        body
        for record, body in after.replica.of_kind("invite")
        if record.key.id == name
        and isinstance(body, Invite)
        and may(after.charter, record.key.owner, OWNER, provider=body.provider)
    ]
    return bool(offers) and any(
        isinstance(body, Membership) and body.member == member and key_id(record.key.owner) == name
        for record, body in after.replica.of_kind("membership")
    )


def _memberships(before: Judged, after: Judged, owner: bytes) -> list[tuple[Record, Membership]]:
    found = []
    for record, body in before.replica.of_kind("membership"):
        if isinstance(body, Membership) and _is_losing(record, body.provider, before, after, owner):
            admission = before.standing.admissions.get(body.member)
            if admission is not None and not admission.invite and admission.by == owner:
                found.append((record, body))
    return found


def _is_losing(record: Record, provider: str, before: Judged, after: Judged, owner: bytes) -> bool:
    return (
        record.key.owner == owner
        and may(before.charter, owner, OWNER, provider=provider)
        and not may(after.charter, owner, OWNER, provider=provider)
    )


def _lasting(judged: Judged) -> list[Ordered]:
    return [each for each in judged.standing.acts.values() if each.act.verb not in ONCE]


def _stands(each: Ordered, after: Judged) -> bool:
    """Whether an act stands after, or one that says the same does."""
    there = after.standing.acts.get(each.record.key.id)
    return there is not None and (there.act.verb, there.act.run) == (each.act.verb, each.act.run)


def _is_valid(name: str, after: Judged) -> bool:
    """Whether a key counts and is not revoked."""
    row = after.keys.get(name)
    return row is not None and not row.revoked


def _is_void(row: KeyRow, after: Judged, owner: bytes) -> bool:
    there = after.keys.get(row.id)
    return row.by == owner and (there is None or there.by != owner)
