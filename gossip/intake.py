"""Bounds on what others can make this node hold. Pure.

Merge itself accepts whatever a record proves about itself, from any key: so the number of registers is bounded here,
by owner, and for keys that nobody vouches for in all. What is refused may be offered again by a later repair, when its
owner's certificate has come. Only an owner beyond its bound can make two replicas differ, and only in its own records.
"""

from collections import Counter

from registry.kinds import Body, Certificate, Charter, Membership, Opaque
from registry.record import Key, Record
from registry.replica import Replica

MAX_OF_STRANGERS = 1_024  # registers of keys that no charter, membership or certificate names
MAX_OF_OWNER = 256  # registers of one key: a node has one, its engines a few more
MAX_ABOUT_NODES = 10_000  # those that grow with the fabric: a member's certificates, a hub's doubts
ABOUT_NODES = frozenset({"certificate", "doubt"})


class Intake:
    """Counts registers by owner. Mutable: told of every register that is new.

    Args:
        replica: what is held at the start.
    """

    def __init__(self, replica: Replica) -> None:
        self._vouched: set[bytes] = set()
        self._of_owner: Counter[tuple[bytes, bool]] = Counter()
        self._of_strangers = 0
        for kind in ("charter", "membership", "certificate"):  # so that each finds its signer vouched for
            for entry in replica.of_kind(kind):
                self._vouch(entry.record.key, entry.body)
        for entry in replica:
            self._count(entry.record.key)

    def objection(self, record: Record) -> str | None:
        """Why a record that opens a new register is not taken; None when it may be."""
        key = record.key
        is_about = key.kind in ABOUT_NODES
        if self._of_owner[key.owner, is_about] >= (MAX_ABOUT_NODES if is_about else MAX_OF_OWNER):
            return "its owner holds too many records"
        if key.owner not in self._vouched and self._of_strangers >= MAX_OF_STRANGERS:
            return "nobody vouches for its owner, and too many such records are held"
        return None

    def took(self, record: Record, body: Body | Opaque) -> None:
        """A new register is held."""
        self._count(record.key)
        self._vouch(record.key, body)

    def _count(self, key: Key) -> None:
        self._of_owner[key.owner, key.kind in ABOUT_NODES] += 1
        self._of_strangers += key.owner not in self._vouched

    def _vouch(self, key: Key, body: Body | Opaque) -> None:
        match body:
            case Charter():
                # The one held from the start needs no voucher; what comes later must be from somebody it names.
                if key.owner in self._vouched or not self._vouched:
                    self._vouched |= {operator.key for operator in body.operators} | {hub.key for hub in body.hubs}
            case Membership() if key.owner in self._vouched:
                self._vouched.add(body.member)
            case Certificate() if key.owner in self._vouched:
                self._vouched.add(body.node)
            case _:
                pass
