"""Acceptances to write: of a membership seen for the first time, and again while its nodes are linked. Pure.

An acceptance says that an invite was used in time, and when its member was last seen; a membership made of an invite
lasts for the invite's days after that. So what is in use does not end, and what is not ends by itself.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gossip.invited import Door, is_heard
from registry.ids import key_id
from registry.kinds import Acceptance, Membership, read_body
from registry.record import Record

RENEW_S = 86_400.0  # days are what memberships are counted in


class Acceptable(NamedTuple):
    """An acceptance to be written, and the id of its register."""

    subject: str
    body: Acceptance


def acceptance(membership: Record, now: float) -> Acceptable:
    """The first word about a membership; its owner is the key of its invite."""
    body = read_body(membership)
    assert isinstance(body, Membership)  # `gossip.verdict` asks for nothing else to be accepted
    return Acceptable(key_id(membership.key.owner), Acceptance(member=body.member, at=now, renewed=now))


def renewals(members: Iterable[bytes], door: Door) -> list[Acceptable]:
    """What is to be said again of members whose nodes are here; nothing where another accepter did so today."""
    if door.me not in door.standing.accepters:
        return []
    admissions = door.standing.admissions
    invites = {admissions[member].invite: member for member in members if member in admissions}
    said: dict[str, list[Acceptance]] = {}
    for record, body in door.replica.of_kind("acceptance"):
        if not isinstance(body, Acceptance) or invites.get(record.key.id) != body.member:
            continue
        if is_heard(record, body, door.standing):  # also of a hub that is gone, or what it let in would end
            said.setdefault(record.key.id, []).append(body)
    # When an invite was used in time is not for this node to say anew, only that it is in use.
    return [
        Acceptable(invite, Acceptance(member=invites[invite], at=min(word.at for word in words), renewed=door.now))
        for invite, words in sorted(said.items())
        if door.now - max(word.renewed for word in words) > RENEW_S
    ]
