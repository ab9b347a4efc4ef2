"""Local ejection: a replica that just failed here rests for a moment, whatever the registry says.

The registry learns of a dead engine within a second or two; until then its requests would fail one by one.
"""

from typing import NamedTuple

FIRST_S = 0.5
LAST_S = 30.0


class _Ejection(NamedTuple):
    run: int
    failures: int
    until: float


class Guard:
    """Which replicas failed lately at this ingress. Mutable; times are monotonic seconds."""

    def __init__(self) -> None:
        self._ejected: dict[str, _Ejection] = {}

    def failed(self, replica: str, run: int, now: float) -> None:
        """A request on a run of a replica failed through no fault of its own."""
        held = self._ejected.get(replica)
        failures = held.failures + 1 if held is not None and held.run == run else 1
        until = now + min(FIRST_S * 2.0 ** (failures - 1), LAST_S)
        self._ejected[replica] = _Ejection(run, failures, until)

    def served(self, replica: str) -> None:
        """A request went well: forget what was before."""
        self._ejected.pop(replica, None)

    def objection(self, replica: str, run: int, now: float) -> str | None:
        """Why not to pick it now; None when there is no reason. A new run starts clean."""
        held = self._ejected.get(replica)
        if held is None or held.run != run or now >= held.until:
            return None
        return f"failed here {held.failures} time(s) in a row, tried again in {held.until - now:.1f} s"
