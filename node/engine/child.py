"""One engine process: started in a session of its own, waited for, and ended with everything it started.

It knows nothing of readiness or of restarting. What the engine prints goes to its log file and nowhere else.
"""

import asyncio
import os
import shlex
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from registry.errors import TelaError

PORT_MARK = "{port}"
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


def words_of(command: str) -> list[str]:
    """The words of a command line, as a POSIX shell splits them; no variables, no pipes.

    Raises:
        TelaError: it is empty, or a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TelaError(f"engine command: {error}", hint="check its quotes", code="bad_command") from None
    if not words:
        raise TelaError("engine command: empty", hint="say what to start", code="bad_command")
    return words


def free_port() -> int:
    """A port of 127.0.0.1 that nobody holds now. Somebody may before the engine does: then it exits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """A running engine process, leader of its own group; made by `spawn`. Mutable: it notes the sweep.

    Attributes:
        pid: of the process, and of its group.
        port: what `{port}` in the command became.
    """

    def __init__(self, process: Process, port: int) -> None:
        self.pid = process.pid
        self.port = port
        self._process = process
        self._is_swept = False

    @classmethod
    async def spawn(cls, command: str, *, log: Path, env: Mapping[str, str] | None = None) -> Self:
        """Start a command line; `{port}` in it becomes a free port of 127.0.0.1.

        On Linux it gets SIGTERM when the thread that runs this loop ends, however it ends.

        Args:
            command: words as a shell would split them; no shell runs.
            log: where its stdout and stderr are appended; made, or made ours alone (0600).
            env: its environment; None: that of this process.

        Raises:
            TelaError: there is no such command, it cannot be split, or the log cannot be written.
        """
        port = free_port()
        words = [word.replace(PORT_MARK, str(port)) for word in words_of(command)]
        program = shutil.which(words[0], path=None if env is None else env.get("PATH"))
        if program is None:
            raise TelaError(
                f"no such command: {words[0]}",
                hint="check that it is installed and executable, or give its full path",
                code="command_not_found",
            )
        out = _open_log(log)
        try:
            process = await create_subprocess_exec(
                *_launched(program, words), stdin=DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
            )
        finally:
            os.close(out)
        return cls(process, port)

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

    def _sweep(self) -> None:
        """Kill what the leader left behind, once: later the number may be another group's."""
        self._signal(signal.SIGKILL)
        self._is_swept = True

    def _signal(self, number: int) -> None:
        if not self._is_swept:
            with suppress(ProcessLookupError, PermissionError):  # gone; macOS says the second of zombies
                os.killpg(self.pid, number)


def _launched(program: str, words: list[str]) -> list[str]:
    if sys.platform != "linux":
        return words
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), program, *words]


def _open_log(path: Path) -> int:
    """Return a descriptor that appends; the file is ours alone, whatever the umask or an earlier file said."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        hint = "its directory must exist and be writable, and the file be ours"
        raise TelaError(f"engine log {path}: {error.strerror}", hint=hint, code="log_not_writable") from error
    return descriptor
