"""One bounded question to an engine over HTTP: a status, or a word for why there is none, and what it said.

It raises nothing for what an engine does, follows no redirect and reads no more than it was told to.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp


class Target(NamedTuple):
    """Where an engine is, and what it takes for permission."""

    url: str  # without a path
    api_key: str | None = None  # None: it is not asked for one

    def headers(self) -> dict[str, str]:
        """What every question to it carries; bodies come back as they are."""
        named = {"Accept-Encoding": "identity"}
        return named if self.api_key is None else {**named, "Authorization": f"Bearer {self.api_key}"}


class Answer(NamedTuple):
    """What came back: `status` is a number in digits, or silent, refused, reset, garbled, or too large."""

    status: str
    body: bytes = b""

    @property
    def wants_key(self) -> bool:
        """Whether it was refused for its credentials."""
        return self.status in {"401", "403"}


async def fetch(
    session: aiohttp.ClientSession,
    target: Target,
    path: str,
    *,
    timeout_s: float,
    limit_b: int,
    question: bytes | None = None,
    request_id: str = "",
) -> Answer:
    """Ask one thing.

    Args:
        session: without environment proxies.
        target: the engine.
        path: what is asked for.
        timeout_s: until the whole answer is here.
        limit_b: an answer that is longer is `too large`.
        question: JSON to post; None: it is a GET.
        request_id: what the engine may log of it; empty: nothing.
    """
    headers = target.headers()
    if request_id:
        headers["X-Request-Id"] = request_id
    if question is not None:
        headers["Content-Type"] = "application/json"
    try:
        async with asyncio.timeout(timeout_s), _sent(session, target.url + path, question, headers) as response:
            return Answer(str(response.status), await _bounded(response, limit_b))
    except TimeoutError:
        return Answer("silent")
    except _TooLargeError:
        return Answer("too large")
    except aiohttp.ClientConnectorError:
        return Answer("refused")
    except (aiohttp.ServerDisconnectedError, OSError):
        return Answer("reset")
    except aiohttp.ClientError:
        return Answer("garbled")


class _TooLargeError(Exception):
    """More came than was asked for."""


@asynccontextmanager
async def _sent(
    session: aiohttp.ClientSession, url: str, question: bytes | None, headers: dict[str, str]
) -> AsyncIterator[aiohttp.ClientResponse]:
    method = "GET" if question is None else "POST"
    async with session.request(method, url, data=question, headers=headers, allow_redirects=False) as response:
        yield response


async def _bounded(response: aiohttp.ClientResponse, limit_b: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit_b:
            raise _TooLargeError
    return bytes(body)
