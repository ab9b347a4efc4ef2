"""One engine process: started in a session of its own, waited for, and ended with everything it started.

It knows nothing of readiness or of restarting. What the engine prints goes to its log file and nowhere else.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from node.engine.output import open_log, size_of
from node.engine.words import KEY_MARK, PORT_MARK, words_of
from registry.errors import TelaError

KILL_S = 5.0  # from SIGKILL to giving up: only a process stuck in the kernel (a driver, a dead mount) takes longer

# Becomes the engine by exec, so the pid stays. PR_SET_PDEATHSIG (1) has to be set in the child itself; a
# preexec_fn would run Python between fork and exec of a process with threads. Python ignores two signals, and
# an ignored signal survives exec: they are given back. 126 is what a shell says for "found, but not runnable".
_LAUNCH = """\
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execv(sys.argv[2], sys.argv[3:])
except OSError as error:
    sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\\n")
    sys.exit(126)
"""


class Exit(NamedTuple):
    """How a process ended: exactly one of the two is set."""

    code: int | None
    signal: int | None


def free_port() -> int:
    """A port of 127.0.0.1 that nobody holds now. Somebody may before the engine does: then it exits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(port: int) -> None:
    """See that nobody listens where an engine is to: whoever does would be taken for it.

    Raises:
        TelaError: somebody does.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what its last run left behind is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            hint = "give another port, or none: then a free one is taken"
            raise TelaError(f"port {port}: {error.strerror}", hint=hint, code="port_in_use") from error


class Child:
    """A running engine process, leader of its own group; made by `spawn`. Mutable: it notes the sweep.

    Attributes:
        pid: of the process, and of its group.
        port: what `{port}` in the command became.
        log_from_b: how long the log was before it.
    """

    def __init__(self, process: Process, port: int, log_from_b: int = 0) -> None:
        self.pid = process.pid
        self.port = port
        self.log_from_b = log_from_b
        self._process = process
        self._is_swept = False

    @classmethod
    async def spawn(
        cls,
        command: str,
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        api_key: str | None = None,
    ) -> Self:
        """Start a command line; `{port}` in it becomes its port, `{api_key}` its key.

        On Linux it gets SIGTERM when the thread that runs this loop ends, however it ends.

        Args:
            command: words as a shell would split them; no shell runs.
            log: where its stdout and stderr are appended; made, or made ours alone (0600).
            env: its environment; None: that of this process.
            port: the one it shall have; None: a free one of 127.0.0.1.
            api_key: what `{api_key}` becomes; None: it stays.

        Raises:
            TelaError: there is no such command, it cannot be split, its port is taken, or the log cannot be written.
        """
        if port is None:
            port = free_port()
        else:
            check_port(port)
        marks = {PORT_MARK: str(port)} | ({} if api_key is None else {KEY_MARK: api_key})
        words = [_filled(word, marks) for word in words_of(command)]
        program = shutil.which(words[0], path=None if env is None else env.get("PATH"))
        if program is None:
            raise TelaError(
                f"no such command: {words[0]}",
                hint="check that it is installed and executable, or give its full path",
                code="command_not_found",
            )
        out = open_log(log)
        log_from_b = size_of(log)
        try:
            process = await create_subprocess_exec(
                *_launched(program, words), stdin=DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
            )
        finally:
            os.close(out)
        return cls(process, port, log_from_b)

    async def wait(self) -> Exit:
        """Wait for the end of the process; what is left of its group is killed then."""
        status = await self._process.wait()
        self._sweep()
        return Exit(status, None) if status >= 0 else Exit(None, -status)

    async def stop(self, grace_s: float) -> Exit:
        """End the process and its group: SIGTERM, and after `grace_s` SIGKILL. Cancelled, it kills at once.

        Raises:
            TelaError: it is still there `KILL_S` after SIGKILL.
        """
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                return await self.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            raise
        try:
            async with asyncio.timeout(KILL_S):
                return await self.wait()
        except TimeoutError:
            raise TelaError(
                f"process {self.pid} survives SIGKILL",
                hint="it waits in the kernel; look for a hung driver or mount",
                code="unkillable",
            ) from None

    def kill(self) -> None:
        """Send SIGKILL to all of it, now; a `stop` that waits sees the end."""
        self._signal(signal.SIGKILL)

    def _sweep(self) -> None:
        """Kill what the leader left behind, once: later the number may be another group's."""
        self._signal(signal.SIGKILL)
        self._is_swept = True

    def _signal(self, number: int) -> None:
        if not self._is_swept:
            with suppress(ProcessLookupError, PermissionError):  # gone; macOS says the second of zombies
                os.killpg(self.pid, number)


def _filled(word: str, marks: Mapping[str, str]) -> str:
    for mark, value in marks.items():
        word = word.replace(mark, value)
    return word


def _launched(program: str, words: list[str]) -> list[str]:
    if sys.platform != "linux":
        return words
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), program, *words]
