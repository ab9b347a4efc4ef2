"""Revoking an invite: who ends with it is said before and after."""

import msgspec

from registry.charter import offer
from registry.kinds import Hub
from tests.console.founded import account, fabric
from tests.console.test_operators import BASE, INVITED, LEE, beside, failed, succeeded
from tests.node.control import HUB, NOW, Shown
from tests.people import OPERATOR, Person, acceptance, certificate, membership, node_record

__all__ = ["account"]


def test_whoever_is_in_by_an_invite_is_said_to_end_with_it(account):
    fabric(account)
    guest, node = Person(40), Person(50)
    shown = Shown(
        succeeded(msgspec.structs.replace(BASE, hubs=(Hub(key=HUB.key, urls=("ws://a:1",)),))),
        offer(INVITED, OPERATOR.key, OPERATOR.sign),
        membership(guest, by=LEE, not_after=None, provider="chem", roles=("worker",)),
        acceptance(LEE, guest, by=HUB, at=NOW, renewed=NOW),
        certificate(node, by=guest),
        node_record(node, member=guest),
    )
    asked = failed(beside(account, shown, "revoke", LEE.id))
    assert f"ends member {guest.id} of chem (host50@chem)" in asked.message
    done = beside(account, shown, "revoke", LEE.id, "--yes")
    assert f"member {guest.id} of chem (host50@chem) ends with it" in done.stdout
    assert guest.key not in shown.views.at(NOW).standing.admissions


def test_an_invite_nobody_used_ends_nobody(account):
    fabric(account)
    shown = Shown(offer(INVITED, OPERATOR.key, OPERATOR.sign))
    assert "no member is in by it" in failed(beside(account, shown, "revoke", LEE.id)).message
