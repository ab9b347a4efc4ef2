"""The HTTP server under `/v1`: uvicorn on a socket bound here, without its signal handlers and its own logging."""

import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import uvicorn

from node.http import DoorProtocol
from node.ingress.app import Ingress
from node.ingress.edge import Transfer
from node.unixsocket import bind_unix, path_of, remover
from registry.errors import TelaError

KEEP_ALIVE_S = 75  # above the idle time of common clients' pools, so that they close first
BACKLOG = 2048
UNIX = "unix:"
# Of TLS 1.2, which some clients still need: forward secret and authenticated. TLS 1.3 has no others.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_REMEDIES = {
    errno.EADDRINUSE: "another program has this port; name a free one, or 0",
    errno.EACCES: "ports below 1024 are the system's; name a higher one",
}


class _Quiet(logging.Filter):
    """A broken-off answer is said once, by the ingress; the server's traceback adds nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], Transfer))


_QUIET = _Quiet()  # added once, however many doors there are


class HttpServer(uvicorn.Server):
    """Serves an ingress; the node stops it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The node's signal handling stays."""
        yield


class Tls(NamedTuple):
    """Where the certificate of a door and its key lie."""

    cert: str
    key: str


def http_server(app: Ingress, *, tls: Tls | None = None) -> HttpServer:
    """A server for `serve(sockets=[...])`.

    Args:
        app: what answers.
        tls: its certificate; None: plain HTTP.

    Raises:
        TelaError: the certificate cannot be used.
    """
    logging.getLogger("uvicorn.error").addFilter(_QUIET)
    if tls is not None:
        _check(tls)
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
            proxy_headers=False,  # `node.ingress.exposure` reads them, and knows whom to believe
            ssl_certfile=tls.cert if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ciphers=CIPHERS,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=30,
            backlog=BACKLOG,
        )
    )


def _check(tls: Tls) -> None:
    for flag, path in (("--tls-cert", tls.cert), ("--tls-key", tls.key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise TelaError(
                f"{flag} {path}: {error.strerror}", hint="give a PEM file you can read", code="tls"
            ) from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise TelaError(
            f"--tls-cert {tls.cert} and --tls-key {tls.key} do not go together: {_reason(error)}",
            hint="the chain in PEM, leaf first, and its key without a passphrase",
            code="tls",
        ) from error


def _reason(error: Exception) -> str:
    """The library's word without its line numbers; often it has none."""
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else "one is not PEM, or needs a passphrase"


def bind(address: str) -> socket.socket:
    """A listening socket at HOST:PORT or unix:PATH.

    Raises:
        TelaError: when it cannot be had.
    """
    if address.startswith(UNIX):
        return bind_unix(Path(address.removeprefix(UNIX)), BACKLOG)
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise TelaError(f"cannot serve HTTP at {address}: not HOST:PORT or unix:PATH", code="bad_address")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), int(port)))
        listening.listen(BACKLOG)  # from here on clients wait instead of being refused
    except (OSError, UnicodeError) as error:
        listening.close()
        code = error.errno if isinstance(error, OSError) else None
        is_taken = code == errno.EADDRINUSE
        raise TelaError(
            f"cannot serve HTTP at {address}: {error.strerror if isinstance(error, OSError) else 'no name of a host'}",
            hint=_REMEDIES.get(code or 0, "name an address of this host"),
            code="address_in_use" if is_taken else "bad_address",
        ) from error
    return listening


def closer(listening: socket.socket) -> Callable[[], None]:
    """What closes a socket that `bind` made, and removes its file when it has one."""
    remove = remover(path_of(listening)) if listening.family == socket.AF_UNIX else None

    def close() -> None:
        listening.close()
        if remove is not None:
            remove()

    return close


def url_of(listening: socket.socket, *, is_tls: bool = False) -> str:
    """Where a bound socket is reached; of a unix socket its path."""
    if listening.family == socket.AF_UNIX:
        return f"{UNIX}{path_of(listening)}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
