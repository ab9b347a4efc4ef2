"""Why a process ended: what it printed last and what the kernel counted, read for `node.engine.causes` to judge."""

import asyncio
from contextlib import suppress
from pathlib import Path

from node.engine.causes import WORDS, classify
from node.engine.child import Exit
from node.engine.oom import oom_kills
from node.engine.output import tail_of
from node.engine.watch import Fall
from registry.kinds import Cause

LOOK_BACK_S = 0.5  # for reading the log: the end of an engine is to be known within a second


class Autopsy:
    """Begun with a process, so that it can tell what happened since.

    Args:
        log: what the process appends to.
        since_b: how long the log was before it.
    """

    def __init__(self, log: Path, since_b: int) -> None:
        self._log = log
        self._since_b = since_b
        self._killed_before = oom_kills()

    async def of(self, end: Exit) -> Fall:
        """The cause of an end, with its class and without a word from the log."""
        tail = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_BACK_S):
                tail = await asyncio.to_thread(tail_of, self._log, self._since_b)
        reason = classify(end.code, end.signal, tail, oom_kills() - self._killed_before)
        how = f"exited with {end.code}" if end.signal is None else f"killed by signal {end.signal}"
        why = WORDS.get(reason)
        cause = Cause(reason=reason, exit_code=end.code, signal=end.signal)
        return Fall(cause, f"{how}: {why}" if why else how)
