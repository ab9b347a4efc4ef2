"""Carrying a call: pick a replica, ask it over a stream, bring the answer back, try elsewhere while that is honest.

Before the first byte a failed attempt is repeated on another replica. After it, a stream ends with an error event
and no end mark; a whole answer is held until it is complete, so that it can still be repeated.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from gossip.errors import LocalProtocolError
from gossip.mesh import Mesh
from gossip.muxevents import ResetCode
from gossip.stream import Stream, StreamReset
from node.ingress.call import Call
from node.ingress.edge import Send, Transfer, answer, refuse
from node.ingress.openai import no_replica, unknown_model, upstream_failed
from node.ingress.tap import StreamTap, error_event, tokens_of_body
from node.route.guard import Guard
from node.route.pick import Policy, pick
from node.route.retry import DEADLINE_S, Budget, Failure, failure_of_status, is_replicas_fault, may_retry
from node.tunnel import (
    REQUEST,
    Headers,
    HeadRefused,
    ReplyHead,
    RequestHead,
    encode_head,
    read_reply_head,
    to_client,
)
from registry.chain import Filter, Sifted, sift
from registry.views import ReplicaRow, Snapshot

log = logging.getLogger(f"tela.{__name__}")

HOLD_B = 8 * 1024 * 1024  # a whole answer up to here can be repeated elsewhere; a longer one is passed on as it comes
WRITE_B = 65_536


class Failed(NamedTuple):
    """An attempt that brought nothing to deliver."""

    failure: Failure
    why: str
    reply: ReplyHead | None = None  # the engine's own error, delivered when nothing better is found
    body: bytes = b""


class Relay:
    """Carries calls. Mutable: counts what is in flight and what failed lately.

    Args:
        mesh: opens streams to workers.
        views: the latest snapshot of the registry.
        policy: how to choose among replicas.
        now: monotonic seconds.
        fabric: unix seconds, fabric time.
        rng: breaks ties.
        deadline_s: one budget for all attempts of a call.
    """

    def __init__(
        self,
        *,
        mesh: Mesh,
        views: Callable[[], Snapshot],
        policy: Policy,
        now: Callable[[], float],
        fabric: Callable[[], float],
        rng: Random,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.in_flight: dict[str, int] = {}
        self._mesh = mesh
        self._views = views
        self._policy = policy
        self._now = now
        self._fabric = fabric
        self._rng = rng
        self._deadline_s = deadline_s
        self._guard = Guard()
        self._turns: dict[str, int] = {}

    async def carry(self, call: Call, send: Send) -> None:
        """Answer a call, whatever happens; the call says how it ended."""
        start = self._now()
        tried: set[str] = set()
        last: Failed | None = None
        engine_errors = 0
        while not call.is_gone:
            row = self._choose(call, tried)
            if row is None:
                break
            tried.add(row.id)
            call.attempts += 1
            failed = await self._attempt(call, row, send, self._deadline_s - (self._now() - start))
            if failed is None:
                return
            last = failed
            engine_errors += failed.failure is Failure.ENGINE_5XX
            if is_replicas_fault(failed.failure):
                self._guard.failed(row.id, row.record.order.run, self._now())
            log.info("attempt failed", extra={"rid": call.rid, "replica": row.id, "why": failed.why})
            if not may_retry(failed.failure, Budget(call.attempts, engine_errors, self._now() - start)):
                break
        await self._give_up(call, last, send)

    # --- choosing --------------------------------------------------------------------------------------------

    def sifted(self, model: str, tried: set[str]) -> Sifted[ReplicaRow]:
        """Who may be routed to now: the registry's chain went before, here is what only this node knows."""
        now = self._now()
        return sift(
            self._views().routable.get(model, ()),
            (
                Filter("link", lambda row: None if self._is_linked(row) else "no link to its node"),
                Filter("tried", lambda row: "tried for this request" if row.id in tried else None),
                Filter("guard", lambda row: self._guard.objection(row.id, row.record.order.run, now)),
            ),
        )

    def _is_linked(self, row: ReplicaRow) -> bool:
        return row.node is not None and self._mesh.is_linked(row.node.id)

    def _choose(self, call: Call, tried: set[str]) -> ReplicaRow | None:
        model = call.request.model
        sifted = self.sifted(model, tried)
        # When all that is left are replicas that failed lately, one of them is better than none.
        rows = sifted.kept or tuple(out.candidate for out in sifted.excluded if out.filter == "guard")
        if not rows:
            return None
        turn = self._turns[model] = self._turns.get(model, -1) + 1
        index = pick(
            self._policy,
            [row.id for row in rows],
            in_flight=self.in_flight,
            weights={},
            turn=turn,
            rng=self._rng,
        )
        return rows[index]

    # --- one attempt -----------------------------------------------------------------------------------------

    async def _attempt(self, call: Call, row: ReplicaRow, send: Send, left_s: float) -> Failed | None:
        assert row.node is not None
        call.node, call.replica = row.node.id, row.id
        slot = row.id.partition("/")[2]
        head = RequestHead(slot, row.record.order.run, call.path, call.shown_id, call.headers)
        self.in_flight[row.id] = self.in_flight.get(row.id, 0) + 1
        try:
            try:
                stream = self._mesh.open(row.node.id, REQUEST, encode_head(head))
            except LocalProtocolError as error:
                return Failed(Failure.NOT_SENT, error.message)
            call.stream = stream
            try:
                failed = await self._exchange(call, stream, row, send, left_s)
            finally:
                call.stream = None
                stream.close()
        finally:
            self.in_flight[row.id] -= 1
        if failed is None:
            self._guard.served(row.id)
        return failed

    async def _exchange(self, call: Call, stream: Stream, row: ReplicaRow, send: Send, left_s: float) -> Failed | None:
        try:
            async with asyncio.timeout(left_s):
                await _write(stream, call.body)
                reply = read_reply_head(await stream.reply_head())
        except TimeoutError:
            stream.reset(ResetCode.TIMEOUT)
            return Failed(Failure.TIMEOUT, "no answer in time")
        except HeadRefused as refusal:
            return Failed(Failure.GARBAGE, refusal.message)
        except StreamReset as reset:
            return _lost(reset)
        assert row.node is not None
        headers = [*to_client(reply.headers), *_own_headers(call, row.node.name)]
        if _is_event_stream(reply) and reply.status == 200:
            return await self._pass_events(call, stream, headers, send)
        return await self._pass_whole(call, stream, reply, headers, send)

    async def _pass_whole(
        self, call: Call, stream: Stream, reply: ReplyHead, headers: Headers, send: Send
    ) -> Failed | None:
        parts: list[bytes] = []
        size = 0
        try:
            while (data := await stream.read()) is not None:
                parts.append(data)
                size += len(data)
                if size > HOLD_B:
                    await self._pass_long(call, stream, reply, headers, parts, send)
                    return None
        except StreamReset as reset:
            return _lost(reset)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        failure = failure_of_status(reply.status)
        if failure is not None:
            return Failed(failure, f"the engine answered {reply.status}", reply, body)
        tokens = tokens_of_body(body)
        if tokens is None and reply.status == 200:
            return Failed(Failure.GARBAGE, "the engine's answer is not a JSON object")
        call.first = self._fabric()
        call.bytes_out = len(body)
        call.tokens = tokens or call.tokens
        call.end(reply.status, "ok" if reply.status < 400 else "upstream_error")
        await answer(send, reply.status, body, headers)
        return None

    async def _pass_long(
        self, call: Call, stream: Stream, reply: ReplyHead, headers: Headers, parts: list[bytes], send: Send
    ) -> None:
        call.first = self._fabric()
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        part: bytes | None = b"".join(parts)
        try:
            while part is not None:
                call.bytes_out += len(part)
                await send({"type": "http.response.body", "body": part, "more_body": True})
                part = await stream.read()
        except StreamReset as reset:
            call.end(reply.status, "truncated")
            if call.is_gone:
                return
            raise Transfer(f"the engine was lost in the middle of a long answer: {reset.message}") from reset
        call.end(reply.status, "ok" if reply.status < 400 else "upstream_error")
        await send({"type": "http.response.body", "body": b""})

    async def _pass_events(self, call: Call, stream: Stream, headers: Headers, send: Send) -> Failed | None:
        tap = StreamTap(cut_usage=call.request.stream and not call.request.wants_usage)
        why = "the engine ended its stream without the end mark"
        try:
            while (data := await stream.read()) is not None:
                if out := tap.feed(data):
                    await self._send_events(call, headers, out, send)
        except StreamReset as reset:
            why = _lost(reset).why
        else:
            if tap.is_complete:
                await self._send_events(call, headers, tap.finish(), send, is_last=True)
                call.tokens = tap.tokens
                call.end(200, "ok")
                return None
        call.tokens = tap.tokens
        if call.first is None:
            return Failed(Failure.LOST, why)
        call.end(200, "truncated")
        if not call.is_gone:
            event = b"\n\n" * tap.is_mid_event + error_event(
                f"The stream ended early: {why}.", "upstream_disconnect", call.shown_id
            )
            await self._send_events(call, headers, event, send, is_last=True)
        return None

    async def _send_events(
        self, call: Call, headers: Headers, events: bytes, send: Send, *, is_last: bool = False
    ) -> None:
        if call.first is None:
            call.first = self._fabric()
            start = [*headers, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": start})
        call.bytes_out += len(events)
        await send({"type": "http.response.body", "body": events, "more_body": not is_last})

    # --- the end of the road ---------------------------------------------------------------------------------

    async def _give_up(self, call: Call, last: Failed | None, send: Send) -> None:
        if call.is_gone:
            call.end(0, "client_disconnect")
            return
        if last is not None and last.reply is not None:
            headers = [*to_client(last.reply.headers), *_own_headers(call, call.node)]
            call.end(last.reply.status, "upstream_error")
            await answer(send, last.reply.status, last.body, [*headers, (b"x-should-retry", b"false")])
            return
        if last is None:
            snapshot = self._views()
            model = call.request.model
            known = snapshot.models.get(model)
            if known is None:
                callable_now = [row.id for row in snapshot.models.values() if row.routable]
                refusal = unknown_model(model, callable_now)
            else:
                refusal = no_replica(model, self.why(model))
            call.end(refusal.status, "refused")
        elif last.failure is Failure.TIMEOUT:
            refusal = upstream_failed(504, f"The engine gave {last.why}.", "upstream_timeout")
            call.end(refusal.status, "upstream_error")
        else:
            message = f"{call.attempts} attempt(s) failed, the last because {last.why}."
            refusal = upstream_failed(502, message, "upstream_disconnect")
            call.end(refusal.status, "upstream_error")
        await refuse(send, refusal, call.shown_id)

    def why(self, model: str) -> str:
        """Why nobody can serve a model, counted by filter, for people."""
        reasons = [out.reason for out in self._views().excluded.get(model, ())]
        reasons += [out.reason for out in self.sifted(model, set()).excluded]
        counted = {reason: reasons.count(reason) for reason in reasons}
        return "; ".join(f"{reason} ({count})" for reason, count in counted.items()) or "no replica is known"


async def _write(stream: Stream, body: bytes) -> None:
    if len(body) <= WRITE_B:
        stream.write(body)
    else:
        for start in range(0, len(body), WRITE_B):
            stream.write(body[start : start + WRITE_B])
            await stream.drain()
    stream.end()


def _own_headers(call: Call, node: str) -> Headers:
    return [(b"x-request-id", call.shown_id.encode()), (b"x-tela-node", node.encode())]


def _is_event_stream(reply: ReplyHead) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in reply.headers)


def _lost(reset: StreamReset) -> Failed:
    if reset.reset_code == ResetCode.REFUSED:
        return Failed(Failure.NOT_SENT, "its worker refused it")
    if reset.reset_code == ResetCode.ENGINE:
        return Failed(Failure.LOST, "the engine broke off")
    return Failed(Failure.LOST, f"the link to its worker was lost ({reset.code})")
