"""The console's way to the control API: HTTP/1.1 on a unix socket, standard library only, since every look pays for it.

It refuses answers that are not what a node of this release sends, and never waits without a deadline.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

from registry.errors import TelaError

ANSWER_S = 10.0
FIND_S = 2.0
CONNECTS, AGAIN_S = 20, 0.05  # tries while a node's queue is full, and the wait between them
QUIET_S = 45.0  # a stream sends a heartbeat each 15 s
MAX_HEAD_B = 32_768
MAX_ANSWER_B = 256 * 1024 * 1024  # a view of thousands of nodes is some tens of MB
MAX_LINE_B = MAX_ANSWER_B
MAX_SHOWN = 4
_READ_B = 262_144


class HasRuntime(Protocol):
    """Where control sockets are (`node.places.Places`)."""

    @property
    def runtime(self) -> Path:
        """Their directory."""


class Control:
    """One node's control API. Each question is a connection of its own.

    Args:
        path: its socket.
        about: its answer to `/self`, when it was asked already.
    """

    def __init__(self, path: Path, about: dict[str, Any] | None = None) -> None:
        self.path = path
        self._about = about

    @property
    def about(self) -> dict[str, Any]:
        """The answer to `/self`, asked for once."""
        if self._about is None:
            self._about = self.get("/self")
        return self._about

    def get(self, target: str, *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The object at a target, such as `/view`.

        Raises:
            TelaError: what the node says is wrong, or that it does not answer.
        """
        with _asked(self.path, "GET", target, b"", timeout_s) as answer:
            return _object(b"".join(answer.body()))

    def post(self, target: str, body: object, *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The answer to an object.

        Raises:
            TelaError: as `get`.
        """
        with _asked(self.path, "POST", target, json.dumps(body).encode(), timeout_s) as answer:
            return _object(b"".join(answer.body()))

    def stream(self, target: str, *, timeout_s: float = QUIET_S) -> Iterator[dict[str, Any]]:
        """The objects of a stream of lines, each as it comes; `timeout_s` bounds the silence between two.

        Raises:
            TelaError: as `get`, or the stream broke.
        """
        with _asked(self.path, "GET", target, b"", timeout_s) as answer:
            for line in _lines(answer.body()):
                yield _object(line)

    def raw(self, target: str, body: object, *, timeout_s: float = QUIET_S) -> Iterator[bytes]:
        """The bytes of an answer that is no JSON, such as that of `/ask`, as they come.

        Raises:
            TelaError: as `get`, or the answer broke.
        """
        with _asked(self.path, "POST", target, json.dumps(body).encode(), timeout_s) as answer:
            yield from answer.body()


class _Answer:
    """An answer whose head was read. Mutable: reads its socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._rest = b""
        self.status = 0
        self._length: int | None = None
        self._is_chunked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read_head(self) -> None:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > MAX_HEAD_B:
                raise _no_node("its answer has no end")
            self._fill()
        first, *lines = self._rest[:end].decode("latin-1").split("\r\n")
        self._rest = self._rest[end + 4 :]
        words = first.split(" ")
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise _no_node("its answer is no HTTP")
        self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(":")
            self._note(name.lower(), value.strip())

    def _note(self, name: str, value: str) -> None:
        if name == "content-length" and value.isdigit():
            self._length = int(value)
        elif name == "transfer-encoding":
            self._is_chunked = value.lower() == "chunked"

    def body(self) -> Iterator[bytes]:
        return self._chunks() if self._is_chunked else self._whole(self._length or 0)

    def _whole(self, left: int) -> Iterator[bytes]:
        if left > MAX_ANSWER_B:
            raise _no_node(f"its answer has {left} bytes")
        while left:
            if not self._rest:
                self._fill()
            part, self._rest = self._rest[:left], self._rest[left:]
            left -= len(part)
            yield part

    def _chunks(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            yield from self._whole(size)
            if self._line():
                raise _no_node("its answer is cut badly")
        self._line()

    def _chunk_size(self) -> int:
        text = self._line().partition(b";")[0].strip()
        try:
            return int(text, 16)
        except ValueError:
            raise _no_node("its answer is cut badly") from None

    def _line(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            if len(self._rest) > MAX_HEAD_B:
                raise _no_node("its answer has no end")
            self._fill()
        line, self._rest = self._rest[:end], self._rest[end + 2 :]
        return line

    def _fill(self) -> None:
        try:
            more = self._socket.recv(_READ_B)
        except TimeoutError:
            raise _no_answer() from None
        except OSError as error:
            raise _no_node(error.strerror or "the connection broke") from None
        if not more:
            raise _no_node("the connection ended early")
        self._rest += more


def _asked(path: Path, method: str, target: str, body: bytes, timeout_s: float) -> _Answer:
    connection = _connect(path, timeout_s)
    answer = _Answer(connection)
    try:
        head = f"{method} {target} HTTP/1.1\r\nHost: tela\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        with suppress(BrokenPipeError):  # refused before it was read whole: the answer says why
            connection.sendall(head.encode("ascii", "replace") + body)
        answer.read_head()
        if answer.status >= 400:
            raise _error(b"".join(answer.body()), answer.status)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            raise _no_node(error.strerror or "the connection broke") from None
        raise
    return answer


def _connect(path: Path, timeout_s: float) -> socket.socket:
    try:
        for _ in range(CONNECTS):
            with suppress(BlockingIOError):  # its queue is full for a moment
                return _connected(path, timeout_s)
            time.sleep(AGAIN_S)
    except OSError as error:
        raise _no_node(error.strerror or str(error)) from None
    raise _no_answer()


def _connected(path: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for part in parts:
        start = len(held)
        held += part
        if b"\n" not in part:
            if start + len(part) > MAX_LINE_B:
                raise _no_node("a line has no end")
            continue
        *whole, rest = held.split(b"\n")
        held = bytearray(rest)
        yield from (bytes(line) for line in whole if line)
    if held:
        raise _no_node("a line was cut off")


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _no_node("its answer is no JSON") from None
    if not isinstance(value, dict):
        raise _no_node("its answer is no JSON object")
    return value


def _error(text: bytes, status: int) -> TelaError:
    try:
        error = json.loads(text)["error"]
        return TelaError(str(error["message"]), hint=str(error["hint"]), code=str(error["code"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return _no_node(f"it answered {status}")


def _no_node(why: str) -> TelaError:
    return TelaError(f"no talking to the node: {why}", hint="is it running? `tela start` starts one", code="no_node")


def _no_answer() -> TelaError:
    return TelaError(
        "the node does not answer",
        hint="it may be stopped or overloaded: look at its log, or stop it with `tela stop --now`",
        code="no_answer",
    )


def find(places: HasRuntime, fabric: str, *, fabric_id: str = "", accounts: bool = False) -> Control:
    """The node of a fabric that runs here for this user; of several the one with the lowest slot.

    Args:
        places: where sockets are.
        fabric: its name.
        fabric_id: its id in hex: another one may be called the same, in another HOME; empty: its name will do.
        accounts: rather one that holds the accounts shelf, if there is one.

    Raises:
        TelaError: none, or none that answers, or one of another fabric (`other_fabric`).
    """
    silent: list[str] = []
    others: list[str] = []
    first: Control | None = None
    for path in _sockets(places.runtime, fabric):
        control = Control(path)
        try:
            about = control.get("/self", timeout_s=FIND_S)
            if about["fabric"]["name"] != fabric:
                continue
            if fabric_id and about["fabric"]["id"] != fabric_id:
                others.append(path.name)
                continue
            first = first or Control(path, about)
            if not accounts or about["accounts"]:
                return Control(path, about)
        except (KeyError, TypeError):
            silent.append(path.name)
        except TelaError as error:
            if error.code == "no_answer":
                silent.append(path.name)
    if first is not None:
        return first
    raise _none_of(fabric, silent, others)


def _none_of(fabric: str, silent: list[str], others: list[str]) -> TelaError:
    if silent:
        return TelaError(
            f"a node of fabric {fabric} runs here but does not answer: {', '.join(silent[:MAX_SHOWN])}",
            hint="look at its log, or stop it with `tela stop --now`",
            code="no_answer",
        )
    if others:
        return TelaError(
            f"the node that runs here as {fabric} belongs to another fabric of that name: {others[0]}",
            hint="it was started with another HOME or XDG_CONFIG_HOME: use that one, or start a node of this fabric: "
            "tela start --role observer --detach",
            code="other_fabric",
        )
    return TelaError(
        f"no node of fabric {fabric} runs here",
        hint="tela start --role observer --detach starts one that only looks",
        code="no_node",
    )


def _sockets(runtime: Path, fabric: str) -> list[Path]:
    """Sockets that may be a fabric's, this user's own only; a fabric's name may be the beginning of another's."""
    try:
        entries = [entry for entry in os.scandir(runtime) if _is_ours(entry, fabric)]
    except OSError:
        return []
    return [Path(entry.path) for entry in sorted(entries, key=lambda entry: (_slot(entry.name), entry.name))]


def _is_ours(entry: "os.DirEntry[str]", fabric: str) -> bool:
    if not (entry.name.startswith(f"{fabric}-") and entry.name.endswith(".sock") and _slot(entry.name) >= 0):
        return False
    try:
        return entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError:
        return False


def _slot(name: str) -> int:
    slot = name.removesuffix(".sock").rpartition("-")[2]
    return int(slot) if slot.isdigit() and slot.isascii() else -1
