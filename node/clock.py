"""The real clocks. Made once, by the program's entry."""

import time


class SystemClock:
    """Satisfies `registry.clock.Clock`; `offset_s` is set by whoever hears the hubs."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()  # noqa: TID251 - this is the clock

    def wall(self) -> float:
        """Unix seconds on this host."""
        return time.time()  # noqa: TID251 - this is the clock

    def fabric(self) -> float:
        """Unix seconds, corrected."""
        return self.wall() + self.offset_s
