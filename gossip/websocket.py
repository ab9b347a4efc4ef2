"""Links over websockets: the library's Sans-I/O layer on `asyncio.Protocol`.

Its asyncio layer costs about twice the CPU per message. No compression (ciphertext does not compress, and a
compressed message is a bomb), no library pings (liveness is the link's), binary messages only,
never fragmented.
"""

import asyncio
import logging
import socket
import ssl
from typing import cast
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from gossip.transport import MAX_MESSAGE_B, PATH, Endpoint, MakeEndpoint
from registry.errors import TelaError

log = logging.getLogger(f"tela.{__name__}")

WRITE_HIGH_B = 65_536  # what the kernel has not taken yet; liveness queues behind this and the kernel's own buffer
WRITE_LOW_B = 16_384
DIAL_S = 5.0
UPGRADE_S = 5.0  # a connection that has not become a websocket by then is closed
MAX_PINGS = 1_000  # this release sends none; a peer that floods is dropped


class _Websocket(asyncio.Protocol):
    """One websocket connection under an endpoint; satisfies `gossip.transport.Transport`."""

    def __init__(self, protocol: Protocol, endpoint: Endpoint) -> None:
        self._protocol = protocol
        self.endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._pings = 0
        self._timer: asyncio.TimerHandle | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_B, low=WRITE_LOW_B)
        _tune(transport.get_extra_info("socket"))
        self._timer = asyncio.get_running_loop().call_later(UPGRADE_S, self._fail, "no websocket in time")
        if isinstance(self._protocol, ClientProtocol):
            self._protocol.send_request(self._protocol.connect())
            self._flush()

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            else:
                self._upgrade(event)
        self._flush()
        if protocol.parser_exc is not None and protocol.state is not OPEN:
            self._fail(f"broke the websocket protocol: {protocol.parser_exc}")

    def eof_received(self) -> None:
        self._protocol.receive_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        reason = self._reason or (f"connection lost: {exc}" if exc else "connection closed")
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(reason))
            self.opened.exception()  # nobody may be waiting any more
        self.endpoint.closed(reason)  # even where it never was connected: a stranger that hangs up is over at once
        self._transport = None

    def pause_writing(self) -> None:
        self.endpoint.pause_writing()

    def resume_writing(self) -> None:
        self.endpoint.resume_writing()

    # gossip.transport.Transport

    def send(self, message: bytes) -> None:
        """Send one binary message."""
        if self._transport is None or self._protocol.state is not OPEN or self._transport.is_closing():
            return
        self._protocol.send_binary(message)
        self._transport.writelines(self._protocol.data_to_send())

    def close(self) -> None:
        """Close after what was sent has left."""
        if self._transport is not None:
            self._reason = self._reason or "closed"
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._reason = self._reason or "closed"
            self._transport.abort()

    def peer_address(self) -> str:
        """Address and port of the other end."""
        address = self._transport.get_extra_info("peername") if self._transport else None
        return f"{address[0]}:{address[1]}" if address else "closed"

    # inside

    def _upgrade(self, event: object) -> None:
        protocol = self._protocol
        if isinstance(protocol, ServerProtocol) and isinstance(event, Request):
            known = event.path == PATH
            response = protocol.accept(event) if known else protocol.reject(404, "tela takes links elsewhere\n")
            protocol.send_response(response)
            self._flush()
        if isinstance(event, Request | Response) and protocol.state is OPEN:
            assert self._timer is not None
            self._timer.cancel()
            if not self.opened.done():
                self.opened.set_result(None)
                self.endpoint.connected(self)
        else:
            self._fail(f"no websocket: {protocol.handshake_exc or 'refused'}")

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY and frame.fin:
            self.endpoint.message_received(bytes(frame.data))
        elif frame.opcode in {Opcode.PING, Opcode.PONG}:
            self._pings += 1
            if self._pings > MAX_PINGS:
                self._fail("too many websocket pings")
        elif frame.opcode is not Opcode.CLOSE:
            self._fail("sent text or a fragmented message")

    def _flush(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        log.debug("websocket dropped", extra={"reason": reason, "peer": self.peer_address()})
        if self._transport is not None:
            self._transport.abort()


class WebsocketListener:
    """A listening socket; `urls` names where, with the port that was really taken."""

    def __init__(self, server: asyncio.Server, host: str) -> None:
        self._server = server
        port = server.sockets[0].getsockname()[1]
        self.urls = (f"ws://{host}:{port}",)

    def close(self) -> None:
        """Take no more connections; the ones that are up stay."""
        self._server.close()


class WebsocketNetwork:
    """The real network; satisfies `gossip.transport.Network`."""

    async def listen(self, address: str, make: MakeEndpoint) -> WebsocketListener:
        """Take websocket connections at host:port, [v6]:port included."""
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit() and int(port) < 65_536):
            raise TelaError(f"cannot listen for links at {address}: not HOST:PORT", code="bad_address")
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: _Websocket(ServerProtocol(max_size=MAX_MESSAGE_B), make()),
                host.strip("[]"),
                int(port),
            )
        except OSError as error:
            raise TelaError(
                f"cannot listen for links at {address}: {error}",
                hint="another program has this port; name a free one, or 0",
                code="address_in_use",
            ) from error
        return WebsocketListener(server, host)

    async def dial(self, url: str, make: MakeEndpoint) -> Endpoint:
        """Connect to a node's listener; wss goes through TLS, which TLK1 does not rely on."""
        try:
            uri = parse_uri(url.rstrip("/") + PATH)
        except (InvalidURI, ValueError) as error:  # the latter from a port or an IPv6 address that is none
            raise ConnectionError(f"not a link address: {url}") from error
        tls = ssl.create_default_context() if urlsplit(url).scheme == "wss" else None
        async with asyncio.timeout(DIAL_S):
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Websocket(ClientProtocol(uri, max_size=MAX_MESSAGE_B), make()),
                    uri.host,
                    uri.port,
                    ssl=tls,
                )
            except UnicodeError as error:  # a name no resolver would take: the url is another node's word
                raise ConnectionError(f"not a link address: {url}") from error
            try:
                await connection.opened
            except BaseException:
                connection.abort()
                raise
        return connection.endpoint


def _tune(sock: socket.socket | None) -> None:
    if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 16_384)
