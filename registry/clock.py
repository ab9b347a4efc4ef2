"""The three clocks, as a thing handed in. Only the program's entry makes a real one.

`now` is monotonic and drives every timer. `wall` is this host's own unix time, for display. `fabric` is unix
time corrected by what the hubs say, for expiry and windows. Merge reads none of them.
"""

from statistics import median
from typing import Protocol

LEEWAY_S = 120.0  # an expiry is honoured this long past its time, since no two hosts agree on it exactly


class Clock(Protocol):
    """What a shell asks for the time."""

    def now(self) -> float:
        """Monotonic seconds; the zero is arbitrary."""

    def wall(self) -> float:
        """This host's unix time in seconds."""

    def fabric(self) -> float:
        """Unix time in seconds as the fabric's hubs see it."""


def fabric_offset(offsets: list[float]) -> float:
    """The correction to add to the own clock: the median of the hubs' offsets, 0 with none.

    Args:
        offsets: seconds that each hub's clock is ahead of ours.
    """
    return median(offsets) if offsets else 0.0


def is_expired(not_after: float, now_fabric: float) -> bool:
    """Whether a certificate or key that ends at `not_after` (unix seconds) has ended, leeway included."""
    return now_fabric > not_after + LEEWAY_S
