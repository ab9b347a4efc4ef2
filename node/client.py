"""A small client of an OpenAI-compatible door, for the demo's traffic and checks. It tells honest ends from others."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

CALL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. `trouble` is None exactly when the answer is whole and good."""

    status: int
    node: str
    text: str
    first_s: float  # until the first byte
    total_s: float
    trouble: str | None = None
    is_silent: bool = False  # a stream that ended without its mark and without an error event


class Caller:
    """Calls one door with one key.

    Args:
        session: the HTTP client.
        url: base URL of the door.
        key: the API key.
        now: monotonic seconds.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, now: Callable[[], float]) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}
        self._now = now

    async def get(self, path: str) -> dict[str, object]:
        """A JSON object."""
        async with self._session.get(self._url + path, headers=self._headers) as response:
            found: dict[str, object] = await response.json()
            return found

    async def chat(
        self, model: str, prompt: str, *, stream: bool = False, headers: dict[str, str] | None = None
    ) -> Answer:
        """One chat completion; never raises for what the other side does."""
        start = self._now()
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": stream}
        try:
            async with self._session.post(
                f"{self._url}/v1/chat/completions",
                json=body,
                headers={**self._headers, **(headers or {})},
                timeout=aiohttp.ClientTimeout(total=CALL_S),
            ) as response:
                read = self._read_stream if stream and response.status == 200 else self._read_whole
                return await read(response, start)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            gone = self._now() - start
            return Answer(status=0, node="", text="", first_s=gone, total_s=gone, trouble=repr(error))

    async def embed(self, model: str, text: str) -> Answer:
        """One embedding."""
        start = self._now()
        async with self._session.post(
            f"{self._url}/v1/embeddings", json={"model": model, "input": text}, headers=self._headers
        ) as response:
            return await self._read_whole(response, start)

    async def _read_whole(self, response: aiohttp.ClientResponse, start: float) -> Answer:
        body = await response.read()
        total = self._now() - start
        return Answer(
            status=response.status,
            node=response.headers.get("x-tela-node", ""),
            text=body.decode(errors="replace"),
            first_s=total,
            total_s=total,
            trouble=None if response.status == 200 else _message(body, response.status),
        )

    async def _read_stream(self, response: aiohttp.ClientResponse, start: float) -> Answer:
        first = 0.0
        lines: list[bytes] = []
        broken: str | None = None
        try:
            async for line in response.content:
                first = first or self._now() - start
                lines.append(line)
        except (aiohttp.ClientError, OSError) as error:
            broken = repr(error)
        body = b"".join(lines)
        done = b"data: [DONE]" in body
        erred = b'data: {"error"' in body
        trouble = broken or ("ended with an error event" if erred else None if done else "ended without its mark")
        return Answer(
            status=response.status,
            node=response.headers.get("x-tela-node", ""),
            text=body.decode(errors="replace"),
            first_s=first,
            total_s=self._now() - start,
            trouble=trouble,
            is_silent=not done and not erred and broken is None,
        )


def _message(body: bytes, status: int) -> str:
    try:
        return f"{status}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}: not an OpenAI error body"
