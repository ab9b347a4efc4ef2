"""The HTTP server under `/v1`: uvicorn on a socket bound here, without its signal handlers and its own logging."""

import contextlib
import logging
import socket
from collections.abc import Generator

import uvicorn

from node.http import DoorProtocol
from node.ingress.app import Ingress
from node.ingress.edge import Transfer
from registry.errors import TelaError

KEEP_ALIVE_S = 75  # above the idle time of common clients' pools, so that they close first
BACKLOG = 2048


class _Quiet(logging.Filter):
    """A broken-off answer is said once, by the ingress; the server's traceback adds nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], Transfer))


class HttpServer(uvicorn.Server):
    """Serves an ingress; the node stops it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The node's signal handling stays."""
        yield


def http_server(app: Ingress) -> HttpServer:
    """A server for `serve(sockets=[...])`."""
    logging.getLogger("uvicorn.error").addFilter(_Quiet())
    return HttpServer(
        uvicorn.Config(
            app,
            loop="none",
            http=DoorProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=30,
            backlog=BACKLOG,
        )
    )


def bind(address: str) -> socket.socket:
    """A listening socket at host:port.

    Raises:
        TelaError: when it cannot be had.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and int(port) < 65_536):
        raise TelaError(f"cannot serve HTTP at {address}: not HOST:PORT", code="bad_address")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), int(port)))
        listening.listen(BACKLOG)  # from here on clients wait instead of being refused
    except OSError as error:
        listening.close()
        raise TelaError(
            f"cannot serve HTTP at {address}: {error.strerror}",
            hint="another program has this port; name a free one, or 0",
            code="address_in_use",
        ) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Where a bound socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
