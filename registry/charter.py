"""Authority: the charter in force, and the chain charter → membership → certificate → node key.

Pure readings of a set of records. `found` makes a fabric's first records from seeds.
"""

from collections.abc import Iterable
from typing import NamedTuple

from registry.ids import key_id
from registry.kinds import Certificate, Charter, Hub, Membership, Operator, encode_body
from registry.record import Draft, Record, Sign, seal

OWNER = "owner"  # the verb that may change the charter and admit members


class Chartered(NamedTuple):
    """A charter record and its body."""

    record: Record
    charter: Charter


class InForce(NamedTuple):
    """The charter in force, and other successors of the same charter: a fork an operator must settle."""

    current: Chartered
    forks: tuple[Record, ...]


class Grant(NamedTuple):
    """What a membership allows a node key."""

    provider: str
    roles: frozenset[str]
    not_after: float  # unix seconds, fabric time


def holds(charter: Charter, key: bytes, verb: str) -> bool:
    """Whether a key may do `verb` on the whole fabric."""
    return any(
        operator.key == key and verb in operator.verbs and operator.scope == "fabric" for operator in charter.operators
    )


def charter_in_force(fabric_id: bytes, charters: Iterable[Chartered]) -> InForce | None:
    """Follow the successors from the founding charter; None when that one is not held yet.

    A successor counts when an owner named in its predecessor signed it. Of several, the one with the smallest
    hash is followed, everywhere alike, and the others are returned as forks.
    """
    held = list(charters)
    current = next((each for each in held if each.record.order.hash == fabric_id), None)
    if current is None:
        return None
    forks: list[Record] = []
    while True:
        heirs = sorted((each for each in held if _follows(each, current)), key=lambda each: each.record.order.hash)
        if not heirs:
            return InForce(current, tuple(forks))
        current = heirs[0]
        forks.extend(heir.record for heir in heirs[1:])


def _follows(heir: Chartered, of: Chartered) -> bool:
    return (
        heir.charter.prev == of.record.order.hash
        and heir.record.order.seq == of.record.order.seq + 1
        and holds(of.charter, heir.record.key.owner, OWNER)
    )


class Founding(NamedTuple):
    """A new fabric: its id and its first charter."""

    fabric_id: bytes
    charter: Record


def found(name: str, operator: str, owner: bytes, sign: Sign, hubs: tuple[Hub, ...] = ()) -> Founding:
    """Write the founding charter of a fabric with one operator who may do everything."""
    everything = ("fleet", "keys", "placement", OWNER)
    body = Charter(name=name, operators=(Operator(key=owner, name=operator, verbs=everything),), hubs=hubs)
    record = seal(Draft("charter", "0", encode_body(body)), owner, sign)
    return Founding(record.order.hash, record)


def admit(body: Membership, owner: bytes, sign: Sign, *, seq: int = 1) -> Record:
    """Write the membership of a person's key, signed by an operator."""
    return seal(Draft("membership", key_id(body.member), encode_body(body), seq=seq), owner, sign)


def certify(body: Certificate, owner: bytes, sign: Sign, *, seq: int = 1) -> Record:
    """Write the certificate of a node key, signed by its member; `seq` counts in unix milliseconds."""
    return seal(Draft("certificate", key_id(body.node), encode_body(body), seq=seq), owner, sign)
