"""What a membership that was made of an invite is worth at this door, before its proofs are merged. Pure."""

from typing import NamedTuple

from gossip.hello import Greeting
from registry.charter import OWNER, may
from registry.clock import is_expired
from registry.ids import key_id
from registry.kinds import Acceptance, Charter, Invite, Membership, read_body
from registry.memberships import Offer, given_roles, offer_for
from registry.record import Record
from registry.replica import Replica
from registry.validity import Standing

MAX_SKEW_S = 600.0  # an expiry means something only where clocks agree better than this
DAY_S = 86_400.0


class Door(NamedTuple):
    """What a node knows when somebody knocks."""

    me: bytes  # its own key
    standing: Standing
    replica: Replica
    now: float  # unix seconds, fabric time
    anchors: frozenset[bytes]  # hubs named by the charter, the configuration or a token: they need no acceptance

    def is_revoked(self, target: str) -> bool:
        """Whether an act takes an invite or a member back."""
        return f"revoke/{target}" in self.standing.acts

    def is_skewed(self, wall: float | None) -> bool:
        """Whether another clock is too far from this one to speak of expiries; one not told is taken as right."""
        return wall is not None and abs(wall - self.now) > MAX_SKEW_S


class Claim(NamedTuple):
    """What a membership is worth."""

    refusal: str | None
    until: float = float("inf")  # unix seconds, fabric time
    roles: frozenset[str] = frozenset()
    max_nodes: int = 0
    invite: Record | None = None  # the records that show it, to be merged
    acceptance: Record | None = None
    must_accept: bool = False  # this node should write an acceptance


class Word(NamedTuple):
    """An acceptance of an invite that counts."""

    record: Record
    body: Acceptance


def weigh_invited(greeting: Greeting, membership: Membership, peer: bytes, door: Door) -> Claim:
    """Judge a membership that no owner signed; `peer` is the key of the node that shows it."""
    shown = _invites(greeting, door.replica)
    charter = _charter(door)
    counting = [each for each in shown if may(charter, each.record.key.owner, OWNER, provider=each.invite.provider)]
    if not counting:
        return Claim("invite_unknown" if shown else "not_admitted")
    if door.is_revoked(counting[0].record.key.id):
        return Claim("revoked")
    record, invite = offer_for(membership, counting, charter)  # several operators may sign for one key
    claim = _accepted(greeting, membership.member, invite, door)
    if claim.must_accept:
        why_not = _may_not_accept(greeting, invite, door)
        is_anchor = peer in door.anchors
        claim = Claim(None if is_anchor else why_not, door.now + invite.days * DAY_S, must_accept=why_not is None)
    roles = given_roles(charter, record.key.owner, invite.roles)
    return claim._replace(invite=record, roles=roles, max_nodes=invite.max_nodes)


def words(invite: str, replica: Replica, standing: Standing) -> list[Word]:
    """What was said of an invite by accepters, and before by hubs that are none any more."""
    return [
        Word(record, body)
        for record, body in replica.of_kind("acceptance")
        if record.key.id == invite and isinstance(body, Acceptance) and is_heard(record, body, standing)
    ]


def is_heard(record: Record, body: Acceptance, standing: Standing) -> bool:
    """Whether an acceptance counts by who said it: an accepter, or a hub that was one then."""
    hub = record.key.owner
    return hub in standing.accepters or body.renewed <= standing.former.get(hub, float("-inf"))


def _invites(greeting: Greeting, replica: Replica) -> list[Offer]:
    """The invites for the key that signed the membership, held or shown."""
    key = greeting.membership.key.owner
    newest = {
        entry.record.key: entry.record for entry in replica.of_kind("invite") if entry.record.key.id == key_id(key)
    }
    shown = greeting.invite
    if shown is not None and (shown.key not in newest or shown.order > newest[shown.key].order):
        newest[shown.key] = shown
    bodies = [(record, read_body(record)) for record in newest.values()]
    return [Offer(record, body) for record, body in bodies if isinstance(body, Invite) and body.key == key]


def _accepted(greeting: Greeting, member: bytes, invite: Invite, door: Door) -> Claim:
    """Whether the invite was accepted for this member: by what counts here already, or by the word that was shown."""
    name = key_id(invite.key)
    shown = _shown(greeting, name, door)
    acceptance = shown.record if shown is not None else None
    admissions = door.standing.admissions
    if member in admissions and admissions[member].invite == name:
        return Claim(None, admissions[member].not_after, acceptance=acceptance)
    said = words(name, door.replica, door.standing) + ([shown] if shown is not None else [])
    said = [word for word in said if word.body.member == member or _has_membership(word.body.member, greeting, door)]
    if not said:
        return Claim(None, must_accept=True)
    is_settled = shown is None and any(each.invite == name for each in admissions.values())
    if is_settled or _first(said, door) != member:
        return Claim("exhausted")
    renewed = max(word.body.renewed for word in said if word.body.member == member)
    return Claim(None, renewed + invite.days * DAY_S, acceptance=acceptance)


def _has_membership(member: bytes, greeting: Greeting, door: Door) -> bool:
    """Whether a key has one that is made of the same invite. A word for another key says nothing, as everywhere."""
    return door.replica.get(greeting.membership.key._replace(id=key_id(member))) is not None


def _first(said: list[Word], door: Door) -> bytes:
    """Whom the earliest word is for.

    A charter's hub is heard before others: those may owe it their own admission. What is none any more is heard last.
    """
    hubs = {hub.key for hub in _charter(door).hubs} & door.standing.accepters

    def rank(word: Word) -> tuple[bool, bool, float, bytes]:
        hub = word.record.key.owner
        return hub not in hubs, hub not in door.standing.accepters, word.body.at, word.record.order.hash

    return min(said, key=rank).body.member


def _shown(greeting: Greeting, invite: str, door: Door) -> Word | None:
    """The acceptance that was shown, if it is about this invite, it counts, and nothing newer is held."""
    record = greeting.acceptance
    if record is None or record.key.id != invite:
        return None
    held, body = door.replica.get(record.key), read_body(record)
    is_old = held is not None and held.record.order >= record.order
    is_counting = isinstance(body, Acceptance) and is_heard(record, body, door.standing)
    return Word(record, body) if isinstance(body, Acceptance) and is_counting and not is_old else None


def _may_not_accept(greeting: Greeting, invite: Invite, door: Door) -> str | None:
    if door.me not in door.standing.accepters:
        return "not_accepted"
    if is_expired(invite.accept_by, door.now):
        return "invite_expired"
    return "clock_off" if door.is_skewed(greeting.hello.wall) else None


def _charter(door: Door) -> Charter:
    assert door.standing.in_force is not None  # asked before anything else is
    return door.standing.in_force.current.charter
