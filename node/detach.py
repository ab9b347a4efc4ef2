"""Runs something in the background and tells whoever started it how that went, until it is up.

It refuses nothing a terminal would take away: a new session, no input, output in a log. It does not outlive what ends
every process here, such as a Slurm job; `node.platform.staying` knows what does.
"""

import contextlib
import io
import json
import logging
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from node.logs import RotatingLog, log_to_file, narrate
from registry.errors import TelaError
from registry.text import clean

WAIT_S = 60.0
WORD_B = 65_536  # the longest thing said at once

log = logging.getLogger(f"tela.{__name__}")


class Narration(io.TextIOBase):
    """A stream that goes to whoever waits, line by line, and into the log once nobody does. Mutable."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What a terminal's stream would say."""
        return "utf-8"

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Say something."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)

    def flush(self) -> None:
        """Say what was begun, without the end of a line."""
        if self._begun and self._pipe is not None:
            begun, self._begun = self._begun, ""
            self._tell(begun)

    def leave(self) -> None:
        """Nobody waits any more."""
        self.flush()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _say(self, line: str) -> None:
        if self._pipe is None or not self._tell(f"{line}\n"):
            narrate(_event_of(line))

    def _tell(self, text: str) -> bool:
        assert self._pipe is not None
        try:
            spoken = text.encode(errors="backslashreplace")
            return os.write(self._pipe, spoken) == len(spoken)
        except BlockingIOError:  # whoever waits was stopped, or does not read
            return False
        except BrokenPipeError:
            os.close(self._pipe)
            self._pipe = None
            return False


class Background:
    """The new process as what runs in it sees it. Mutable; used once."""

    def __init__(self, out: int, err: int, word: int) -> None:
        self._word = word
        self._streams = (Narration(out), Narration(err))
        self._log: RotatingLog | None = None
        self.is_up = False
        sys.stdout, sys.stderr = self._streams

    def log_to(self, path: Path) -> None:
        """Log into a file from now on; to be called once the directory is this process's own.

        Raises:
            TelaError: when the file cannot be made.
        """
        try:
            self._log = log_to_file(path)
        except OSError as error:
            raise TelaError(
                f"cannot write {path}: {error.strerror}", hint="make room there, or set TELA_HOME", code="log"
            ) from error
        self._log.take_output()
        self._send({"log": str(path)})

    def ready(self, event: Mapping[str, object] | None = None) -> None:  # noqa: ARG002 - what a narration is given
        """It is up: whoever waits may go."""
        for stream in self._streams:
            stream.leave()
        self.is_up = True
        self._send({"ready": True})

    def fail(self, error: TelaError) -> None:
        """It will not come up; or it did, and ends with this."""
        if self._log is not None:
            log.error("ended", extra={"text": error.message, "hint": error.hint, "code": error.code})
        self._send({"message": error.message, "hint": error.hint, "code": error.code})

    def shown(self, error: BaseException) -> TelaError:
        """What may be shown of an error; the rest of it goes into the log."""
        if isinstance(error, BaseExceptionGroup):
            ours, others = error.split(TelaError)
            if ours is not None and others is None:
                return self.shown(ours.exceptions[0])
        if isinstance(error, TelaError):
            return error
        if self._log is not None:
            log.error("broken", extra={"traceback": "".join(traceback.format_exception(error))})
        where = f"see {self._log.baseFilename}" if self._log else "start it without --detach to see where"
        return TelaError(clean(f"it broke: {type(error).__name__}: {error}"), hint=where, code="broken")

    def ended(self, code: int) -> None:
        """It ends."""
        for stream in self._streams:
            stream.leave()
        self._send({"exit": code})

    def began(self) -> None:
        """Say which process this is."""
        self._send({"pid": os.getpid()})

    def _send(self, word: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._word, json.dumps(word).encode() + b"\n")


def detached(run: Callable[[Background], None], *, now: Callable[[], float], wait_s: float = WAIT_S) -> int:
    """Run it in a process of its own and wait until it is up; returns the code to exit with.

    What must belong to that process, such as a lock with its pid, is to be taken inside `run`.

    Args:
        run: what to do; it says when it is up, and returns when it is over.
        now: monotonic seconds.
        wait_s: how long to wait.

    Raises:
        TelaError: it failed, or is not up in time (code "slow"; then it goes on).
    """
    ends = [os.pipe() for _ in range(3)]
    sys.stdout.flush()
    sys.stderr.flush()
    first = os.fork()
    if first == 0:
        _into_background(run, ends)
    for _, writing in ends:
        os.close(writing)
    os.waitpid(first, 0)
    waiting = _Waiting(*(reading for reading, _ in ends))
    try:
        return waiting.until(now() + wait_s, now, wait_s)
    finally:
        waiting.close()


def _into_background(run: Callable[[Background], None], ends: list[tuple[int, int]]) -> NoReturn:
    """The rest of the first child's life, and all of the second's. Never returns into the caller's frames."""
    code = 1
    try:
        os.setsid()
        if os.fork():  # whoever leads a session might get a terminal again; its child cannot
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        for reading, writing in ends:
            os.close(reading)
            os.set_blocking(writing, False)
        code = _run(run, Background(*(writing for _, writing in ends)))
    finally:
        logging.shutdown()
        os._exit(code)


def _run(run: Callable[[Background], None], background: Background) -> int:
    background.began()
    code = 1
    try:
        run(background)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        if isinstance(end.code, str):
            background.fail(TelaError(end.code))
    except BaseException as error:  # noqa: BLE001 - the edge of a process, as the command line is another
        background.fail(background.shown(error))
    background.ended(code)
    return code


class _Waiting:
    """Whoever started it, waiting. Mutable; lives for one start."""

    def __init__(self, out: int, err: int, word: int) -> None:
        self._out = {out: sys.stdout, err: sys.stderr}
        self._word = word
        self._words = b""
        self._said: dict[str, object] = {}
        self._ready = selectors.DefaultSelector()
        for reading in (out, err, word):
            os.set_blocking(reading, False)
            self._ready.register(reading, selectors.EVENT_READ)

    def until(self, deadline: float, now: Callable[[], float], wait_s: float) -> int:
        """Pass on what it says until it is up, over or late."""
        try:
            while not self._is_settled():
                left = deadline - now()
                if left <= 0:
                    raise TelaError(f"not up after {wait_s:g} s; it goes on, {self._where()}", hint=_END, code="slow")
                for key, _ in self._ready.select(left):
                    self._read(key.fd)
        except KeyboardInterrupt:
            pid = self._said.get("pid")
            if isinstance(pid, int):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            raise
        for stream in self._out:
            self._read(stream)
        return self._code()

    def close(self) -> None:
        """Let go of the pipes."""
        self._ready.close()
        for reading in (*self._out, self._word):
            os.close(reading)

    def _is_settled(self) -> bool:
        return not {"ready", "exit", "gone"}.isdisjoint(self._said)

    def _code(self) -> int:
        if "message" in self._said:
            message, hint, code = (str(self._said.get(name, "")) for name in ("message", "hint", "code"))
            raise TelaError(message, hint=hint, code=code)
        if "ready" in self._said:
            sys.stderr.write(f"in the background, {self._where()}; {_END}\n")
            return 0
        if "exit" in self._said:
            left = self._said["exit"]
            return left if isinstance(left, int) else 1
        raise TelaError("it ended before it was up, without a word", hint=f"see {self._where()}", code="gone")

    def _where(self) -> str:
        at = f"log {self._said['log']}" if "log" in self._said else "without a log yet"
        return f"pid {self._said.get('pid', '?')}, {at}"

    def _read(self, reading: int) -> None:
        """Take everything there is to read."""
        while True:
            try:
                chunk = os.read(reading, WORD_B)
            except BlockingIOError:
                return
            if reading == self._word:
                self._heard(chunk)
            else:
                self._out[reading].write(chunk.decode(errors="replace"))
                self._out[reading].flush()
            if not chunk:
                with contextlib.suppress(KeyError):
                    self._ready.unregister(reading)
                return

    def _heard(self, chunk: bytes) -> None:
        *lines, self._words = (self._words + chunk).split(b"\n")
        for line in lines:
            self._said |= json.loads(line)
        if not chunk:
            self._said.setdefault("gone", True)


_END = "tela stop ends it"


def _event_of(line: str) -> dict[str, object]:
    """A line of narration as an event: itself when it is one as JSON."""
    with contextlib.suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict) and "event" in event:
            return event
    return {"event": "said", "text": line}
