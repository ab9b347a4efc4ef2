"""Streams that others open here: each is given to what serves its kind, as a task of its own, or refused."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gossip.muxevents import ResetCode
from gossip.stream import Stream, StreamReset

log = logging.getLogger(f"tela.{__name__}")

Serve = Callable[[Stream], Awaitable[None]]


class Serving:
    """What serves which kind of stream. Mutable; takes streams while `tasks` is set."""

    def __init__(self) -> None:
        self.tasks: asyncio.TaskGroup | None = None  # None: none are taken, now or any more
        self.is_over = False  # a cancellation is this node's end, not that of one stream
        self._by_kind: dict[int, Serve] = {}

    def add(self, kind: int, serve: Serve) -> None:
        """Give streams of a kind to `serve` from now on."""
        self._by_kind[kind] = serve

    def opened(self, stream: Stream) -> None:
        """The other end of a link opened a stream."""
        serve = self._by_kind.get(stream.kind)
        if serve is None or self.tasks is None:
            stream.reset(ResetCode.REFUSED)
            stream.close()
            return
        self.tasks.create_task(self._run(serve, stream))

    async def _run(self, serve: Serve, stream: Stream) -> None:
        try:
            await serve(stream)
        except StreamReset:
            pass  # the other side left; there is nobody to tell
        except asyncio.CancelledError:
            if not stream.is_lost or self.is_over:
                raise
        except Exception:
            log.exception("stream handler failed", extra={"peer": stream.peer})
            stream.reset(ResetCode.INTERNAL)
        finally:
            stream.close()
