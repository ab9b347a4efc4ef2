"""Seats: which of a member's nodes have a place within the number the membership allows. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from registry.clock import is_expired
from registry.kinds import Certificate
from registry.lifecycle import Rank
from registry.record import Order, Record


class Certified(NamedTuple):
    """A certificate and its record."""

    record: Record
    body: Certificate


class Seats(NamedTuple):
    """Whom there was a place for, and whom not, with the reason."""

    taken: list[Certified]
    refused: list[tuple[Record, str]]


def seat(certified: Iterable[Certified], max_nodes: int, nodes: Mapping[str, Record], now: float) -> Seats:
    """Give one member's nodes their places; one that left needs none and keeps its entitlement.

    First come, first served: the nodes that run, by the number of their run, then the others by their certificates.
    A certificate alone would not do, since each is renewed while its node runs.

    Args:
        certified: the member's certificates.
        max_nodes: how many places there are.
        nodes: the node records that are held, by node id.
        now: unix seconds, fabric time.
    """
    taken: list[Certified] = []
    refused: list[tuple[Record, str]] = []
    for each in certified:
        if is_expired(each.body.not_after, now):
            refused.append((each.record, "certificate expired"))
        else:
            taken.append(each)
    if len(taken) <= max_nodes:
        return Seats(taken, refused)
    left = [each for each in taken if _has_left(each, nodes)]
    present = sorted((each for each in taken if not _has_left(each, nodes)), key=lambda each: _turn(each, nodes))
    refused += [(each.record, f"membership allows {max_nodes} nodes") for each in present[max_nodes:]]
    return Seats(left + present[:max_nodes], refused)


def _has_left(each: Certified, nodes: Mapping[str, Record]) -> bool:
    node = nodes.get(each.record.key.id)
    return node is not None and node.order.rank >= Rank.LEFT


def _turn(each: Certified, nodes: Mapping[str, Record]) -> tuple[bool, int, Order]:
    node = nodes.get(each.record.key.id)
    return node is None, node.order.run if node is not None else 0, each.record.order
