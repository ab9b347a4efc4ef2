"""Which links a node should hold, and when to dial again. Pure."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

LEAF_HUBS = 3  # enough that no single hub, and no pair, is a leaf's only path
MESH_HUBS = 16  # up to here hubs know every other; beyond, a seeded choice of `SPARSE_HUBS`
SPARSE_HUBS = 8
MAX_INGRESSES = 8  # a worker is linked to these directly, so that a request needs no relay

FIRST_RETRY_S = 0.2
LAST_RETRY_S = 15.0


class Address(NamedTuple):
    """Where a node accepts links."""

    key: bytes
    urls: tuple[str, ...]
    ingress: bool = False
    is_anchor: bool = False  # named by the charter or the configuration, not only by itself


def targets(me: bytes, is_hub: bool, known: Iterable[Address]) -> tuple[Address, ...]:
    """The nodes to be linked to.

    Anchors come first: whoever may join could make keys that win the hash, and cut a leaf off from all others.
    A leaf takes three hubs by rendezvous hash (Thaler & Ravishankar 1998: the choice of one leaf barely moves
    when hubs come and go, and all leaves spread evenly) and every ingress up to eight; hubs take each other.
    """
    others = [address for address in known if address.key != me and address.urls]
    others.sort(key=lambda address: (not address.is_anchor, _weight(me, address.key)))
    if is_hub:
        return tuple(others if len(others) < MESH_HUBS else others[:SPARSE_HUBS])
    hubs = others[:LEAF_HUBS]
    ingresses = [address for address in others[LEAF_HUBS:] if address.ingress][:MAX_INGRESSES]
    return (*hubs, *ingresses)


def redial_s(attempt: int, rng: "Random") -> float:
    """Seconds to wait before dialling for the `attempt`-th time (0 first): none, then doubling, jittered.

    Dialling never gives up: a node that stopped trying would need a person to bring it back.
    """
    if attempt == 0:
        return 0.0
    return min(FIRST_RETRY_S * 2.0 ** min(attempt - 1, 10), LAST_RETRY_S) * rng.uniform(0.5, 1.5)


def keeps(initiator: bytes, other_initiator: bytes) -> bool:
    """Whether, of two links between one pair of nodes, the one dialled by `initiator` stays."""
    return initiator <= other_initiator


def _weight(me: bytes, hub: bytes) -> bytes:
    return hashlib.blake2b(me + hub, digest_size=8, person=b"tela-rendezvous").digest()
