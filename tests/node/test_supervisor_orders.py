"""What an operator may ask of an engine slot: drain, take that back, start anew, end now."""

import asyncio
import os
import signal
import time

import pytest

from node.engine.spec import EngineSpec
from registry.errors import TelaError
from registry.kinds import Cause
from registry.lifecycle import Rank
from tests.node.demo_client import run
from tests.node.engine_slot import Fake, at, demo, is_alive, slot

STUBBORN = "sh -c 'trap \"\" TERM; echo up; while :; do sleep 60; done' {port}"


class Load:
    """Requests under way, as a test says."""

    def __init__(self) -> None:
        self.is_idle = asyncio.Event()
        self.asked = asyncio.Event()

    async def idle(self) -> None:
        self.asked.set()
        await self.is_idle.wait()


def test_a_drained_engine_takes_work_again(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            one.supervisor.drain()
            one.supervisor.undrain()
            assert [s.draining for s in one.published[-2:]] == [True, False]

    run(live)


def test_a_drain_outlives_the_run(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            pid = (await one.serving()).pid
            assert pid is not None
            one.supervisor.drain()
            os.kill(pid, signal.SIGKILL)
            assert (await one.serving(8)).draining

    run(live)


def test_an_engine_that_ends_while_its_node_does_is_not_started_again(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            first = await one.serving()
            one.supervisor.drain()
            one.supervisor.begin_no_more()
            assert first.pid is not None
            os.kill(first.pid, signal.SIGTERM)  # as Slurm tells every process of a job
            await one.until(lambda s: s.rank is Rank.LEFT)
            assert {s.run for s in one.published} == {first.run}

    run(live)


def test_a_leaving_engine_takes_no_work_again(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.supervisor.drain_and_stop())
                await one.until(lambda s: s.draining)
                one.supervisor.undrain()
                assert one.supervisor.state.draining

    run(live)


def test_a_restart_drains_and_begins_another_run_that_does_not(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            first = await one.serving()
            assert first.pid is not None
            await one.supervisor.restart("new flags")
            assert one.supervisor.current_run == 8
            assert not is_alive(first.pid)
            await one.serving(8)
            of_first = [(s.rank, s.draining, s.cause) for s in one.published if s.run == 7]
            assert (Rank.SERVING, True, None) in of_first
            assert of_first[-1] == (Rank.DOWN, True, Cause(reason="restarted"))
            assert not any(s.draining for s in one.published if s.run == 8)

    run(live)


def test_a_restart_of_a_drained_engine_leaves_it_drained(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            one.supervisor.drain()
            await one.supervisor.restart("new flags")
            assert (await one.serving(8)).draining

    run(live)


def test_a_restart_waits_for_what_is_under_way(tmp_path):
    async def live() -> None:
        load = Load()
        async with slot(demo(tmp_path), idle=load.idle) as one, asyncio.TaskGroup() as tasks:
            await one.serving()
            restart = tasks.create_task(one.supervisor.restart("new flags"))
            await load.asked.wait()
            assert one.supervisor.is_serving
            assert await one.ask() == 200
            load.is_idle.set()
            await restart
            assert one.supervisor.current_run == 8

    run(live)


def test_a_restart_waits_no_longer_than_the_grace(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, drain_s=0.05), idle=Load().idle) as one:
            await one.serving()
            await one.supervisor.restart("new flags")
            assert one.supervisor.current_run == 8

    run(live)


def test_a_restart_that_is_given_up_takes_its_draining_back(tmp_path):
    async def live() -> None:
        load = Load()
        async with slot(demo(tmp_path), idle=load.idle) as one, asyncio.TaskGroup() as tasks:
            await one.serving()
            restart = tasks.create_task(one.supervisor.restart("new flags"))
            await load.asked.wait()
            restart.cancel()
            await asyncio.wait({restart})
            assert not one.supervisor.state.draining
            assert one.supervisor.is_serving

    run(live)


def test_two_restarts_at_once_are_one(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.supervisor.restart("one"))
                tasks.create_task(one.supervisor.restart("two"))
            await one.serving(8)
            assert one.supervisor.current_run == 8

    run(live)


def test_a_restart_takes_over_from_one_that_was_given_up(tmp_path):
    async def live() -> None:
        load = Load()
        async with slot(demo(tmp_path), idle=load.idle) as one, asyncio.TaskGroup() as tasks:
            await one.serving()
            first = tasks.create_task(one.supervisor.restart("one"))
            await load.asked.wait()
            second = tasks.create_task(one.supervisor.restart("two"))
            await asyncio.sleep(0)
            first.cancel()
            load.is_idle.set()
            await second
            assert one.supervisor.current_run == 8

    run(live)


def test_a_restart_does_not_wait_for_the_backoff(tmp_path):
    spec = EngineSpec(slot="gpu0", command="no-such-engine {port}", log=tmp_path / "log")

    async def live() -> None:
        async with slot(spec) as one:
            await one.down(11)  # the next wait is of seconds
            before = time.monotonic()
            await one.supervisor.restart("installed it")
            assert one.supervisor.current_run == 12
            assert time.monotonic() - before < 0.5

    run(live)


def test_an_engine_that_was_not_started_here_is_not_restarted(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            await one.serving()
            with pytest.raises(TelaError, match="did not start"):
                await one.supervisor.restart("new flags")
            assert one.supervisor.is_serving

    run(live)


def test_an_engine_that_leaves_is_not_restarted(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            await one.supervisor.drain_and_stop()
            with pytest.raises(TelaError, match="leaving"):
                await one.supervisor.restart("new flags")

    run(live)


def test_a_restart_under_way_ends_when_the_slot_is_told_to_leave(tmp_path):
    async def live() -> None:
        load = Load()
        async with slot(demo(tmp_path), idle=load.idle) as one:
            await one.serving()
            restart = asyncio.ensure_future(one.supervisor.restart("new flags"))
            await load.asked.wait()
            await one.supervisor.drain_and_stop()
            with pytest.raises(TelaError, match="leaving"):
                await restart

    run(live)


def test_ending_now_does_not_wait_for_a_stubborn_engine(tmp_path):
    spec = EngineSpec(slot="gpu0", command=STUBBORN, log=tmp_path / "log", stop_grace_s=3600.0)

    async def live() -> None:
        async with slot(spec) as one:
            pid = (await one.until(lambda s: s.pid is not None)).pid
            assert pid is not None
            await one.supervisor.drain_and_stop(now=True)
            assert not is_alive(pid)
            assert one.published[-1].rank is Rank.LEFT

    run(live)


def test_a_second_word_ends_an_engine_that_is_waited_for(tmp_path):
    spec = EngineSpec(slot="gpu0", command=STUBBORN, log=tmp_path / "log", stop_grace_s=3600.0)

    async def live() -> None:
        async with slot(spec) as one, asyncio.TaskGroup() as tasks:
            await one.until(lambda s: s.pid is not None)
            while "up" not in spec.log.read_text():
                await asyncio.sleep(0.005)
            patient = tasks.create_task(one.supervisor.drain_and_stop())
            await one.until(lambda s: s.draining)
            await one.supervisor.drain_and_stop(now=True)
            await patient
            assert one.published[-1].rank is Rank.LEFT

    run(live)
