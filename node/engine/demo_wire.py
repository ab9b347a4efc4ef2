"""The demo engine's sockets: uvicorn with a way to break a connection and to notice a broken one.

An ASGI application cannot reach its transport and learns of a disconnect only by waiting for it.
The protocol below is uvicorn's own plus both: it puts itself in the scope, and cancels the task
that serves a request when its client goes. Cheaper than a second task per request, and at once.
"""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION: Final = "tela.wire"  # of the scope; its "protocol" is the DemoProtocol
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)  # close() drops what is queued and sends RST
CRASH_CODE: Final = 13
_BACKLOG: Final = 2048  # uvicorn's


class DemoProtocol(HttpToolsProtocol):
    """One connection. The application sets `serving` while it works on a request."""

    serving: asyncio.Task[object] | None = None  # cancelled when the connection is lost
    is_lost = False
    is_cut = False  # we broke it ourselves

    def on_message_begin(self) -> None:
        """Begin a request; uvicorn makes its scope here."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"protocol": self}}

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the loss and stop the work for it."""
        super().connection_lost(exc)
        self.is_lost = True
        if self.serving is not None:
            self.serving.cancel()

    async def cut(self) -> NoReturn:
        """Close after the bytes already written, without ending the body."""
        self.is_cut = True
        self.transport.close()
        await hang()

    async def reset(self) -> NoReturn:
        """Close with RST."""
        self.is_cut = True
        # uvloop hides setsockopt; a duplicate descriptor reaches the same socket.
        descriptor = os.dup(self.transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=descriptor) as duplicate:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.transport.abort()
        await hang()

    async def crash(self) -> NoReturn:
        """End the process at once, after the bytes already written."""
        await asyncio.sleep(0)  # uvloop writes at the end of an iteration
        while self.transport.get_write_buffer_size() and not self.is_lost:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        os._exit(CRASH_CODE)


async def hang() -> NoReturn:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("a future nobody holds was set")


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        OSError: the port is in use, or the address is not ours.
    """
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # here, since this too may find the port in use
    except OSError:
        listener.close()
        raise
    return listener


class DemoServer(uvicorn.Server):
    """A uvicorn server of one application on one socket, which says when it listens."""

    def __init__(self, app: ASGI3Application, on_listening: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=DemoProtocol,  # httptools
                loop="uvloop",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                timeout_keep_alive=75,
                proxy_headers=False,
                server_header=False,
                date_header=False,  # answers are the same bytes in every run
            )
        )
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop at once and drop every connection, as an engine that is told to end does."""
        for accepting in self.servers:
            accepting.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports finish closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A server inside this process."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://{self.host}:{self.port}"


@asynccontextmanager
async def listening(app: ASGI3Application, on_listening: Callable[[], None]) -> AsyncIterator[Listening]:
    """Serve an application in the running loop on a free port of 127.0.0.1.

    Leaving the context drops every connection, as the death of an engine would.
    """
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = DemoServer(app, on_listening)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([listener])
    try:
        yield Listening(host="127.0.0.1", port=port)
    finally:
        await server.shutdown([listener])
