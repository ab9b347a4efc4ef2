"""The control socket: a unix socket only its owner may use, and the HTTP server on it.

The file's mode keeps others out; whoever connects is checked again, since a directory may be opened by mistake.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from pathlib import Path

import uvicorn

from node.control.app import ControlApp
from node.control.wire import Broken
from node.http import DoorProtocol
from node.places import make_private
from node.server import HttpServer
from node.unixsocket import bind_unix

log = logging.getLogger(f"tela.{__name__}")

BACKLOG = 512  # scripts ask many questions at once; beyond, the kernel says try again
GRACE_S = 1
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class _Quiet(logging.Filter):
    """An answer that broke was said once, where it broke."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], Broken))


class _OwnOnly(DoorProtocol):
    """One connection of a face; of another user's it is closed at once."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A face connected."""
        if (uid := peer_uid(transport.get_extra_info("socket"))) != os.geteuid():
            log.warning("another user at the control socket", extra={"uid": uid})
            transport.abort()
            return
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came; from whoever was turned away they count for nothing."""
        if self.transport is not None:
            super().data_received(data)

    def eof_received(self) -> None:
        """It says no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The face is gone."""
        if self.transport is not None:
            super().connection_lost(exc)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a unix socket; -1 when the kernel does not say."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return -1
    return int(_CREDENTIALS.unpack(raw)[1])


class ControlServer:
    """A control socket that is served. Mutable: it is closed once.

    Args:
        app: what answers.
        path: where the socket is to be; its directory is made private.

    Raises:
        TelaError: the place cannot be had.
    """

    def __init__(self, app: ControlApp, path: Path) -> None:
        self.path = path
        self._app = app
        make_private(path.parent)
        self._listening = bind_unix(path, BACKLOG)
        self._inode = path.stat().st_ino
        logging.getLogger("uvicorn.error").addFilter(_QUIET)
        self._server = HttpServer(
            uvicorn.Config(
                app,
                loop="none",
                http=_OwnOnly,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=GRACE_S,
                backlog=BACKLOG,
            )
        )

    async def serve(self) -> None:
        """Answer until `close`."""
        try:
            await self._server.serve(sockets=[self._listening])
        finally:
            self._remove()

    def close(self) -> None:
        """Take nothing new, end what goes on; then `serve` ends."""
        self._app.close()
        self._server.should_exit = True

    def _remove(self) -> None:
        self._listening.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:  # another start may have taken the place
                self.path.unlink()


_QUIET = _Quiet()
