"""Which nodes nobody can reach: a reading of doubts, one step short of eviction.

A doubt is a record in its prober's own slot, so it costs nothing to hold several and nobody can forge one. It
is void as soon as its target writes anything newer. A node is SUSPECT when all its independent paths fail:
for a leaf the live hubs it says it is linked to (at most three are asked for), for a hub the other hubs, and
with none of these, anybody.
"""

from collections.abc import Mapping
from typing import NamedTuple

from registry.charter import Grant
from registry.ids import key_id
from registry.kinds import HUB_ROLES, Doubt, Node
from registry.lifecycle import Rank
from registry.record import Record
from registry.replica import Replica

ENOUGH_DOUBTS = 3  # distinct probers after which more would not change the verdict


class Sighting(NamedTuple):
    """What is known of a node when it is doubted."""

    record: Record
    node: Node
    grant: Grant


def is_hub(node: Node, grant: Grant) -> bool:
    """Whether a node accepts links from anyone in the fabric: it says so, and its membership allows it."""
    return bool(node.urls) and not HUB_ROLES.isdisjoint(grant.roles.intersection(node.roles))


def live_doubts(replica: Replica, sightings: Mapping[str, Sighting]) -> dict[str, set[str]]:
    """For each doubted node, the nodes that doubt it and have not been answered."""
    doubts: dict[str, set[str]] = {}
    for record, body in replica.of_kind("doubt"):
        target = sightings.get(record.key.id)
        prober = key_id(record.key.owner)
        if not isinstance(body, Doubt) or target is None or prober not in sightings or body.cleared:
            continue
        if target.record.order[:3:2] == (body.run, body.seq):  # neither answered nor about what is not written yet
            doubts.setdefault(record.key.id, set()).add(prober)
    return doubts


def suspects(replica: Replica, sightings: Mapping[str, Sighting]) -> frozenset[str]:
    """The ids of nodes whose independent paths have all failed."""
    doubts = live_doubts(replica, sightings)
    hubs = {
        name for name, seen in sightings.items() if is_hub(seen.node, seen.grant) and seen.record.order.rank < Rank.LEFT
    }
    dead_hubs = {hub for hub in hubs & doubts.keys() if _condemned(doubts[hub], hubs - {hub})}
    live_hubs = hubs - dead_hubs

    def leaf_is_lost(name: str) -> bool:
        return _condemned(doubts[name], live_hubs & set(sightings[name].node.hubs))

    return frozenset(dead_hubs | {name for name in doubts.keys() - hubs if leaf_is_lost(name)})


def _condemned(probers: set[str], paths: set[str]) -> bool:
    if not paths:
        return bool(probers)
    return len(probers & paths) >= min(ENOUGH_DOUBTS, len(paths))
