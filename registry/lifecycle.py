"""The ranks a node or replica run passes through: only forward, LEFT absorbs."""

from enum import IntEnum


class Rank(IntEnum):
    """How far a run has come. SUSPECT and DRAINING are overlays, not ranks."""

    JOIN = 0
    SERVING = 1
    DOWN = 2
    LEFT = 3


def may_move(current: Rank, to: Rank) -> bool:
    """Whether a run may go from one rank to another; staying is always allowed, going back never."""
    return to >= current
