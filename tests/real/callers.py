"""Callers of a door that never pause, for as long as something happens to what is behind it."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aiohttp

CALL_S = 30.0


class Calls:
    """What became of the calls so far. Mutable: the callers add to it."""

    def __init__(self, callers: int) -> None:
        self.callers = callers
        self.answered = 0  # wholly: the last word of it arrived
        self.failed: list[str] = []

    def until_answered(self, rounds: int = 3) -> None:
        """Wait until every caller was answered so often, from now on, more or less."""
        wanted = self.answered + len(self.failed) + rounds * self.callers
        deadline = time.monotonic() + CALL_S
        while self.answered + len(self.failed) < wanted:
            assert time.monotonic() < deadline, f"{self.answered} answers, {wanted} wanted; failed: {self.failed[:5]}"
            time.sleep(0.02)


@contextmanager
def calling(base_url: str, key: str, model: str, *, whole: int = 0, streams: int = 0) -> Iterator[Calls]:
    """Call a model from so many callers at once, until the block is left; calls under way then are waited for."""
    calls, ending = Calls(whole + streams), threading.Event()

    async def call(session: aiohttp.ClientSession, *, stream: bool) -> None:
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
        while not ending.is_set():
            try:
                async with session.post(f"{base_url}/chat/completions", json=body) as answer:
                    text = await answer.text()
                    _count(calls, answer.status, text, stream=stream)
            except (aiohttp.ClientError, TimeoutError) as error:
                calls.failed.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0)

    async def run() -> None:
        limit = aiohttp.ClientTimeout(total=CALL_S)
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers, timeout=limit) as session, asyncio.TaskGroup() as group:
            for at in range(whole + streams):
                group.create_task(call(session, stream=at >= whole))

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield calls
    finally:
        ending.set()
        thread.join()


def _count(calls: Calls, status: int, text: str, *, stream: bool) -> None:
    if status == 200 and (text.rstrip().endswith("data: [DONE]") if stream else _is_whole(text)):
        calls.answered += 1
    else:
        calls.failed.append(f"{status}: {text[-300:]}")


def _is_whole(text: str) -> bool:
    with suppress(ValueError, LookupError, TypeError):
        return bool(json.loads(text)["choices"][0]["message"]["content"])
    return False
