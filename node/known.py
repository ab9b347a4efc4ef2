"""Where other nodes accept links: from the charter, the configuration and the registry."""

from collections.abc import Iterable

from gossip.topology import Address
from node.config import HubAddress
from registry.kinds import Charter
from registry.views import Snapshot


def anchors(charter: Charter, told: Iterable[HubAddress]) -> dict[bytes, tuple[str, ...]]:
    """The hubs that an operator or this node's owner named, by key; what the owner says wins."""
    return {hub.key: hub.urls for hub in charter.hubs} | {hub.key: hub.urls for hub in told}


def addresses(named: dict[bytes, tuple[str, ...]], view: Snapshot) -> tuple[Address, ...]:
    """Every node that may be dialled; the latest addresses win, and those told come first of their node's."""
    known = {key: Address(key, urls, ingress=True, is_anchor=True) for key, urls in named.items()}
    for row in view.nodes.values():
        if row.is_hub and row.node.urls:
            told = named.get(row.key, ())
            urls = row.node.urls + tuple(url for url in told if url not in row.node.urls)
            known[row.key] = Address(row.key, urls, "ingress" in row.roles, row.key in named)
    return tuple(known.values())
