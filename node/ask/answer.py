"""Answers questions about this node: its logs, its events, blobs it keeps, records it holds.

What is asked names slots and hashes, never paths. Whoever may not ask is told so and nothing else. Log bytes travel as
they are; whoever shows them cleans them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec

from gossip.muxevents import ResetCode
from gossip.stream import Stream, StreamReset
from node.ask.judge import Nonces, Whom, may_ask
from node.ask.question import MAX_EVENTS, MAX_EVENTS_B, Answered, Asked, EventsArgs, HashArgs, LogArgs, decode
from node.ask.tail import Logs, follow, tail
from node.control.source import Journal
from registry.errors import TelaError
from registry.replica import Replica
from registry.validity import Standing

log = logging.getLogger(f"tela.{__name__}")

DEADLINE_S = 10.0
STALL_S = 30.0  # whoever follows a log and does not read it
MAX_AT_ONCE = 8
MAX_FOLLOWING = 4  # of them
SLICE_B = 16_384
HELD_KINDS = ("act", "charter", "invite", "membership")  # where `holds` looks: what is waited for after publishing

Parts = AsyncGenerator[bytes, None]


class Answers:
    """What this node answers. Mutable: counts what is under way and remembers nonces.

    Args:
        whom: this node and its member.
        standing: who is entitled to what.
        fabric: unix seconds, fabric time.
        replica: the records.
        logs: where a slot's log is; None for a slot there is not. The empty slot is the node's own.
        events: the journal; None without one.
        blobs: content by `node.ask.question.blob_hash`.
    """

    def __init__(
        self,
        *,
        whom: Whom,
        standing: Callable[[], Standing],
        fabric: Callable[[], float],
        replica: Replica,
        logs: Logs,
        events: Journal | None,
        blobs: Mapping[bytes, bytes],
    ) -> None:
        self.whom = whom
        self._standing = standing
        self._fabric = fabric
        self._replica = replica
        self._logs = logs
        self._events = events
        self._blobs = blobs
        self._nonces = Nonces()
        self._at_once = 0
        self._following = 0

    async def serve(self, stream: Stream) -> None:
        """Answer a question that came on a link."""
        task = asyncio.current_task()
        assert task is not None
        stream.on_lost = task.cancel
        try:
            asked = decode(stream.head)
            async with asyncio.timeout(None if _is_following(asked) else DEADLINE_S):
                await self._send(stream, asked)
        except StreamReset:
            raise
        except TelaError as error:
            log.info("question refused", extra={"peer": stream.peer, "why": error.message})
            _refuse(stream, error)
        except TimeoutError:
            stream.reset(ResetCode.CANCEL)

    async def _send(self, stream: Stream, asked: Asked) -> None:
        is_begun = False
        try:
            async with aclosing(self.answer(asked, stream.peer)) as parts:
                async for part in parts:
                    if not is_begun:
                        stream.reply(msgspec.json.encode(Answered(ok=True)))
                        is_begun = True
                    await _write(stream, part)
            stream.end()
        except TelaError as error:
            if not is_begun or isinstance(error, StreamReset):
                raise
            log.info("an answer broke", extra={"peer": stream.peer, "why": error.message})
            stream.reset(ResetCode.INTERNAL)  # too late to say why

    async def answer(self, asked: Asked, asking: str) -> Parts:
        """The parts of an answer; the first one comes, if only empty, once the question is granted.

        Args:
            asked: the question.
            asking: the node that asks; this one itself for a face of its own.

        Raises:
            TelaError: why it is not answered.
        """
        self._judge(asked, asking)
        is_following = _is_following(asked)
        if self._at_once >= MAX_AT_ONCE or (is_following and self._following >= MAX_FOLLOWING):
            raise TelaError("this node answers as many questions as it can", hint="try again soon", code="busy")
        self._at_once += 1
        self._following += is_following
        try:
            async with aclosing(self._parts(asked)) as parts:
                async for part in parts:
                    yield part
        finally:
            self._at_once -= 1
            self._following -= is_following

    def holds(self, digest: bytes) -> bool:
        """Whether a record with a hash is held."""
        return any(entry.record.order.hash == digest for kind in HELD_KINDS for entry in self._replica.of_kind(kind))

    def _judge(self, asked: Asked, asking: str) -> None:
        now = self._fabric()
        refusal = may_ask(asked, asking, self.whom, self._standing(), now)
        if refusal is None and asked.signer:
            refusal = self._nonces.use(asked, now)
        if refusal is not None:
            raise refusal

    async def _parts(self, asked: Asked) -> Parts:
        match asked.args:
            case LogArgs() as args:
                async with aclosing(self._log(args)) as parts:
                    async for part in parts:
                        yield part
            case EventsArgs() as args:
                yield self._events_of(args)
            case HashArgs(hash=word) if asked.question.q == "blob":
                yield self._blob(bytes.fromhex(word))
            case HashArgs(hash=word):
                yield msgspec.json.encode({"holds": self.holds(bytes.fromhex(word))})

    async def _log(self, args: LogArgs) -> Parts:
        path = self._logs(args.slot)
        if path is None:
            what = f"no log of a slot {args.slot} here" if args.slot else "this node writes its log to a terminal"
            raise TelaError(what, hint="tela status shows its engines and their logs", code="no_log")
        async with asyncio.timeout(DEADLINE_S):
            text, place = await asyncio.to_thread(tail, path, args.lines, args.bytes)
        yield text
        if args.follow:
            async with aclosing(follow(path, place)) as more:
                async for part in more:
                    yield part

    def _events_of(self, args: EventsArgs) -> bytes:
        if self._events is None:
            raise TelaError("this node keeps no journal of events", code="no_events")
        oldest = max(0, self._events.last_seq - MAX_EVENTS)  # what is older lies on the disk, for the own faces only
        since = max(oldest, args.since if args.since >= 0 else self._events.last_seq - args.limit)
        lines: list[bytes] = []
        size = 0
        for event in self._events.since(since, args.limit):
            line = msgspec.json.encode(event) + b"\n"
            size += len(line)
            if size > MAX_EVENTS_B:
                break  # whole lines only; the rest can be asked for
            lines.append(line)
        return b"".join(lines)

    def _blob(self, digest: bytes) -> bytes:
        blob = self._blobs.get(digest)
        if blob is None:
            raise TelaError("no such blob here", code="no_blob")
        return blob


def _is_following(asked: Asked) -> bool:
    return isinstance(asked.args, LogArgs) and asked.args.follow


def _refuse(stream: Stream, error: TelaError) -> None:
    stream.reply(msgspec.json.encode(Answered(ok=False, code=error.code, message=error.message, hint=error.hint)))
    stream.end()


async def _write(stream: Stream, part: bytes) -> None:
    for start in range(0, len(part), SLICE_B):
        stream.write(part[start : start + SLICE_B])
        async with asyncio.timeout(STALL_S):
            await stream.drain()
