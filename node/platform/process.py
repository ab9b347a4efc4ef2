"""A process of ours that is told to end and waited for. It never touches another one that got its number meanwhile."""

import contextlib
import os
import select
import signal
import time
from typing import Self

from node.statedir import process_start

LOOK_S = 0.05  # where the kernel has no handles on processes (before Linux 5.3), it is looked for this often


class Running:
    """A handle on a process. Mutable: it is closed.

    Attributes:
        pid: its number.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = _handle_on(pid)
        self._start = process_start(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a corpse that nobody buried does not."""
        return self._start != 0 and process_start(self.pid) == self._start

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it is gone.

        Raises:
            PermissionError: it belongs to another account.
        """
        with contextlib.suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            elif self.is_alive:
                os.kill(self.pid, number)

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end; whether it came."""
        if self._handle is None:
            for _ in range(max(1, round(seconds / LOOK_S))):
                if not self.is_alive:
                    break
                time.sleep(LOOK_S)
        elif self.is_alive:
            waiting = select.poll()
            waiting.register(self._handle, select.POLLIN)
            waiting.poll(seconds * 1000)
        return not self.is_alive


def _handle_on(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
