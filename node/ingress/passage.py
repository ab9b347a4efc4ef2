"""Bringing one answer from a worker's stream to the client.

A whole answer is held until it is complete, so that it can still be asked for elsewhere. A stream of events is passed
on as it comes; once begun it ends with the engine's end mark or with an error event, never with anything made up.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from gossip.muxevents import ResetCode
from gossip.stream import Stream, StreamReset
from node.ingress.call import Call
from node.ingress.edge import Send, Transfer, answer
from node.ingress.tap import StreamTap, error_event, tokens_at_end, tokens_of_body
from node.route.retry import Failure, failure_of_status
from node.tunnel import Headers, ReplyHead

HOLD_B = 8 * 1024 * 1024  # a whole answer up to here can be repeated; a longer one is passed on as it comes
TAIL_B = 8_192  # where the usage of a long answer is looked for
QUIET_S = 300.0  # a stream that began and brings nothing for so long is dead, whatever its link says
LINGER_S = 1.0  # after the end mark the engine may take so long to close, which keeps its connection for others
TAKE_S = 60.0  # a client that takes nothing for so long is gone; it must not hold what others need


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that brought nothing to deliver."""

    failure: Failure
    why: str
    reply: ReplyHead | None = None  # the engine's own error, delivered when nothing better is found
    body: bytes = b""


class Passage:
    """One answer on its way. Lives for one attempt.

    Args:
        call: what is answered; it is told how it ends.
        stream: where the answer comes from.
        send: the client.
        fabric: unix seconds, fabric time.
        quiet_s: how long a stream that began may bring nothing.
    """

    def __init__(self, call: Call, stream: Stream, send: Send, *, fabric: Callable[[], float], quiet_s: float) -> None:
        self._call = call
        self._stream = stream
        self._client = send
        self._fabric = fabric
        self._quiet_s = quiet_s
        self._is_mid_event = False  # what was passed on ends within an event

    async def carry(self, reply: ReplyHead, headers: Headers, left_s: float) -> Failed | None:
        """Deliver an answer whose head has come; None when the client was answered.

        Raises:
            Transfer: an answer was begun that cannot be finished.
        """
        failure = failure_of_status(reply.status)
        if _is_event_stream(reply) and reply.status == 200:
            return await self._events(headers, left_s)
        try:
            async with asyncio.timeout(left_s):
                body = await self._held()
        except TimeoutError:
            self._stream.reset(ResetCode.TIMEOUT)
            return Failed(Failure.TIMEOUT, "no whole answer in time")
        except StreamReset as reset:
            return lost(reset)
        if failure is Failure.GARBAGE:
            return Failed(failure, f"the engine answered {reply.status}, which is none of the client's business")
        if failure is not None:
            return Failed(failure, f"the engine answered {reply.status}", reply, body)
        if len(body) > HOLD_B:
            await self._long(reply, headers, body)
            return None
        return await self._whole(reply, headers, body)

    async def _held(self) -> bytes:
        """The body, or what there is of it when it grows beyond what is held."""
        parts: list[bytes] = []
        size = 0
        while size <= HOLD_B and (data := await self._stream.read()) is not None:
            parts.append(data)
            size += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _whole(self, reply: ReplyHead, headers: Headers, body: bytes) -> Failed | None:
        call = self._call
        tokens = tokens_of_body(body)
        if tokens is None and reply.status == 200:
            return Failed(Failure.GARBAGE, "the engine's answer is not a JSON object")
        call.first = self._fabric()
        call.bytes_out = len(body)
        call.tokens = tokens or call.tokens
        call.end(reply.status, "ok" if reply.status < 400 else "upstream_error", self._fabric())
        await answer(self._client, reply.status, body, headers)
        return None

    async def _long(self, reply: ReplyHead, headers: Headers, begun: bytes) -> None:
        call = self._call
        call.first = self._fabric()
        await self._send({"type": "http.response.start", "status": reply.status, "headers": headers})
        part: bytes | None = begun
        tail = b""
        try:
            while part is not None:
                call.bytes_out += len(part)
                tail = (tail + part)[-TAIL_B:]
                await self._send({"type": "http.response.body", "body": part, "more_body": True})
                async with asyncio.timeout(self._quiet_s):
                    part = await self._stream.read()
        except (StreamReset, TimeoutError) as broken:
            call.end(reply.status, "truncated", self._fabric())
            if call.is_gone:
                return
            raise Transfer(f"the engine was lost in the middle of a long answer: {broken}") from broken
        call.tokens = tokens_at_end(tail)
        call.end(reply.status, "ok" if reply.status < 400 else "upstream_error", self._fabric())
        await self._send({"type": "http.response.body", "body": b""})

    # --- events

    async def _events(self, headers: Headers, left_s: float) -> Failed | None:
        call = self._call
        tap = StreamTap(cut_usage=call.request.stream and not call.request.wants_usage)
        failed = await self._until_the_end(tap, headers, left_s)
        call.tokens = tap.tokens
        if tap.is_complete:
            call.end(200, "ok", self._fabric())
            await self._linger()
            return None
        if call.first is None:
            return failed
        call.end(200, "truncated", self._fabric())
        if not call.is_gone:
            event = error_event(f"The stream ended early: {failed.why}.", "upstream_disconnect", call.shown_id)
            await self._pass(headers, b"\n\n" * self._is_mid_event + event, is_last=True)
        return None

    async def _until_the_end(self, tap: StreamTap, headers: Headers, left_s: float) -> Failed:
        """Pass events on; returns why they ended, which counts when they did so without the end mark."""
        call = self._call
        now = asyncio.get_running_loop().time
        patience = now() + left_s  # what renews it is an event, not any byte of one
        try:
            while not tap.is_complete:
                async with asyncio.timeout_at(patience):
                    data = await self._stream.read()
                seen = tap.events
                out = tap.feed(data) if data is not None else tap.finish()
                if tap.is_complete or (out and data is not None):  # a half event at the end is dropped
                    await self._pass(headers, out, is_last=tap.is_complete)
                if data is None:
                    break
                if call.first is not None and (out or tap.events > seen):
                    patience = now() + self._quiet_s
                self._is_mid_event = tap.is_mid_event
        except StreamReset as reset:
            return lost(reset)
        except TimeoutError:
            self._stream.reset(ResetCode.TIMEOUT)
            return Failed(Failure.TIMEOUT, "the engine brought nothing for too long")
        return Failed(Failure.LOST, "the engine ended its stream without the end mark")

    async def _pass(self, headers: Headers, events: bytes, *, is_last: bool) -> None:
        call = self._call
        if call.first is None:
            call.first = self._fabric()
            start = [*headers, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
            await self._send({"type": "http.response.start", "status": 200, "headers": start})
        call.bytes_out += len(events)
        await self._send({"type": "http.response.body", "body": events, "more_body": not is_last})

    async def _linger(self) -> None:
        """Let the engine end its answer by itself: a connection that is cut cannot be used again."""
        with contextlib.suppress(StreamReset, TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await self._stream.read() is not None:
                    pass

    async def _send(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(TAKE_S):
                await self._client(message)
        except TimeoutError:
            self._call.leave()  # nothing, when it had ended
            self._call.end(200, "client_disconnect", self._fabric())
            raise Transfer(f"the client took nothing for {TAKE_S:.0f} s") from None


def lost(reset: StreamReset) -> Failed:
    """What a reset stream means for the attempt."""
    if reset.reset_code == ResetCode.REFUSED:
        return Failed(Failure.NOT_SENT, "its worker refused it")
    if reset.reset_code == ResetCode.ENGINE:
        return Failed(Failure.LOST, "the engine broke off")
    return Failed(Failure.LOST, f"the link to its worker was lost ({reset.code})")


def _is_event_stream(reply: ReplyHead) -> bool:
    return any(
        name == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in reply.headers
    )
