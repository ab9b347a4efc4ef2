"""Logs as JSON lines, on stderr or in a file that is kept within bounds: a constant event and its fields.

One line whatever is in them. A log that cannot be written stops nothing; how many lines were lost is written later.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

FILE_B = 10 * 2**20
KEPT = 5  # files beside the one that is written

_KNOWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {"message", "asctime", "taskName"}
_OWN = frozenset({"at", "level", "from", "event"})
_STDOUT, _STDERR = 1, 2


class JsonLines(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {name: value for name, value in record.__dict__.items() if name not in _KNOWN}
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class RotatingLog(RotatingFileHandler):
    """A log file of this account alone: `FILE_B` bytes, then a new one, `KEPT` old ones. Mutable.

    Attributes:
        lost: lines that could not be written since the last one that could.
    """

    def __init__(self, path: Path, *, file_b: int = FILE_B, kept: int = KEPT) -> None:
        self.lost = 0
        self._takes_output = False
        super().__init__(path, maxBytes=file_b, backupCount=kept, encoding="utf-8")
        self.setFormatter(JsonLines())

    def take_output(self) -> None:
        """Let what this process writes past the log, to stdout and stderr, end in the file too."""
        self._takes_output = True
        if self.stream is not None:
            self._redirect(self.stream)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and before long how many could not be written."""
        before = self.lost
        super().emit(record)
        if before and self.lost == before:
            self.lost = 0
            note = logging.LogRecord(record.name, logging.WARNING, "", 0, "log lines lost", None, None)
            note.__dict__["count"] = before
            super().emit(note)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the library's signature
        """Count it: stderr, where the library would complain, is most likely the same full disk."""
        self.lost += 1

    def _open(self) -> TextIO:  # type: ignore[override]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.baseFilename, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        stream = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
        if self._takes_output:
            self._redirect(stream)
        return stream

    def _redirect(self, stream: TextIO) -> None:
        for output in (_STDOUT, _STDERR):
            os.dup2(stream.fileno(), output)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Configure logging for this process."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    _configure(handler, level)


def log_to_file(path: Path, level: int = logging.INFO) -> RotatingLog:
    """Configure logging for this process into a file, which is made.

    Raises:
        OSError: when the file cannot be made.
    """
    handler = RotatingLog(path)
    _configure(handler, level)
    return handler


def narrate(event: Mapping[str, object]) -> None:
    """Log what a node says to whoever started it, once nobody listens any more."""
    clashing = _KNOWN | _OWN
    fields = {f"{name}_" if name in clashing else name: value for name, value in event.items() if name != "event"}
    logging.getLogger("tela.node").info("%s", event.get("event", "said"), extra=fields)


def _configure(handler: logging.Handler, level: int) -> None:
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("tela").setLevel(level)
