"""Carrying a call: pick a replica, ask it over a stream, bring the answer back, try elsewhere while that is honest.

Before the first byte a failed attempt is repeated on another replica. After it, a stream ends with an error event
and no end mark; a whole answer is held until it is complete, so that it can still be repeated.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random

from accounting.keys import KeyEntry
from gossip.errors import LocalProtocolError
from gossip.mesh import Mesh
from gossip.muxevents import ResetCode
from gossip.stream import Stream, StreamReset
from node.ingress.call import Call
from node.ingress.edge import Send, answer, refuse
from node.ingress.openai import no_replica, retry_after, unknown_model, upstream_failed
from node.ingress.passage import QUIET_S, Failed, Passage, lost
from node.ingress.reach import allowed, callable_now
from node.route.guard import Guard
from node.route.pick import Policy, pick
from node.route.retry import DEADLINE_S, Budget, Failure, is_replicas_fault, may_retry
from node.tunnel import (
    REQUEST,
    Headers,
    HeadRefused,
    RequestHead,
    encode_head,
    read_reply_head,
    to_client,
)
from registry.chain import Filter, Sifted, sift
from registry.views import ReplicaRow, Snapshot

log = logging.getLogger(f"tela.{__name__}")

WRITE_B = 65_536


class Relay:
    """Carries calls. Mutable: counts what is in flight and what failed lately.

    Args:
        mesh: opens streams to workers.
        views: the latest snapshot of the registry.
        policy: how to choose among replicas.
        now: monotonic seconds.
        fabric: unix seconds, fabric time.
        rng: breaks ties.
        deadline_s: one budget for all attempts of a call, until its answer begins.
        quiet_s: how long a stream that began may bring nothing.
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
        quiet_s: float = QUIET_S,
    ) -> None:
        self.in_flight: dict[str, int] = {}
        self._mesh = mesh
        self._views = views
        self._policy = policy
        self._now = now
        self._fabric = fabric
        self._rng = rng
        self._deadline_s = deadline_s
        self._quiet_s = quiet_s
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
            if call.is_gone:  # it was the client who broke it off
                break
            last = failed
            engine_errors += failed.failure is Failure.ENGINE_5XX
            if is_replicas_fault(failed.failure):
                self._guard.failed(row.id, row.record.order.run, self._now())
            log.info("attempt failed", extra={"rid": call.rid, "replica": row.id, "why": failed.why})
            if not may_retry(
                failed.failure, Budget(call.attempts, engine_errors, self._now() - start, self._deadline_s)
            ):
                break
        await self._give_up(call, last, send)

    # --- choosing --------------------------------------------------------------------------------------------

    def sifted(self, model: str, tried: set[str], key: KeyEntry) -> Sifted[ReplicaRow]:
        """Who may be routed to now: the registry's chain went before, here is what only this node knows."""
        now = self._now()
        return sift(
            self._views().routable.get(model, ()),
            (
                allowed(key),
                Filter("link", lambda row: None if self._is_linked(row) else "no link to its node"),
                Filter("tried", lambda row: "tried for this request" if row.id in tried else None),
                Filter("guard", lambda row: self._guard.objection(row.id, row.record.order.run, now)),
            ),
        )

    def _is_linked(self, row: ReplicaRow) -> bool:
        return row.node is not None and self._mesh.is_linked(row.node.id)

    def _choose(self, call: Call, tried: set[str]) -> ReplicaRow | None:
        model = call.request.model
        sifted = self.sifted(model, tried, call.key)
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
        call.node, call.node_name, call.replica = row.node.id, row.node.name, row.id
        slot = row.id.partition("/")[2]
        head = RequestHead(slot, row.record.order.run, call.path, call.rid, call.headers)
        self.in_flight[row.id] = self.in_flight.get(row.id, 0) + 1
        try:
            try:
                stream = self._mesh.open(row.node.id, REQUEST, encode_head(head))
            except LocalProtocolError as error:
                is_full = error.code == "too_many_streams"
                return Failed(Failure.BUSY if is_full else Failure.NOT_SENT, error.message)
            call.stream = stream
            try:
                failed = await self._exchange(call, stream, send, left_s)
            finally:
                call.stream = None
                stream.close()
        finally:
            self.in_flight[row.id] -= 1
        if failed is None and call.outcome == "ok":
            self._guard.served(row.id)
        elif failed is None and call.outcome == "truncated":
            self._guard.failed(row.id, row.record.order.run, self._now())
        return failed

    async def _exchange(self, call: Call, stream: Stream, send: Send, left_s: float) -> Failed | None:
        start = self._now()
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
            return lost(reset)
        passage = Passage(call, stream, send, fabric=self._fabric, quiet_s=self._quiet_s)
        left_s -= self._now() - start
        return await passage.carry(reply, [*to_client(reply.headers), *_own_headers(call)], left_s)

    # --- the end of the road ---------------------------------------------------------------------------------

    async def _give_up(self, call: Call, last: Failed | None, send: Send) -> None:
        if call.is_gone:
            call.end(0, "client_disconnect", self._fabric())
            return
        if last is not None and last.reply is not None:
            headers = [*to_client(last.reply.headers), *_own_headers(call)]
            call.end(last.reply.status, "upstream_error", self._fabric())
            is_busy = last.failure is Failure.ENGINE_BUSY
            advice = retry_after(1) if is_busy else ((b"x-should-retry", b"false"),)
            await answer(send, last.reply.status, last.body, [*headers, *advice])
            return
        if last is None:
            snapshot = self._views()
            model = call.request.model
            known = snapshot.models.get(model)
            if known is None:
                refusal = unknown_model(model, [row.id for row in callable_now(snapshot, call.key)])
            else:
                refusal = no_replica(model, self.why(model, call.key))
            call.end(refusal.status, "refused", self._fabric())
        elif last.failure is Failure.BUSY:
            refusal = no_replica(call.request.model, last.why)
            call.end(refusal.status, "refused", self._fabric())
        elif last.failure is Failure.TIMEOUT:
            refusal = upstream_failed(504, f"The engine gave {last.why}.", "upstream_timeout")
            call.end(refusal.status, "upstream_error", self._fabric())
        else:
            message = f"{call.attempts} attempt(s) failed, the last because {last.why}."
            refusal = upstream_failed(502, message, "upstream_disconnect")
            call.end(refusal.status, "upstream_error", self._fabric())
        await refuse(send, refusal, call.shown_id)

    def why(self, model: str, key: KeyEntry) -> str:
        """Why nobody can serve a model, counted by filter, for people."""
        is_for_others = allowed(key).objection
        excluded = self._views().excluded.get(model, ())
        reasons = [out.reason for out in excluded if is_for_others(out.candidate) is None]
        reasons += [out.reason for out in self.sifted(model, set(), key).excluded]
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


def _own_headers(call: Call) -> Headers:
    return [(b"x-request-id", call.shown_id.encode()), (b"x-tela-node", call.node_name.encode())]
