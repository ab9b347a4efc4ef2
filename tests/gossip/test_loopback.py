"""Streams of a node to itself: what `test_stream` asks of those on a link, and what holds their memory down."""

import asyncio
from contextlib import suppress

import pytest

from gossip.errors import LocalProtocolError
from gossip.loopback import BUFFER_B, Loopback
from gossip.mux import MAX_STREAMS
from gossip.muxevents import ResetCode
from gossip.muxframes import MAX_HEAD_B
from gossip.stream import Stream, StreamReset
from tests.autojump import run

BULK = b"x" * 400_000  # more than a stream may hold


class Own:
    """A loopback, and the far ends it was given."""

    def __init__(self):
        self.far: list[Stream] = []
        self.loopback = Loopback("me", self.far.append)

    async def pair(self, head=b"the question"):
        here = self.loopback.open(1, head)
        await settle()
        return here, self.far[-1]


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


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


async def read_all(stream):
    parts = []
    while (data := await stream.read()) is not None:
        parts.append(data)
    return b"".join(parts)


def test_both_ends_know_the_kind_and_the_head_and_that_this_node_is_there():
    async def main():
        here, there = await Own().pair()
        assert (there.kind, there.head) == (1, b"the question")
        assert here.peer == there.peer == "me"
        assert here is not there

    run(main())


def test_a_whole_answer_goes_there_and_back():
    async def main():
        here, there = await Own().pair()
        here.write(b"one ")
        here.write(b"two")
        here.end()
        assert await read_all(there) == b"one two"
        waiting = await started(here.reply_head())
        there.reply(b"the answer")
        there.write(b"body")
        there.end()
        assert await waiting == await here.reply_head() == b"the answer"
        assert await read_all(here) == b"body"
        assert [await here.read(), await there.read()] == [None, None]
        assert not here.is_lost
        assert not there.is_lost

    run(main())


def test_a_stream_carries_ten_times_its_buffer_in_both_directions_at_once():
    async def main():
        here, there = await Own().pair()
        body = bytes(range(256)) * 10_240

        async def send(stream, data):
            for start in range(0, len(data), 50_000):
                stream.write(data[start : start + 50_000])
                await stream.drain()
            stream.end()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send(here, body))
            tasks.create_task(send(there, body[::-1]))
            got = [tasks.create_task(read_all(stream)) for stream in (there, here)]
        assert [each.result() for each in got] == [body, body[::-1]]

    run(main())


def test_nothing_is_told_within_the_call_that_caused_it():
    async def main():
        own = Own()
        here = own.loopback.open(1, b"")
        assert not own.far
        await settle()
        told: list[int] = []
        own.far[0].on_lost = lambda: told.append(1)
        here.reset()
        assert not told
        await settle()
        assert told == [1]

    run(main())


def test_what_is_opened_and_broken_off_at_once_is_seen_in_that_order():
    async def main():
        own = Own()
        own.loopback.open(1, b"").reset(ResetCode.TIMEOUT)
        await settle()
        assert await code_of(own.far[0].read()) == ResetCode.TIMEOUT

    run(main())


# --- heads and ends


def test_an_answer_that_ends_without_a_head_was_truncated():
    async def main():
        here, there = await Own().pair()
        there.end()
        assert await code_of(here.reply_head()) == ResetCode.TRUNCATED

    run(main())


def test_an_answer_has_one_head_which_comes_first_and_from_the_far_end():
    async def main():
        own = Own()
        here, there = await own.pair()
        with pytest.raises(LocalProtocolError):
            here.reply(b"mine")
        there.reply(b"one")
        with pytest.raises(LocalProtocolError):
            there.reply(b"two")
        _, late = await own.pair()
        late.write(b"body")
        with pytest.raises(LocalProtocolError):
            late.reply(b"head")

    run(main())


@pytest.mark.parametrize("verb", [lambda s: s.write(b"x"), lambda s: s.end()], ids=["write", "end"])
def test_an_ended_half_takes_nothing_more(verb):
    async def main():
        here, _ = await Own().pair()
        here.end()
        with pytest.raises(LocalProtocolError):
            verb(here)

    run(main())


def test_a_head_is_as_long_as_on_a_link_at_most():
    async def main():
        own = Own()
        _, there = await own.pair(b"h" * MAX_HEAD_B)
        for say in (lambda head: own.loopback.open(1, head), there.reply):
            with pytest.raises(LocalProtocolError, match="a head of"):
                say(b"h" * (MAX_HEAD_B + 1))

    run(main())


# --- waiting for room


def test_a_reader_that_does_not_read_bounds_what_is_held():
    async def main():
        here, there = await Own().pair()
        written = 0

        async def write():
            nonlocal written
            while True:
                here.write(b"x" * 10_000)
                written += 10_000
                await here.drain()

        writing = asyncio.get_running_loop().create_task(write())
        for _ in range(500):
            await settle()
        assert BUFFER_B <= written < BUFFER_B + 10_000
        read = 0
        while read < 3 * BUFFER_B:
            read += len(await there.read())
            await settle()
        assert written - read < BUFFER_B + 10_000
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing

    run(main())


def test_with_room_drain_returns_at_once():
    async def main():
        here, _ = await Own().pair()
        here.write(b"little")
        async with asyncio.timeout(0):
            await here.drain()

    run(main())


@pytest.mark.parametrize("how", ["far end resets", "near end resets", "this node stops"])
def test_the_end_of_a_stream_wakes_whoever_waits(how):
    async def main():
        own = Own()
        here, there = await own.pair()
        here.write(BULK)
        waiting = [await started(here.drain()), await started(here.read())]
        if how == "far end resets":
            there.reset(ResetCode.ENGINE)
        elif how == "near end resets":
            here.reset(ResetCode.TIMEOUT)
        else:
            own.loopback.close()
        codes = [await code_of(each) for each in waiting]
        expected = {"far end resets": ResetCode.ENGINE, "near end resets": ResetCode.TIMEOUT}
        assert codes == [expected.get(how, ResetCode.TRUNCATED)] * 2

    run(main())


def test_a_writer_that_ended_is_woken_when_its_reader_is_done_without_reading():
    async def main():
        here, there = await Own().pair()
        here.write(BULK)
        here.end()
        there.end()
        await settle()
        draining = await started(here.drain())
        there.close()
        await settle()
        await draining
        assert not here.is_lost

    run(main())


# --- its end


@pytest.mark.parametrize("who", ["near", "far"])
def test_a_reset_from_either_end_is_seen_at_the_other_with_its_code(who):
    async def main():
        pair = await Own().pair()
        one, other = pair if who == "near" else pair[::-1]
        one.write(b"half of it")
        one.reset(ResetCode.ENGINE)
        one.reset(ResetCode.CANCEL)
        assert await code_of(other.read()) == ResetCode.ENGINE  # what was not read is gone
        for stream in pair:
            assert stream.is_lost
            with pytest.raises(StreamReset):
                stream.write(b"x")

    run(main())


@pytest.mark.parametrize("ended", ["neither", "ours", "theirs"])
def test_closing_without_both_ends_resets_the_other(ended):
    async def main():
        here, there = await Own().pair()
        if ended != "neither":
            (here if ended == "ours" else there).end()
        await settle()
        here.close()
        await settle()
        assert await code_of(there.drain()) == ResetCode.CANCEL

    run(main())


def test_closing_after_both_ends_is_no_reset_and_what_was_written_is_still_read():
    async def main():
        here, there = await Own().pair()
        there.end()
        await settle()
        here.write(BULK)
        here.end()
        here.close()
        assert await read_all(there) == BULK
        assert not there.is_lost

    run(main())


@pytest.mark.parametrize("how", ["reset", "close", "this node stops", "reset, then this node stops"])
def test_the_loss_of_a_stream_is_told_once(how):
    async def main():
        own = Own()
        here, there = await own.pair()
        told: list[int] = []
        here.on_lost = lambda: told.append(1)
        if how == "close":
            there.close()
        elif how.startswith("reset"):
            there.reset()
        await settle()
        if how.endswith("this node stops"):
            own.loopback.close()
        await settle()
        assert told == [1]

    run(main())


@pytest.mark.parametrize("how", ["reset", "close", "both ended"])
def test_our_own_end_of_a_stream_is_no_loss(how):
    async def main():
        own = Own()
        here, there = await own.pair()
        told: list[int] = []
        here.on_lost = lambda: told.append(1)
        if how == "both ended":
            here.end()
            there.end()
            await settle()
            here.close()
            there.close()
        else:
            getattr(here, how)()
        await settle()
        own.loopback.close()
        assert not told

    run(main())


# --- limits


def test_as_many_streams_live_as_on_a_link_and_those_that_ended_do_not_count():
    async def main():
        own = Own()
        streams = [own.loopback.open(1, b"") for _ in range(MAX_STREAMS)]
        await settle()
        with pytest.raises(LocalProtocolError) as full:
            own.loopback.open(1, b"")
        assert full.value.code == "too_many_streams"
        streams[0].reset()
        streams[1].end()
        own.far[1].end()
        own.far[2].close()
        for _ in range(3):
            own.loopback.open(1, b"")
        with pytest.raises(LocalProtocolError):
            own.loopback.open(1, b"")

    run(main())


def test_a_node_that_stops_opens_none():
    async def main():
        own = Own()
        own.loopback.close()
        assert not own.loopback.is_live
        with pytest.raises(LocalProtocolError):
            own.loopback.open(1, b"")

    run(main())
