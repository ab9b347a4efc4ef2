"""A clock that was far ahead for a moment and is right again."""

from gossip.gate import Gate
from gossip.invited import Door
from registry.validity import standing
from registry.views import Views
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    acceptance,
    certificate,
    invite,
    membership,
    node_record,
    operator,
    registry_of,
    successor,
)

NOW, DAY_S = 1_800_000_000.0, 86_400.0
HUB, NODE, TOKEN, ADA = Person(105), Person(106), Person(107), Person(108)


def test_what_a_wrong_clock_saw_as_expired_counts_again_once_it_is_right():
    replica = registry_of(certificate(NODE, not_after=NOW + DAY_S), node_record(NODE))
    views = Views(replica, FABRIC)
    assert NODE.id in views.at(NOW).nodes
    assert NODE.id not in views.at(NOW + 30 * DAY_S).nodes
    assert NODE.id in views.at(NOW).nodes


def test_a_hub_goes_on_renewing_after_its_clock_was_ahead():
    replica = registry_of(
        successor(FOUNDING.charter, operator(OPERATOR, "owner"), hubs=(HUB,)),
        invite(TOKEN),
        membership(ADA, by=TOKEN, not_after=None),
        acceptance(TOKEN, ADA, by=HUB, at=NOW),
        certificate(HUB, by=ADA),
    )
    now = NOW

    def door() -> Door:
        return Door(HUB.key, standing(replica, FABRIC, now), replica, now, frozenset())

    gate = Gate(door)
    now = NOW + 3_650 * DAY_S  # nobody is a member any more at that time, so nothing is written
    assert not gate.renewals([])
    now = NOW + 2 * DAY_S
    assert [renewed.body.member for renewed in gate.renewals([])] == [ADA.key]
