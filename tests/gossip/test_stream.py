import asyncio
from contextlib import suppress

import pytest

from gossip.errors import LocalProtocolError
from gossip.muxevents import ResetCode
from gossip.stream import Stream, StreamReset
from tests.autojump import run
from tests.gossip.test_link import End, joined, settle

BULK = b"x" * 400_000  # more than a stream may queue


class Pair:
    """One stream between two live links, and both its ends."""

    def __init__(self, a: End, b: End, here: Stream, there: Stream) -> None:
        self.a, self.b, self.here, self.there = a, b, here, there

    async def settle(self) -> None:
        await settle(self.a, self.b)

    def cut(self) -> None:
        for end in (self.a, self.b):
            end.wire.end("cut")


async def opened() -> Pair:
    a, b = joined()
    here = a.link.open(1, b"the question")
    await settle(a, b)
    return Pair(a, b, here, b.streams[0])


async def started(waiting) -> asyncio.Task:
    """A task that has come to its first wait."""
    task = asyncio.get_running_loop().create_task(waiting)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def code_of(waiting) -> int:
    with pytest.raises(StreamReset) as reset:
        await waiting
    return reset.value.reset_code


def test_a_stream_knows_its_kind_its_head_and_who_is_there():
    async def main():
        pair = await opened()
        assert (pair.there.kind, pair.there.head) == (1, b"the question")
        assert pair.here.peer == pair.a.link.node
        assert pair.there.peer == pair.b.link.node

    run(main())


def test_bytes_come_in_order_and_none_marks_the_end_for_ever():
    async def main():
        pair = await opened()
        for part in (b"one", b"two", b"three"):
            pair.here.write(part)
            await pair.settle()
        pair.here.end()
        await pair.settle()
        got = [await pair.there.read() for _ in range(5)]
        assert got == [b"one", b"two", b"three", None, None]

    run(main())


def test_a_reader_wakes_when_bytes_come():
    async def main():
        pair = await opened()
        reading = await started(pair.there.read())
        pair.here.write(b"now")
        await pair.settle()
        assert await reading == b"now"

    run(main())


def test_the_head_of_the_answer_is_waited_for_and_stays_known():
    async def main():
        pair = await opened()
        waiting = await started(pair.here.reply_head())
        pair.there.reply(b"the answer")
        await pair.settle()
        assert await waiting == b"the answer"
        assert await pair.here.reply_head() == b"the answer"

    run(main())


def test_an_answer_that_ends_without_a_head_was_truncated():
    async def main():
        pair = await opened()
        waiting = await started(pair.here.reply_head())
        pair.there.end()
        await pair.settle()
        assert await code_of(waiting) == ResetCode.TRUNCATED

    run(main())


def test_an_answer_has_one_head():
    async def main():
        pair = await opened()
        pair.there.reply(b"one")
        with pytest.raises(LocalProtocolError):
            pair.there.reply(b"two")

    run(main())


# --- waiting for room


def test_with_room_drain_returns_at_once():
    async def main():
        pair = await opened()
        pair.here.write(b"little")
        async with asyncio.timeout(0):
            await pair.here.drain()

    run(main())


def test_drain_waits_until_the_peer_has_read():
    async def main():
        pair = await opened()
        pair.here.write(BULK * 2)
        draining = await started(pair.here.drain())
        await pair.settle()
        assert not draining.done()  # a window is under way and more is queued than may be
        got = 0
        while not draining.done():
            got += len(await pair.there.read() or b"")
            await pair.settle()
        assert got <= len(BULK) * 2
        await draining

    run(main())


def test_a_peer_that_does_not_read_bounds_what_is_under_way():
    async def main():
        pair = await opened()
        written = 0

        async def write():
            nonlocal written
            while True:
                pair.here.write(b"x" * 10_000)
                written += 10_000
                await pair.here.drain()

        writing = asyncio.get_running_loop().create_task(write())
        for _ in range(500):
            await pair.settle()
        assert written < 600_000  # a window at the peer, a buffer here
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing

    run(main())


@pytest.mark.parametrize("how", ["peer resets", "we reset", "link lost"])
def test_the_end_of_a_stream_wakes_whoever_waits_for_room(how):
    async def main():
        pair = await opened()
        pair.here.write(BULK * 2)
        draining = await started(pair.here.drain())
        code = await _break(pair, how)
        assert await code_of(draining) == code

    run(main())


@pytest.mark.parametrize("how", ["peer resets", "we reset", "link lost"])
@pytest.mark.parametrize("what", ["read", "reply_head"])
def test_the_end_of_a_stream_wakes_whoever_reads(how, what):
    async def main():
        pair = await opened()
        reading = await started(getattr(pair.here, what)())
        code = await _break(pair, how)
        assert await code_of(reading) == code

    run(main())


async def _break(pair: Pair, how: str) -> ResetCode:
    if how == "peer resets":
        pair.there.reset(ResetCode.ENGINE)
        await pair.settle()
        return ResetCode.ENGINE
    if how == "we reset":
        pair.here.reset(ResetCode.TIMEOUT)
        return ResetCode.TIMEOUT
    pair.cut()
    return ResetCode.TRUNCATED


def test_a_waiter_that_was_cancelled_disturbs_nobody():
    async def main():
        pair = await opened()
        reading = await started(pair.here.read())
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        pair.there.write(b"later")
        await pair.settle()
        assert await pair.here.read() == b"later"

    run(main())


def test_drain_after_both_ends_were_said_has_nothing_to_wait_for():
    async def main():
        pair = await opened()
        pair.here.write(BULK * 2)
        pair.here.end()
        pair.there.end()
        draining = await started(pair.here.drain())
        got = 0
        while got < len(BULK * 2):
            await pair.settle()
            got += len(await pair.there.read() or b"")
        await draining
        await pair.here.drain()
        assert not pair.here.is_lost

    run(main())


# --- its end


@pytest.mark.parametrize(
    "verb", [lambda s: s.write(b"x"), lambda s: s.reply(b"x"), lambda s: s.end()], ids=["write", "reply", "end"]
)
def test_a_reset_stream_takes_nothing_more(verb):
    async def main():
        pair = await opened()
        pair.here.reset()
        await pair.settle()
        for stream in (pair.here, pair.there):
            with pytest.raises(StreamReset):
                verb(stream)

    run(main())


def test_what_was_not_read_is_gone_with_a_reset():
    async def main():
        pair = await opened()
        pair.here.write(b"half of it")
        await pair.settle()
        pair.here.reset()
        await pair.settle()
        assert await code_of(pair.there.read()) == ResetCode.CANCEL

    run(main())


def test_resetting_again_changes_nothing():
    async def main():
        pair = await opened()
        pair.here.reset(ResetCode.TIMEOUT)
        pair.here.reset(ResetCode.CANCEL)
        await pair.settle()
        assert await code_of(pair.there.read()) == ResetCode.TIMEOUT
        pair.there.reset()
        assert await code_of(pair.there.read()) == ResetCode.TIMEOUT

    run(main())


@pytest.mark.parametrize("ended", ["neither", "ours", "theirs"])
def test_closing_without_both_ends_resets_the_peer(ended):
    async def main():
        pair = await opened()
        if ended == "ours":
            pair.here.end()
        elif ended == "theirs":
            pair.there.end()
        await pair.settle()
        pair.here.close()
        await pair.settle()
        assert pair.there.is_lost
        assert await code_of(pair.there.drain()) == ResetCode.CANCEL

    run(main())


def test_closing_after_both_ends_is_no_reset_and_what_is_queued_still_leaves():
    async def main():
        pair = await opened()
        pair.there.end()
        await pair.settle()
        assert await pair.here.read() is None
        pair.here.write(BULK)
        pair.here.end()
        pair.here.close()
        got = b""
        while True:
            await pair.settle()
            data = await pair.there.read()
            if data is None:
                break
            got += data
        assert got == BULK
        assert not pair.there.is_lost

    run(main())


@pytest.mark.parametrize("how", ["peer resets", "peer closes", "link lost", "peer resets, then link lost"])
def test_the_loss_of_a_stream_is_told_once(how):
    async def main():
        pair = await opened()
        told: list[int] = []
        pair.here.on_lost = lambda: told.append(1)
        if how == "peer closes":
            pair.there.close()
        elif how.startswith("peer resets"):
            pair.there.reset()
        await pair.settle()
        if how.endswith("link lost"):
            pair.cut()
        assert told == [1]

    run(main())


@pytest.mark.parametrize("how", ["reset", "close", "both ended"])
def test_our_own_end_of_a_stream_is_no_loss(how):
    async def main():
        pair = await opened()
        told: list[int] = []
        pair.here.on_lost = lambda: told.append(1)
        if how == "both ended":
            pair.here.end()
            pair.there.end()
            await pair.settle()
            pair.here.close()
            pair.there.close()
        else:
            getattr(pair.here, how)()
        await pair.settle()
        pair.cut()
        assert not told

    run(main())


def test_a_stream_lost_before_anybody_listened_is_lost_all_the_same():
    async def main():
        pair = await opened()
        pair.there.reset()
        await pair.settle()
        assert pair.here.is_lost
        assert await code_of(pair.here.read()) == ResetCode.CANCEL

    run(main())


@pytest.mark.parametrize(("code", "word"), [(ResetCode.FLOW_STALL, "flow_stall"), (3_000, "3000")])
def test_a_reset_says_its_reason_in_words_when_it_has_one(code, word):
    reset = StreamReset(code)
    assert reset.code == word
    assert word in reset.message
    assert reset.reset_code == code
