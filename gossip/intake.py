"""Bounds on what others can make this node hold. Pure.

Merge itself accepts whatever a record proves about itself, from any key: so the number of registers is bounded here,
by owner, and for keys that nobody vouches for in all. What is refused may be offered again by a later repair, when its
owner's certificate has come. Only an owner beyond its bound can make two replicas differ, and only in its own records.
"""

from collections import Counter
from enum import Enum, auto

from registry.kinds import Body, Certificate, Charter, Invite, Membership, Opaque
from registry.record import Key, Record
from registry.replica import Replica

MAX_OF_STRANGERS = 1_024  # registers of keys that no charter, invite, membership or certificate names
MAX_OF_OWNER = 256  # registers of one key: a node has one, its engines a few more
MAX_OF_INVITE = 16  # one person makes one membership of an invite; a leaked one must not vouch for thousands
MAX_ABOUT_OTHERS = 10_000  # those that grow with the fabric: a member's certificates, a hub's doubts and acceptances
MAX_OF_OFFICE = 100_000  # the same for operators and issuers, who write for everyone: keys, invites, acts
ABOUT_OTHERS = frozenset({
    "certificate", "doubt", "invite", "membership", "acceptance", "act", "outcome", "key", "mint", "revocation",
})  # fmt: skip


class _As(Enum):
    """What a key was named as, by somebody who may."""

    OPERATOR = auto()
    ISSUER = auto()
    INVITE = auto()
    MEMBER = auto()
    NODE = auto()


_OFFICE = {_As.OPERATOR, _As.ISSUER}
_MAY_ADMIT = frozenset({_As.OPERATOR, _As.INVITE})
_Named = tuple[bytes, _As]


class Intake:
    """Counts registers by owner. Mutable: told of every register that is new.

    Whether an owner was vouched for is asked again when the record that does so comes, in whatever order.

    Args:
        replica: what is held at the start.
    """

    def __init__(self, replica: Replica) -> None:
        self._vouched: dict[bytes, set[_As]] = {}
        self._waiting: dict[bytes, set[tuple[frozenset[_As], _Named]]] = {}  # by who named them, and what that takes
        self._of_owner: Counter[tuple[bytes, bool]] = Counter()
        self._of_strangers = 0
        for entry in replica:
            self.took(entry.record, entry.body)

    def objection(self, record: Record) -> str | None:
        """Why a record that opens a new register is not taken; None when it may be."""
        key = record.key
        is_about = key.kind in ABOUT_OTHERS
        if self._of_owner[key.owner, is_about] >= self._bound(key.owner, is_about=is_about):
            return "its owner holds too many records"
        if key.owner not in self._vouched and self._of_strangers >= MAX_OF_STRANGERS:
            return "nobody vouches for its owner, and too many such records are held"
        return None

    def took(self, record: Record, body: Body | Opaque) -> None:
        """A register is held that was not before."""
        key = record.key
        self._of_owner[key.owner, key.kind in ABOUT_OTHERS] += 1
        self._of_strangers += key.owner not in self._vouched
        self._name(key, body)

    def _name(self, key: Key, body: Body | Opaque) -> None:
        if isinstance(body, Charter) and not self._vouched:
            self._vouch((key.owner, _As.OPERATOR))  # the one held from the start needs no voucher
        for takes, named in _naming(body):
            if takes & self._vouched.get(key.owner, set()):
                self._vouch(named)
            else:
                self._waiting.setdefault(key.owner, set()).add((takes, named))

    def _bound(self, owner: bytes, *, is_about: bool) -> int:
        roles = self._vouched.get(owner, set())
        if roles == {_As.INVITE}:
            return MAX_OF_INVITE
        if not is_about:
            return MAX_OF_OWNER
        return MAX_OF_OFFICE if roles & _OFFICE else MAX_ABOUT_OTHERS

    def _vouch(self, named: _Named) -> None:
        """Take a key for what it was named as, and then those it names itself."""
        todo = [named]
        while todo:
            key, role = todo.pop()
            if key not in self._vouched:
                self._of_strangers -= self._of_owner[key, True] + self._of_owner[key, False]
            roles = self._vouched.setdefault(key, set())
            if role in roles:
                continue
            roles.add(role)
            due = {each for each in self._waiting.get(key, set()) if role in each[0]}
            if due:
                self._waiting[key] -= due
                todo += [each for _, each in due]


def _naming(body: Body | Opaque) -> list[tuple[frozenset[_As], _Named]]:
    """The keys a record names, as what, and what its owner must be for that to count here."""
    match body:
        case Charter():
            operators = [(operator.key, _As.OPERATOR) for operator in body.operators]
            operators += [(body.recovery, _As.OPERATOR)] if body.recovery else []
            issuers = [(key, _As.ISSUER) for key in body.issuers]
            hubs = [(hub.key, _As.NODE) for hub in body.hubs]
            return [(frozenset({_As.OPERATOR}), named) for named in (*operators, *issuers, *hubs)]
        case Invite():
            return [(frozenset({_As.OPERATOR}), (body.key, _As.INVITE))]
        case Membership():
            return [(_MAY_ADMIT, (body.member, _As.MEMBER))]
        case Certificate():
            return [(frozenset({_As.MEMBER}), (body.node, _As.NODE))]
        case _:
            return []
