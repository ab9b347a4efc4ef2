"""Small clients of a door and of a control socket, for the demo. They tell honest ends from others."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from node.control.schema import ActProgress, Failure, Held, Publish, Published, Results, View
from registry.errors import TelaError
from registry.record import Record, decode
from registry.replica import Replica

CALL_S = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=CALL_S)

S = TypeVar("S", bound=msgspec.Struct)


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

    def with_key(self, key: str) -> "Caller":
        """One that calls the same door with another key."""
        return Caller(self._session, self._url, key, self._now)

    async def get(self, path: str) -> dict[str, object]:
        """A JSON object."""
        async with self._session.get(self._url + path, headers=self._headers, timeout=_TIMEOUT) as response:
            found: dict[str, object] = await response.json()
            return found

    async def post(self, path: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
        """The status and the JSON object of an answer; the key is not shown."""
        async with self._session.post(self._url + path, json=body, timeout=_TIMEOUT) as response:
            found: dict[str, object] = await response.json()
            return response.status, found

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
                timeout=_TIMEOUT,
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
            f"{self._url}/v1/embeddings",
            json={"model": model, "input": text},
            headers=self._headers,
            timeout=_TIMEOUT,
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


class Control:
    """The control socket of a node of this account.

    Every method raises TelaError when nobody answers there, or with what the node says is wrong.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def view(self) -> View:
        """What the node knows of its fabric."""
        return await self._ask("GET", "/view", View)

    async def publish(self, record: Record) -> Published:
        """Hand a signed record in; returns what became of it."""
        body = msgspec.json.encode(Publish(records=(b64encode(record.raw).decode(),)))
        return (await self._ask("POST", "/records", Results, body)).results[0]

    async def acts(self) -> Replica:
        """Every act the node holds."""
        replica = Replica()
        for raw in (await self._ask("GET", "/records?kind=act", Held)).records:
            replica.apply(decode(b64decode(raw)))
        return replica

    async def progress(self, act: Record) -> ActProgress:
        """How far an act has come."""
        return await self._ask("GET", f"/act?hash={act.order.hash.hex()}", ActProgress)

    async def _ask(self, method: str, path: str, kind: type[S], body: bytes | None = None) -> S:
        connector = aiohttp.UnixConnector(path=str(self._path))
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, trust_env=False) as session,
                session.request(method, f"http://node{path}", data=body) as response,
            ):
                raw = await response.read()
            if response.status == 200:
                return msgspec.json.decode(raw, type=kind)
            said = msgspec.json.decode(raw, type=Failure).error
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
            raise TelaError(f"no answer at {self._path}: {error!r}", code="no_answer") from error
        raise TelaError(said.message, hint=said.hint, code=said.code)


def _message(body: bytes, status: int) -> str:
    try:
        return f"{status}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}: not an OpenAI error body"
