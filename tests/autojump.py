"""An event loop on virtual time: when nothing is ready it jumps to the next timer instead of sleeping.

Only for shells over the memory network: with real sockets time would jump while bytes are on their way.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits and no timer is set: this test would hang")
        self.now += max(timeout, 0.0)
        return super().select(0)


class AutojumpLoop(asyncio.SelectorEventLoop):
    """Time starts at 0 and costs nothing."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=AutojumpLoop) as runner:
        return runner.run(main)
