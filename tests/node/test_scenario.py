"""What the steps of the demo's script are made of: counting calls, and waiting for what must come to be."""

import asyncio
import contextlib
import socket
from pathlib import Path
from random import Random

import aiohttp
import pytest

from node.client import Answer, Caller, Control
from node.clock import SystemClock
from node.scenario.expect import hold, until
from node.scenario.traffic import Door, Tally, Traffic, until_called
from registry.errors import TelaError


def answer(trouble=None, *, node="w@demo", status=200, is_silent=False):
    return Answer(status=status, node=node, text="", first_s=0, total_s=0, trouble=trouble, is_silent=is_silent)


def test_a_tally_counts_whole_answers_and_streams_apart_and_who_answered():
    tally = Tally()
    tally.add(answer(), stream=False)
    tally.add(answer("cut"), stream=True)
    assert (tally.whole, tally.streams, tally.lost, tally.cut) == (1, 1, 0, 1)
    assert tally.by_host == {"w": 2}
    assert tally.judge() == "2 requests, none lost, 1 stream ended with an error event"


def test_a_whole_answer_that_did_not_come_is_held_against_the_fabric():
    tally = Tally()
    tally.add(answer(), stream=False)
    tally.add(answer("503: nobody", node=""), stream=False)
    with pytest.raises(AssertionError, match="1 of 2 failed: 503: nobody"):
        tally.judge()


def test_a_stream_that_ends_without_a_word_is_held_against_the_fabric():
    tally = Tally()
    tally.add(answer("ended without its mark", is_silent=True), stream=True)
    with pytest.raises(AssertionError, match="without a word"):
        tally.judge()


@contextlib.asynccontextmanager
async def _closed_door():
    """Calls to a door nobody opened."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        async with aiohttp.ClientSession(trust_env=False) as session:
            now = SystemClock().now
            door = Door("door", Caller(session, url, "key", now), Path())
            yield Traffic([door], "m", rng=Random(1), now=now)


def test_a_step_that_fails_under_load_says_why_and_every_call_is_counted():
    async def script():
        async with _closed_door() as traffic:
            try:
                async with traffic.load() as tally:
                    while not tally.calls:
                        await asyncio.sleep(0.01)
                    hold(False, "so it is not")
            except AssertionError as failure:
                return str(failure), tally, traffic.doors[0]

    said, tally, door = asyncio.run(script())
    assert said == "so it is not"
    assert tally.lost + tally.cut == tally.calls == door.requests > 0


def test_what_does_not_come_to_be_in_time_is_said():
    async def never():
        return False

    with pytest.raises(AssertionError, match="within 0 s it rained"):
        asyncio.run(until(never, 0.0, "it rained"))


def test_a_door_that_does_not_answer_is_an_error_and_no_hang():
    async def script():
        async with _closed_door() as traffic:
            await until_called(traffic.doors[0].caller, "m", 0.0)

    with pytest.raises((TelaError, aiohttp.ClientError)):
        asyncio.run(script())


def test_a_control_socket_where_nobody_answers_is_named(tmp_path):
    with pytest.raises(TelaError) as trouble:
        asyncio.run(Control(tmp_path / "none.sock").view())
    assert str(tmp_path / "none.sock") in trouble.value.message
