"""Answers that go on: changes of the registry and events, one JSON object a line, for as long as somebody reads."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from node.control import wire
from node.control.source import Journal
from node.control.viewer import Viewer
from node.events import Event
from node.ingress.edge import Receive, Send
from registry.errors import TelaError

PACE_S = 0.1  # between two lines: what comes together is said together
LOOK_S = 1.0  # gauges and expiries change without anybody saying so
HEARTBEAT_S = 15.0
MAX_STREAMS = 64  # faces at once; each costs a look per second
MAX_EVENTS = 1_000  # encoded at a time


class Streams:
    """The streams of one node. Mutable: counts them, and ends them when the node does.

    Args:
        viewer: what changes are read from.
        now: loop time.
    """

    def __init__(self, viewer: Viewer, now: Callable[[], float]) -> None:
        self._viewer = viewer
        self._now = now
        self._wakes: set[asyncio.Event] = set()
        self._is_closing = False

    def notice(self) -> None:
        """Something may have changed: look now."""
        for wake in self._wakes:
            wake.set()

    def close(self) -> None:
        """End every stream."""
        self._is_closing = True
        self.notice()

    async def watch(self, receive: Receive, send: Send, epoch: str, version: int) -> None:
        """Changes since a version, until the face leaves.

        Raises:
            TelaError: too many streams.
        """
        with self._stream() as wake:
            await wire.begin(send, wire.LINES)
            await wire.while_there(receive, self._watch(send, wake, epoch, version))

    async def _watch(self, send: Send, wake: asyncio.Event, epoch: str, version: int) -> None:
        said_at = self._now()
        while not self._is_closing:
            delta = self._viewer.since(epoch, version)
            if delta is None and self._now() - said_at >= HEARTBEAT_S:
                delta = self._viewer.heartbeat()
            if delta is not None:
                epoch, version, said_at = delta.epoch, delta.version, self._now()
                await wire.go_on(send, wire.encode(delta) + b"\n")  # a slow reader is waited for; what comes is merged
            await _next(wake)
        await wire.end(send)

    async def events(self, receive: Receive, send: Send, journal: Journal, since: int, limit: int) -> None:
        """Events above a number, and then each as it comes, until the face leaves.

        Raises:
            TelaError: too many streams.
        """
        with self._stream() as wake:
            await wire.begin(send, wire.LINES)
            await wire.while_there(receive, self._events(send, wake, journal, since, limit))

    async def _events(self, send: Send, wake: asyncio.Event, journal: Journal, since: int, limit: int) -> None:
        said_at = self._now()
        while not self._is_closing:
            news = journal.since(since, min(limit, MAX_EVENTS))
            if news or self._now() - said_at >= HEARTBEAT_S:
                said_at = self._now()
                since = news[-1].seq if news else since
                await wire.go_on(send, lines(news) or b"\n")
            if len(news) < min(limit, MAX_EVENTS):
                await _next(wake)
        await wire.end(send)

    @contextmanager
    def _stream(self) -> Generator[asyncio.Event, None, None]:
        if len(self._wakes) >= MAX_STREAMS:
            raise TelaError(f"{MAX_STREAMS} faces watch this node already", hint="close one of them", code="too_many")
        wake = asyncio.Event()
        self._wakes.add(wake)
        try:
            yield wake
        finally:
            self._wakes.discard(wake)


async def _next(wake: asyncio.Event) -> None:
    await asyncio.sleep(PACE_S)
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            await wake.wait()
    wake.clear()


def lines(events: Sequence[Event]) -> bytes:
    """Events, one a line."""
    return b"".join(wire.encode(event) + b"\n" for event in events)
