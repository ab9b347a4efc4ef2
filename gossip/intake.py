"""Bounds on what others can make this node hold. Pure.

Merge itself accepts whatever a record proves about itself, from any key: so the number of registers is bounded here,
by owner, for all nodes of a member, and for all keys that nobody vouches for. What is refused may be offered again by a
later repair, when its owner's certificate has come. Only an owner or member beyond its bound can make two replicas
differ, and only in its own records.
"""

from collections import Counter
from enum import Enum, auto

from registry.kinds import Body, Certificate, Charter, Invite, Membership, Opaque
from registry.record import Key, Record
from registry.replica import Replica

MAX_OF_STRANGERS = 1_024  # registers of keys that no charter, invite, membership or certificate names
MAX_OF_OWNER = 256  # registers of one key: a node has one, its engines a few more
MAX_OF_INVITE = 16  # one person makes one membership of an invite; a leaked one must not vouch for thousands
MAX_OF_NODES = (
    20_000  # registers of all nodes that one member certified: keys are free, and each has a bound of its own
)
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
    HUB = auto()  # by the charter
    NODE = auto()  # by the member who certified it


_OFFICE = frozenset({_As.OPERATOR, _As.ISSUER})
_OF_CHARTER = _OFFICE | {_As.HUB}  # whoever certified such a node does not answer for what it writes
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
        self._certified_by: dict[bytes, set[bytes]] = {}  # members by node; anybody may certify anybody's
        self._of_nodes: Counter[bytes] = Counter()  # by member
        self._of_strangers = 0
        for entry in replica:
            self.took(entry.record, entry.body)

    def objection(self, record: Record) -> str | None:
        """Why a record that opens a new register is not taken; None when it may be."""
        key = record.key
        is_about = key.kind in ABOUT_OTHERS
        if self._of_owner[key.owner, is_about] >= self._bound(key.owner, is_about=is_about):
            return "its owner holds too many records"
        if self._is_at_its_members_bound(key.owner):
            return "the nodes of its member hold too many records"
        if key.owner not in self._vouched and self._of_strangers >= MAX_OF_STRANGERS:
            return "nobody vouches for its owner, and too many such records are held"
        return None

    def took(self, record: Record, body: Body | Opaque) -> None:
        """A register is held that was not before."""
        key = record.key
        self._of_owner[key.owner, key.kind in ABOUT_OTHERS] += 1
        self._of_strangers += key.owner not in self._vouched
        self._charge(key.owner, 1)
        self._name(key, body)

    def _name(self, key: Key, body: Body | Opaque) -> None:
        if isinstance(body, Charter) and not self._vouched:
            self._vouch((key.owner, _As.OPERATOR), key.owner)  # the one held from the start needs no voucher
        for takes, named in _naming(body):
            if takes & self._vouched.get(key.owner, set()):
                self._vouch(named, key.owner)
            else:
                self._waiting.setdefault(key.owner, set()).add((takes, named))

    def _bound(self, owner: bytes, *, is_about: bool) -> int:
        roles = self._vouched.get(owner, set())
        if roles == {_As.INVITE}:
            return MAX_OF_INVITE
        if not is_about:
            return MAX_OF_OWNER
        return MAX_OF_OFFICE if roles & _OFFICE else MAX_ABOUT_OTHERS

    def _vouch(self, named: _Named, by: bytes) -> None:
        """Take a key for what it was named as, and then those it names itself."""
        todo = [(named, by)]
        while todo:
            (key, role), by = todo.pop()
            if key not in self._vouched:
                self._of_strangers -= self._held(key)
            roles = self._vouched.setdefault(key, set())
            if role is _As.NODE:
                self._certify(key, by)
            if role in roles:
                continue
            if role in _OF_CHARTER:
                self._charge(key, -self._held(key))
            roles.add(role)
            due = {each for each in self._waiting.get(key, set()) if role in each[0]}
            if due:
                self._waiting[key] -= due
                todo += [(each, key) for _, each in due]

    # --- nodes and the members who certified them

    def _held(self, owner: bytes) -> int:
        return self._of_owner[owner, True] + self._of_owner[owner, False]

    def _certify(self, node: bytes, member: bytes) -> None:
        members = self._certified_by.setdefault(node, set())
        if member not in members:
            members.add(member)
            if self._is_its_members(node):
                self._of_nodes[member] += self._held(node)

    def _charge(self, node: bytes, registers: int) -> None:
        """Count what a node holds for each member who certified it: nobody is charged for a node of somebody else."""
        if self._is_its_members(node):
            for member in self._certified_by.get(node, ()):
                self._of_nodes[member] += registers

    def _is_its_members(self, node: bytes) -> bool:
        return self._vouched.get(node, set()).isdisjoint(_OF_CHARTER)

    def _is_at_its_members_bound(self, node: bytes) -> bool:
        """Whether no member who certified it has room: with one that has, a stranger's certificate does no harm."""
        members = self._certified_by.get(node, set())
        if not members or not self._is_its_members(node):
            return False
        return all(self._of_nodes[member] >= MAX_OF_NODES for member in members)


def _naming(body: Body | Opaque) -> list[tuple[frozenset[_As], _Named]]:
    """The keys a record names, as what, and what its owner must be for that to count here."""
    match body:
        case Charter():
            operators = [(operator.key, _As.OPERATOR) for operator in body.operators]
            operators += [(body.recovery, _As.OPERATOR)] if body.recovery else []
            issuers = [(key, _As.ISSUER) for key in body.issuers]
            hubs = [(hub.key, _As.HUB) for hub in body.hubs]
            return [(frozenset({_As.OPERATOR}), named) for named in (*operators, *issuers, *hubs)]
        case Invite():
            return [(frozenset({_As.OPERATOR}), (body.key, _As.INVITE))]
        case Membership():
            return [(_MAY_ADMIT, (body.member, _As.MEMBER))]
        case Certificate():
            return [(frozenset({_As.MEMBER}), (body.node, _As.NODE))]
        case _:
            return []
