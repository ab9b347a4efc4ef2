"""Dropping a hub from the charter: it is still heard, unless it is evicted too."""

import msgspec

from console.commands.operators import operators
from registry.charter import offer
from registry.kinds import Hub, Operator
from tests.console.founded import account, fabric, run
from tests.console.test_operators import BASE, INVITED, KIM_LINE, LEE, beside, failed, in_force, succeeded
from tests.node.control import HUB, NOW, WORKER, Shown
from tests.people import OPERATOR, Person, acceptance, membership

__all__ = ["account"]


def two_hubs():
    hubs = tuple(Hub(key=each.key, urls=("ws://a:1",)) for each in (HUB, WORKER))
    return succeeded(msgspec.structs.replace(BASE, hubs=hubs))


def test_a_hub_that_is_dropped_is_said_to_be_heard_still(account):
    fabric(account)
    shown = Shown(two_hubs())
    done = beside(account, shown, "hub", "remove", "host11@lab")
    assert "host11@lab is still heard on new members" in done.stderr
    assert "tela evict host11@lab" in done.stderr
    assert not shown.views.at(NOW).standing.evicted


def test_a_hub_that_is_evicted_too_lets_nobody_in_any_more(account):
    fabric(account)
    guest = Person(40)
    shown = Shown(
        two_hubs(),
        offer(INVITED, OPERATOR.key, OPERATOR.sign),
        membership(guest, by=LEE, not_after=None, provider="chem", roles=("worker",)),
    )
    assert failed(beside(account, shown, "hub", "remove", "host11@lab", "--evict")).code == "usage"
    done = beside(account, shown, "hub", "remove", "host11@lab", "--evict", "--yes")
    assert done.exit_code == 0, done.output
    standing = shown.views.at(NOW).standing
    assert WORKER.id in standing.evicted
    assert [hub.key for hub in in_force(account).hubs] == [HUB.key]
    shown.apply(acceptance(LEE, guest, by=WORKER, at=NOW + 500, renewed=NOW + 500))
    assert guest.key not in shown.views.at(NOW + 500).standing.admissions


def test_who_may_not_evict_removes_no_hub_with_it(account):
    fabric(account)
    half = Operator(key=OPERATOR.key, name="ada", verbs=("owner",))
    hubs = tuple(Hub(key=each.key, urls=("ws://a:1",)) for each in (HUB, WORKER))
    shown = Shown(succeeded(msgspec.structs.replace(BASE, operators=(half, KIM_LINE), hubs=hubs)))
    error = failed(beside(account, shown, "hub", "remove", "host11@lab", "--evict", "--yes"))
    assert error.code == "not_entitled"
    assert "kim" in error.hint
    assert not list(shown.registry.of_kind("act"))
    assert beside(account, shown, "hub", "remove", "host11@lab").exit_code == 0


def test_an_eviction_needs_a_node_before_the_hub_is_removed(account):
    held = fabric(account, records=[two_hubs()])
    before = held.records()
    assert failed(run(operators, "hub", "remove", WORKER.id, "--evict", "--yes")).code == "no_node"
    assert held.records() == before
