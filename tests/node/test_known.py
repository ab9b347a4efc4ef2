"""Where other nodes take links."""

from node.config import HubAddress
from node.known import addresses, anchors
from registry.kinds import Charter, Hub
from registry.views import snapshot
from tests.people import FABRIC, Person, node_record, registry_of

HUB, WORKER, STRANGER = Person(40), Person(41), Person(42)
URL = f"ws://127.0.0.1:{7000 + HUB.number}"  # where its own record says


def named(*hubs, told=()):
    charter = Charter(name="t", operators=(), hubs=tuple(Hub(key=hub.key, urls=urls) for hub, urls in hubs))
    return anchors(charter, [HubAddress(key=hub.key, urls=urls) for hub, urls in told])


def found(anchored, *records, nodes=(HUB, WORKER)):
    view = snapshot(registry_of(*records, nodes=nodes), FABRIC, 0.0)
    return {each.key: each for each in addresses(anchored, view)}


def test_what_a_nodes_owner_says_of_a_hub_wins_over_the_charter():
    assert named((HUB, ("ws://a",)), (WORKER, ("ws://c",)), told=[(HUB, ("ws://b",))]) == {
        HUB.key: ("ws://b",),
        WORKER.key: ("ws://c",),
    }


def test_a_hub_of_the_charter_is_known_before_anything_was_heard_of_it():
    address = found(named((HUB, ("ws://a",))))[HUB.key]
    assert (address.urls, address.is_anchor) == (("ws://a",), True)


def test_what_a_hub_says_of_itself_comes_before_what_was_told():
    address = found(named((HUB, ("ws://a", URL))), node_record(HUB, hub=True))[HUB.key]
    assert (address.urls, address.is_anchor, address.ingress) == ((URL, "ws://a"), True, True)


def test_a_hub_nobody_named_is_dialled_but_is_no_anchor():
    address = found({}, node_record(HUB, hub=True))[HUB.key]
    assert (address.urls, address.is_anchor) == ((URL,), False)


def test_leaves_and_strangers_are_not_dialled():
    assert found({}, node_record(WORKER), node_record(STRANGER, hub=True)) == {}
