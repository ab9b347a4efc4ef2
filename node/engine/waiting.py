"""What is said of an engine while it is not ready: how long it takes, why, and after a while what to look at.

Pure. A reason is said when it changes; how long it lasts only now and then, since each saying is a record that
every node gets.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from registry.text import MAX_TEXT_CHARS, clean

SAY_AGAIN_S = 5.0
SAME_FOR_HINT = 3  # probes in a row that said the same
HINT_S = 10.0  # and this long: an engine that loads refuses connections for seconds, and that is no trouble
_LOADING = "loading, "


class Reason(NamedTuple):
    """Why an engine is not ready."""

    why: str  # as "loading, /health refused"
    hint: str = ""  # what to look at when it stays so


_NO_REASON = Reason("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The wait for one run to become ready; `seen` gives the next."""

    since: float  # when the run began, monotonic seconds
    reason: Reason = _NO_REASON
    same: int = 0  # probes in a row that said it
    same_since: float = 0.0
    said_at: float = float("-inf")
    is_hinted: bool = False  # what was said last had the hint in it

    def seen(self, reason: Reason, now: float) -> "tuple[Waiting, str | None]":
        """Take in a probe; returns what to say now, or None for nothing.

        Args:
            reason: what the probe means.
            now: monotonic seconds.
        """
        is_same = reason.why == self.reason.why
        same = self.same + 1 if is_same else 1
        same_since = self.same_since if is_same else now
        is_hinted = bool(reason.hint) and same >= SAME_FOR_HINT and now - same_since >= HINT_S
        after = replace(self, reason=reason, same=same, same_since=same_since)
        if is_same and is_hinted == self.is_hinted and now - self.said_at < SAY_AGAIN_S:
            return after, None
        after = replace(after, said_at=now, is_hinted=is_hinted)
        return after, after.phrase(now)

    def phrase(self, now: float) -> str:
        """It in words that fit a record."""
        waited_s = int(now - self.since)
        why = self.reason.why
        if waited_s and why.startswith(_LOADING):
            why = f"loading {waited_s} s, {why.removeprefix(_LOADING)}"
        hint = f"; {self.reason.hint}" if self.is_hinted else ""
        return clean(why, MAX_TEXT_CHARS - len(hint)) + hint
