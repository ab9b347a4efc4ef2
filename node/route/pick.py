"""Choosing one of several routable replicas. Pure: what is known in, an index out."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Policy(StrEnum):
    """How to choose."""

    UNIFORM = "uniform"
    ROUND_ROBIN = "round-robin"
    LEAST_IN_FLIGHT = "least-in-flight"
    WEIGHTED = "weighted"


def pick(
    policy: Policy,
    names: Sequence[str],
    *,
    in_flight: Mapping[str, int],
    weights: Mapping[str, float],
    turn: int,
    rng: "Random",
) -> int:
    """The index of the chosen candidate.

    Args:
        policy: how to choose.
        names: the candidates, at least one.
        in_flight: requests of this ingress on each, absent = 0.
        weights: relative share of each for `weighted`, absent = 1; 0 gets nothing unless all are 0.
        turn: a counter of the model's requests; kept per model, so that one model does not skew another.
        rng: breaks ties, so that equal candidates share alike.
    """
    if len(names) == 1:
        return 0
    match policy:
        case Policy.UNIFORM:
            return rng.randrange(len(names))
        case Policy.ROUND_ROBIN:
            return turn % len(names)
        case Policy.LEAST_IN_FLIGHT:
            loads = [in_flight.get(name, 0) for name in names]
            least = min(loads)
            return rng.choice([index for index, load in enumerate(loads) if load == least])
        case Policy.WEIGHTED:
            shares = [max(weights.get(name, 1.0), 0.0) for name in names]
            if not any(shares):
                return rng.randrange(len(names))
            return rng.choices(range(len(names)), shares)[0]
