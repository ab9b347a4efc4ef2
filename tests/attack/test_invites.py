"""What somebody with a leaked token, a hub of their own, or one provider's charge can do to other people."""

from registry.validity import standing
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    acceptance,
    act_record,
    certificate,
    invite,
    membership,
    operator,
    successor,
)
from tests.people import Registry as Replica

NOW, DAY_S = 1_800_000_000.0, 86_400.0
MOST = 2**64 - 1
HUB, RELAY, OTHER_RELAY = Person(60), Person(61), Person(62)
ADA, TOKEN, NODE = Person(63), Person(64), Person(65)
CHARTER = successor(FOUNDING.charter, operator(OPERATOR, "fleet", "keys", "placement", "owner"), hubs=(HUB,))


def of(*records):
    replica = Replica()
    for record in (FOUNDING.charter, CHARTER, *records):
        replica.apply(record)
    return standing(replica, FABRIC, NOW)


def relay(node, token, owner, **certified):
    """A hub whose owner was let in by the charter's hub some days ago."""
    return (
        invite(token, roles=("relay",), accept_by=NOW - 9 * DAY_S),
        membership(owner, by=token, not_after=None, roles=("relay",)),
        acceptance(token, owner, by=HUB, at=NOW - 10 * DAY_S, renewed=NOW),
        certificate(node, by=owner, roles=("relay",), **certified),
    )


def ada(*, by):
    """A member with one node, whose invite a hub accepted in time."""
    return (
        invite(TOKEN, roles=("worker",), accept_by=NOW - DAY_S, max_nodes=5),
        membership(ADA, by=TOKEN, not_after=None, roles=("worker",), max_nodes=5),
        acceptance(TOKEN, ADA, by=by, at=NOW - 5 * DAY_S),
        certificate(NODE, by=ADA, roles=("worker",)),
    )


def test_whoever_else_holds_a_used_token_cannot_take_its_member_out():
    member = ada(by=HUB)
    assert of(*member).grants[NODE.id, ADA.key].roles == {"worker"}
    for said in (
        {"not_after": 1.0, "roles": ("worker",), "max_nodes": 5},
        {"not_after": None, "roles": ("worker",), "max_nodes": 5, "provider": "elsewhere"},
        {"not_after": None, "roles": (), "max_nodes": 1},
    ):
        again = membership(ADA, by=TOKEN, seq=MOST, **said)  # by a thief: the token signs for whoever has it
        grant = of(*member, again).grants.get((NODE.id, ADA.key))
        assert grant is not None
        assert grant.roles == {"worker"}


def test_a_hub_that_accepts_a_key_without_a_membership_takes_nobody_out():
    relays = (*relay(RELAY, Person(70), Person(71)), *relay(OTHER_RELAY, Person(72), Person(73)))
    member = ada(by=RELAY)
    assert ADA.key in of(*relays, *member).admissions
    junk = acceptance(TOKEN, Person(74), by=OTHER_RELAY, at=0.0)  # it needs to know nothing but the invite's id
    assert ADA.key in of(*relays, *member, junk).admissions


def test_a_hub_that_was_shut_down_takes_nobody_with_it_whom_it_let_in():
    gone = relay(RELAY, Person(70), Person(71), not_after=NOW - DAY_S)  # its certificate lapsed a week after its end
    assert ADA.key in of(*gone, *ada(by=RELAY)).admissions


def test_a_hub_whose_owner_was_revoked_takes_nobody_with_it_whom_it_let_in():
    there = (*relay(RELAY, Person(70), Person(71)), *ada(by=RELAY))
    assert ADA.key in of(*there, act_record("evict", RELAY, at=NOW)).admissions  # as for one that is put out
    assert ADA.key in of(*there, act_record("revoke", Person(70), at=NOW)).admissions


def test_an_owner_for_one_provider_lets_nobody_onto_the_accounts_shelf():
    head, member, node = Person(80), Person(81), Person(82)
    charter = successor(CHARTER, operator(OPERATOR, "owner"), operator(head, "owner", scope="provider:Q"), hubs=(HUB,))
    found = of(
        charter,
        membership(member, by=head, provider="Q", roles=("worker", "ingress", "accounts", "relay")),
        certificate(node, by=member, roles=("worker", "ingress", "accounts", "relay")),
    )
    assert found.grants[node.id, member.key].roles == {"worker"}
    assert node.key not in found.accepters
