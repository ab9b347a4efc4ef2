"""What a gate remembers of whom it let in, and what it makes of a clock that was wrong and of others it has not heard.

How a greeting is judged is in `test_verdict`.
"""

import pytest

from gossip.frames import CAPABILITY
from gossip.gate import Gate
from gossip.hello import REFUSALS, Hello, encode_hello
from gossip.invited import Door
from registry.validity import standing
from tests.mesh import DAY_S, WALL_S, Guest
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    acceptance,
    certificate,
    invite,
    membership,
    operator,
    registry_of,
    successor,
)

HUB, NODE, TOKEN, ADA = Person(105), Person(106), Person(107), Person(108)
CHARTER = successor(FOUNDING.charter, operator(OPERATOR, "owner"), hubs=(HUB,))


class Held:
    """A hub of the charter and its gate; a test says what it holds, what time it is and whether it is ready."""

    def __init__(self, *records, anchors=(), is_ready=True):
        self.now = WALL_S
        self.replica = registry_of(CHARTER, *records)
        self.anchors = frozenset(each.key for each in anchors)
        self.is_ready = is_ready
        self.gate = Gate(self.door, is_ready=lambda: self.is_ready)

    def door(self) -> Door:
        return Door(HUB.key, standing(self.replica, FABRIC, self.now), self.replica, self.now, self.anchors)

    def admit(self, guest: Guest, link=1, *words) -> str | None:
        proofs = (guest.membership, guest.certificate, guest.invite, *words)
        raws = tuple(each.raw for each in proofs)
        hello = Hello(CAPABILITY, "1", hub=False, accounts=False, proofs=raws, wall=self.now)
        return self.gate.admit(link, guest.node.key, encode_hello(hello))

    def merge(self, *records):
        for record in records:
            self.replica.apply(record)


@pytest.fixture
def accepted():
    """A hub whose own member was accepted just now."""
    return Held(
        invite(TOKEN),
        membership(ADA, by=TOKEN, not_after=None),
        acceptance(TOKEN, ADA, by=HUB, at=WALL_S),
        certificate(HUB, by=ADA),
    )


# --- renewing


def test_it_goes_on_renewing_after_its_clock_was_ahead(accepted):
    accepted.now = WALL_S + 3_650 * DAY_S  # nobody is a member any more at that time, so nothing is written
    assert not accepted.gate.renewals([])
    accepted.now = WALL_S + 2 * DAY_S
    assert [renewed.body.member for renewed in accepted.gate.renewals([])] == [ADA.key]


def test_it_looks_for_what_to_renew_once_a_minute_though_its_clock_is_corrected_a_little(accepted):
    accepted.now = WALL_S + 2 * DAY_S
    assert accepted.gate.renewals([])
    for later in (0.0, 59.0, 1.0):
        accepted.now = WALL_S + 2 * DAY_S + later
        assert not accepted.gate.renewals([])


# --- before others were heard


def test_a_hub_that_has_heard_no_other_yet_accepts_nobody_new():
    ada, at = Guest(640), Held(is_ready=False)
    assert at.admit(ada) == "not_ready"
    assert "come again" in REFUSALS["not_ready"]
    at.is_ready = True
    assert at.admit(ada) is None
    assert at.gate.entered(1).accept == ada.membership


def test_who_was_accepted_before_is_admitted_by_it_all_the_same():
    ada = Guest(640)
    shown, held = Held(is_ready=False), Held(is_ready=False)
    assert shown.admit(ada, 1, ada.accepted(HUB)) is None
    held.merge(ada.invite, ada.membership, ada.certificate, ada.accepted(HUB))
    assert held.admit(ada) is None


def test_who_would_not_be_accepted_anyway_is_told_that():
    assert Held(is_ready=False).admit(Guest(640, accept_by=WALL_S - DAY_S)) == "invite_expired"


def test_a_hub_that_was_named_is_let_in_to_be_heard_and_its_member_is_accepted_then():
    ada = Guest(640)
    at = Held(anchors=[ada.node], is_ready=False)
    assert at.admit(ada) is None
    verdict = at.gate.entered(1)
    assert (verdict.refusal, verdict.accept) == (None, None)
    at.merge(*verdict.proofs)
    assert not at.gate.owed([1])
    assert not at.gate.lapsed([1])
    at.is_ready = True
    ((subject, body),) = at.gate.owed([1])
    assert (subject, body.member, body.at) == (ada.token.id, ada.member.key, WALL_S)
    assert not at.gate.owed([1])


def test_what_such_a_hub_brought_decides_whether_its_member_is_accepted():
    ada = Guest(640)
    second = Guest(641, invite=ada)
    at = Held(anchors=[second.node], is_ready=False)
    assert at.admit(second) is None
    at.merge(*at.gate.entered(1).proofs)
    at.merge(ada.invite, ada.membership, ada.certificate, ada.accepted(HUB))
    at.is_ready = True
    assert not at.gate.owed([1])
    assert at.gate.lapsed([1]) == [(1, "exhausted")]
