"""Authority: the charter in force, and the chain charter → invite → membership → certificate → node key.

Pure readings of a set of records. `found` makes a fabric's first records from seeds.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from registry.ids import key_id
from registry.kinds import Certificate, Charter, Hub, Invite, Membership, Operator, encode_body
from registry.record import Draft, Record, Sign, seal

VERBS = ("fleet", "keys", "placement", "owner")
OWNER = "owner"  # the verb that may change the charter and admit members


class Chartered(NamedTuple):
    """A charter record and its body."""

    record: Record
    charter: Charter


class InForce(NamedTuple):
    """The charter in force, and other successors of the same charter: a fork an operator must settle."""

    current: Chartered
    forks: tuple[Record, ...]
    former: tuple[Charter, ...] = ()  # the charters it followed, from the founding one on


class Grant(NamedTuple):
    """What a membership allows a node key."""

    provider: str
    roles: frozenset[str]
    not_after: float  # unix seconds, fabric time


def may(charter: Charter, key: bytes, verb: str, *, provider: str = "", project: str = "") -> bool:
    """Whether a key may do `verb`: on the whole fabric, or for that provider or project.

    Args:
        charter: the one in force.
        key: an operator's public key.
        verb: fleet, keys, placement or owner.
        provider: of the node or membership it is about; empty: none.
        project: of the key it is about; empty: none.
    """
    scopes = {"fabric"}
    if provider:
        scopes.add(f"provider:{provider}")
    if project:
        scopes.add(f"project:{project}")
    return any(
        operator.key == key and operator.scope in scopes and verb in operator.verbs for operator in charter.operators
    )


def charter_in_force(fabric_id: bytes, charters: Iterable[Chartered]) -> InForce | None:
    """Follow the successors from the founding charter; None when that one is not held yet.

    A successor counts when an owner of the whole fabric named in its predecessor signed it, or that one's recovery
    key. Of several, what the recovery key signed is followed, else the one with the smallest hash, everywhere alike,
    and the others are returned as forks. So an owner who was removed may fork the charter that still named them, and
    only the recovery key can undo that.
    """
    current: Chartered | None = None
    heirs: dict[bytes, list[Chartered]] = {}  # by the hash of what they follow
    for each in charters:
        heirs.setdefault(each.charter.prev, []).append(each)
        if each.record.order.hash == fabric_id:
            current = each
    if current is None:
        return None
    forks: list[Record] = []
    former: list[Charter] = []
    while rightful := _rightful(heirs.get(current.record.order.hash, ()), current):
        former.append(current.charter)
        current = rightful[0]
        forks.extend(heir.record for heir in rightful[1:])
    return InForce(current, tuple(forks), tuple(former))


def _rightful(heirs: Iterable[Chartered], of: Chartered) -> list[Chartered]:
    """Those that may follow a charter, the one that does first."""
    height = of.record.order.seq + 1
    counting = [
        heir for heir in heirs if heir.record.order.seq == height and _may_succeed(of.charter, heir.record.key.owner)
    ]
    return sorted(counting, key=lambda heir: (heir.record.key.owner != of.charter.recovery, heir.record.order.hash))


def _may_succeed(charter: Charter, key: bytes) -> bool:
    return may(charter, key, OWNER) or (bool(charter.recovery) and key == charter.recovery)


class Founding(NamedTuple):
    """A new fabric: its id and its first charter."""

    fabric_id: bytes
    charter: Record


def found(
    name: str,
    operator: str,
    owner: bytes,
    sign: Sign,
    hubs: tuple[Hub, ...] = (),
    *,
    issuers: tuple[bytes, ...] = (),
    recovery: bytes = b"",
) -> Founding:
    """Write the founding charter of a fabric with one operator who may do everything."""
    body = Charter(
        name=name,
        operators=(Operator(key=owner, name=operator, verbs=VERBS),),
        hubs=hubs,
        issuers=issuers,
        recovery=recovery,
    )
    record = seal(Draft("charter", "0", encode_body(body)), owner, sign)
    return Founding(record.order.hash, record)


def succeed(current: Chartered, charter: Charter, owner: bytes, sign: Sign) -> Record:
    """Write the successor of a charter, signed by one of its owners or its recovery key; number and `prev` follow."""
    seq = current.record.order.seq + 1
    body = msgspec.structs.replace(charter, prev=current.record.order.hash)
    return seal(Draft("charter", str(seq), encode_body(body), seq=seq), owner, sign)


def offer(invite: Invite, owner: bytes, sign: Sign, *, seq: int = 1) -> Record:
    """Write an invite, signed by an operator."""
    return seal(Draft("invite", key_id(invite.key), encode_body(invite), seq=seq), owner, sign)


def admit(body: Membership, owner: bytes, sign: Sign, *, seq: int = 1) -> Record:
    """Write the membership of a person's key, signed by an operator or by the key of an invite."""
    return seal(Draft("membership", key_id(body.member), encode_body(body), seq=seq), owner, sign)


def certify(body: Certificate, owner: bytes, sign: Sign, *, seq: int = 1) -> Record:
    """Write the certificate of a node key, signed by its member; `seq` counts in unix milliseconds."""
    return seal(Draft("certificate", key_id(body.node), encode_body(body), seq=seq), owner, sign)
