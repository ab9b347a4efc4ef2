"""Calls to a door over HTTP: small, synchronous, and clear about whose fault a failure was."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from registry.errors import TelaError
from registry.text import clean

TIMEOUT_S = 15.0
MAX_B = 4 * 1024 * 1024


class Caller:
    """Speaks to one door.

    Args:
        url: where it is, with or without /v1.
        secret: the API key; empty: none is sent.

    Raises:
        TelaError: the URL cannot be one, or it would send the key in the clear beyond this host.
    """

    def __init__(self, url: str, secret: str = "", *, insecure: bool = False) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        parts = _split(self.url)
        if parts is None:
            raise TelaError(f"{clean(url)} is no URL of a door", hint="like https://llm.example.org", code="usage")
        is_local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
        if secret and parts.scheme == "http" and not is_local and not insecure:
            raise TelaError(
                f"{self.url} is plain HTTP: everybody on the way would read the key",
                hint="use https://, or --insecure-http if the network is yours",
                code="insecure",
            )
        self._parts = parts
        self.secret = secret

    def get(self, path: str) -> dict[str, Any]:
        """A JSON answer.

        Raises:
            TelaError: saying whose fault it was.
        """
        return self._json("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """As `get`, with a JSON body."""
        return self._json("POST", path, body)

    def events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer, until [DONE].

        Raises:
            TelaError: it ended without a proper end, or with an error.
        """
        with self._asked("POST", path, body, timeout_s=600.0) as response:
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                text = line[5:].strip()
                if text == b"[DONE]":
                    return
                event = _object(text)
                if "error" in event:
                    raise _refusal(500, event)
                yield event
        raise TelaError(
            "the answer broke off", hint="call again; if it happens again, tell the operator", code="broken_off"
        )

    def _json(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        with self._asked(method, path, body) as response:
            return _object(response.read(MAX_B))

    @contextmanager
    def _asked(
        self, method: str, path: str, body: dict[str, Any] | None, *, timeout_s: float = TIMEOUT_S
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection(timeout_s)
        headers = {"Content-Type": "application/json", "User-Agent": "tela"}
        if self.secret:
            headers["Authorization"] = f"Bearer {self.secret}"
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"{self._parts.path}{path}", body=data, headers=headers)
            with connection.getresponse() as response:
                if response.status >= 400:
                    raise _refusal(response.status, _object(response.read(MAX_B), lenient=True))
                yield response
        except ssl.SSLError as error:
            raise TelaError(
                f"{self.url}: its certificate is not accepted: {clean(str(error.reason or error))}",
                hint="set SSL_CERT_FILE to the certificate of your site's authority",
                code="tls",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise TelaError(
                f"{self.url} does not answer: {clean(str(error) or type(error).__name__)}",
                hint="check the URL; on the ingress, tela status says whether its door is open",
                code="no_answer",
            ) from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _split(url: str) -> SplitResult | None:
    """The parts of a door's URL; None when it is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    is_one = parts.scheme in {"http", "https"} and parts.hostname and url.isascii() and url.isprintable()
    return parts if is_one and " " not in url and not (parts.query or parts.fragment) else None


def _object(raw: bytes, *, lenient: bool = False) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if lenient:
        return {}
    raise TelaError("the answer is not one of tela's", hint="check the URL", code="bad_answer")


def _refusal(status: int, answer: dict[str, Any]) -> TelaError:
    said = answer.get("error")
    error = said if isinstance(said, dict) else {}
    message = clean(str(error.get("message") or f"the door answered {status}"), 400)
    hint = clean(str(error.get("hint") or ""), 400)
    if status == 401 and not hint:
        hint = "the key may be revoked or expired: tela whoami shows which one is used, tela login URL takes another"
    return TelaError(message, hint=hint, code=str(error.get("code") or status))
