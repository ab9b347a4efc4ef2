"""Asks other nodes over links, and trusts nothing of what comes back: it may be slow, endless or garbage."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing, suppress
from random import Random

import msgspec

from gossip.errors import LocalProtocolError
from gossip.mesh import Mesh
from gossip.stream import Stream, StreamReset
from node.ask.answer import Answers
from node.ask.question import (
    ASK,
    MAX_BLOB_B,
    MAX_EVENTS_B,
    MAX_TAIL_B,
    Asked,
    LogArgs,
    Question,
    blob_hash,
    decode,
    encode,
    read_head,
)
from registry.errors import TelaError

ANSWER_S = 12.0  # the other side gives itself 10
HOLDS_S = 2.0
_MOST_B = {"log": MAX_TAIL_B, "events": MAX_EVENTS_B, "blob": MAX_BLOB_B, "holds": 256}


class Asker:
    """Asks for this node's faces. Mutable only through its parts.

    Args:
        mesh: the links.
        answers: what this node itself answers.
        hubs: ids of the hubs that are known.
        fabric: unix seconds, fabric time.
        rng: nonces come from it.
    """

    def __init__(
        self,
        *,
        mesh: Mesh,
        answers: Answers,
        hubs: Callable[[], Collection[str]],
        fabric: Callable[[], float],
        rng: Random,
    ) -> None:
        self._mesh = mesh
        self._answers = answers
        self._hubs = hubs
        self._fabric = fabric
        self._rng = rng

    async def ask(self, node: str, raw: bytes) -> AsyncGenerator[bytes, None]:
        """The answer of a node to an encoded question, as it comes.

        Raises:
            TelaError: the question is none, there is no link, the node says no, or its answer is not what it should be.
        """
        asked = decode(raw)
        if asked.question.node != node:
            raise TelaError("the question is for another node", code="bad_question")
        own = self._answers.whom.node
        answer = self._answers.answer(asked, own) if node == own else self._over_link(node, raw, asked)
        async with aclosing(answer) as parts:
            async for part in parts:
                yield part

    async def holders(self, digest: bytes) -> frozenset[str]:
        """Ids of the hubs that say they hold a record, and of this node when it does; within 2 s."""
        own = self._answers.whom.node
        held = {own} if self._answers.holds(digest) else set()

        async def look(hub: str) -> None:
            with suppress(TelaError, TimeoutError):
                async with asyncio.timeout(HOLDS_S):
                    if await self._holds(hub, digest):
                        held.add(hub)

        async with asyncio.TaskGroup() as tasks:
            for hub in set(self._hubs()) - {own}:
                tasks.create_task(look(hub))
        return frozenset(held)

    async def _holds(self, hub: str, digest: bytes) -> bool:
        question = Question(
            q="holds", args={"hash": digest.hex()}, node=hub, at=self._fabric(), nonce=self._rng.randbytes(16)
        )
        async with aclosing(self.ask(hub, encode(question))) as parts:
            text = b"".join([part async for part in parts])
        try:
            return msgspec.json.decode(text, type=dict[str, bool]).get("holds", False)
        except (msgspec.MsgspecError, RecursionError):
            return False

    async def _over_link(self, node: str, raw: bytes, asked: Asked) -> AsyncGenerator[bytes, None]:
        try:
            stream = self._mesh.open(node, ASK, raw)
        except LocalProtocolError:
            raise TelaError(
                f"this node has no link to {node}",
                hint="ask on a hub that has one: `tela nodes` shows which hubs a node is linked to",
                code="not_linked",
            ) from None
        try:
            stream.end()
            async with aclosing(_parts(stream, asked)) as parts:
                async for part in parts:
                    yield part
        except StreamReset as reset:
            raise TelaError(f"the answer broke off: {reset.message}", hint="ask again", code="broken") from None
        except TimeoutError:
            raise TelaError(
                f"the node did not answer within {ANSWER_S:.0f} s", hint="ask again later", code="no_answer"
            ) from None
        finally:
            stream.close()


async def _parts(stream: Stream, asked: Asked) -> AsyncGenerator[bytes, None]:
    deadline = asyncio.get_running_loop().time() + ANSWER_S
    async with asyncio.timeout_at(deadline):
        head = read_head(await stream.reply_head())
    if not head.ok:
        raise TelaError(head.message or "the node refuses", hint=head.hint, code=head.code)
    if asked.question.q == "blob":
        yield await _blob(stream, asked, deadline)
        return
    yield b""  # granted: whoever passes it on may begin
    is_following = isinstance(asked.args, LogArgs) and asked.args.follow
    left = _MOST_B[asked.question.q]
    while (part := await _read(stream, None if is_following else deadline)) is not None:
        left -= len(part)
        if left < 0 and not is_following:
            raise _too_long()
        yield part


async def _blob(stream: Stream, asked: Asked, deadline: float) -> bytes:
    parts: list[bytes] = []
    left = MAX_BLOB_B
    while (part := await _read(stream, deadline)) is not None:
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise _too_long()
    blob = b"".join(parts)
    if blob_hash(blob).hex() != asked.question.args["hash"]:
        raise TelaError("the node sent something else than was asked for", code="bad_answer")
    return blob


async def _read(stream: Stream, deadline: float | None) -> bytes | None:
    async with asyncio.timeout_at(deadline):  # None: whoever follows a log waits as long as he likes
        return await stream.read()


def _too_long() -> TelaError:
    return TelaError("the answer is longer than any to this question", code="bad_answer")
