"""How long to wait before an engine is started again: a pure function of how often it failed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

FIRST_S = 0.2
LONGEST_S = 30.0
GOOD_SERVICE_S = 60.0  # a run that served this long owes nothing to the failures before it

_MAX_DOUBLINGS = 16  # past LONGEST_S long since; keeps the power small


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Failures in a row; 0 before the first."""

    failures: int = 0

    def after(self, served_s: float) -> "Backoff":
        """Count a run that ended after `served_s` seconds of service."""
        return Backoff(failures=1 if served_s >= GOOD_SERVICE_S else self.failures + 1)

    def delay_s(self, rng: "Random") -> float:
        """Seconds to wait now: doubling, the upper half of it random so that a fleet does not act as one."""
        if self.failures == 0:
            return 0.0
        longest = min(LONGEST_S, FIRST_S * 2.0 ** min(self.failures - 1, _MAX_DOUBLINGS))
        return longest * (0.5 + 0.5 * rng.random())
