"""The HTTP edge: reading one request within limits, and writing answers. Raw ASGI, no framework."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from node.ingress.openai import JSON_TYPE, Refusal, error_body, retry_after
from node.tunnel import MAX_BODY_B

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_IN_FLIGHT_B = 512 * 1024 * 1024  # request bodies this process holds at once; beyond, 503
DISCARD_S = 10.0
SMALL_B = 4_096  # of the requests that are ours and no model's
BODY_S = 60.0  # a body that takes longer is a slow client holding memory


class EdgeRefused(Exception):
    """A request that is answered at the edge."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class ClientGone(Exception):
    """The client left before its request was complete; there is nobody to answer."""


class Transfer(Exception):
    """An answer was begun that cannot be finished.

    The server then breaks the connection, which is the only honest end HTTP has for it.
    """


class Bodies:
    """Reads request bodies within the limits. Mutable: counts the bytes held until they are released."""

    def __init__(self, max_body_b: int = MAX_BODY_B, max_in_flight_b: int = MAX_IN_FLIGHT_B) -> None:
        self._max_body_b = max_body_b
        self._max_in_flight_b = max_in_flight_b
        self._held_b = 0

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body.

        Raises:
            EdgeRefused: too large, too slow, encoded, or too much held already.
            ClientGone: the client left.
        """
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._max_body_b:
                await self._discard(receive)
                raise self._too_large()
            if name == b"content-encoding" and value.lower() != b"identity":
                raise _refused(415, "Request bodies must not be compressed.", "unsupported_encoding")
        try:
            async with asyncio.timeout(BODY_S):
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False):
                    return self._hold(message["body"])  # the usual case: all of it came with the head
                return await self._collect(message, receive)
        except TimeoutError:
            raise _refused(408, f"The body did not arrive within {BODY_S:.0f} s.", "timeout") from None

    def _hold(self, body: bytes) -> bytes:
        if len(body) > self._max_body_b:
            raise self._too_large()
        self._held_b += len(body)
        return body

    def release(self, body: bytes) -> None:
        """A body that `read` returned is no longer held."""
        self._held_b -= len(body)

    async def _collect(self, message: Message, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message["body"])
                size += len(message["body"])
                self._held_b += len(message["body"])
                if size > self._max_body_b:
                    await self._discard(receive)
                    raise self._too_large()
                if self._held_b > self._max_in_flight_b:
                    raise _refused(
                        503,
                        "This ingress holds too many large requests.",
                        "server_is_overloaded",
                        retry_after(1),
                    )
                if not message.get("more_body", False):
                    return b"".join(parts)
                message = await receive()
        except BaseException:
            self._held_b -= size
            raise

    async def _discard(self, receive: Receive) -> None:
        """Read on for a while without keeping anything: a client that still writes would not see the answer."""
        left = 2 * self._max_body_b
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while left > 0 and (message := await receive()).get("more_body", False):
                    left -= len(message["body"])

    def _too_large(self) -> EdgeRefused:
        return _refused(413, f"The body is larger than the limit of {self._max_body_b} bytes.", "request_too_large")


def _refused(status: int, message: str, code: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> EdgeRefused:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return EdgeRefused(Refusal(status=status, message=message, code=code, type=kind, headers=headers))


def path_of(scope: Scope) -> str:
    """The path with repeated and trailing slashes removed; never redirects, since that loses a POST's body."""
    path: str = scope["path"]
    while "//" in path:
        path = path.replace("//", "/")
    return path.rstrip("/") or "/"


async def read_small(scope: Scope, receive: Receive) -> bytes:
    """A body of at most `SMALL_B`.

    Raises:
        EdgeRefused, ClientGone: as `Bodies.read`.
    """
    return await Bodies(SMALL_B, MAX_IN_FLIGHT_B).read(scope, receive)


async def answer(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]], *, is_head: bool = False
) -> None:
    """Send a whole answer."""
    sized = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def refuse(send: Send, refusal: Refusal, rid: str) -> None:
    """Send an error."""
    headers = [JSON_TYPE, (b"x-request-id", rid.encode()), *refusal.headers]
    await answer(send, refusal.status, error_body(refusal), headers)
