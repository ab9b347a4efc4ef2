"""An engine slot through its lives: real demo engines as children, real sockets, real signals."""

import asyncio
import itertools
import os
import re
import signal
import time
from random import Random

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.engine.backoff import FIRST_S, GOOD_SERVICE_S, LONGEST_S, Backoff
from node.engine.spec import EngineSpec
from node.engine.state import EngineState
from registry.errors import TelaError
from registry.ids import key_id, replica_id
from registry.kinds import Cause, Replica, encode_body, read_body
from registry.lifecycle import Rank
from registry.record import Draft, seal, seed_signer
from tests.node.demo_client import MODEL, run
from tests.node.engine_slot import NEVER_S, Fake, Slot, at, demo, is_alive, slot


def test_an_engine_joins_loads_and_serves(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--load-ms 150", model=MODEL)) as one:
            state = await one.serving()
            assert [re.sub(r" \d+ s", "", s.phase) for s in one.published] == [
                "starting",
                "loading, /health refused",
                "loading, /health 503",
                "loading, waiting for a first result",
                "",
            ]
            assert {s.run for s in one.published} == {7}
            assert state.pid == one.supervisor.pid
            assert one.supervisor.is_serving
            assert [(o.id, o.context_tokens) for o in state.offers] == [(MODEL, 8192)]
            assert await one.ask() == 200

    run(live)


def test_until_it_serves_it_has_no_url(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--load-ms 60000")) as one:
            await one.until(lambda s: "503" in s.phase)
            assert one.supervisor.url is None
            assert not one.supervisor.is_serving

    run(live)


def test_a_killed_engine_is_seen_at_once_and_comes_back_as_a_new_run(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            first = await one.serving()
            assert first.pid is not None
            os.kill(first.pid, signal.SIGKILL)
            before = time.monotonic()
            state = await one.down()
            assert time.monotonic() - before < 1  # a generous 0.1 s: nothing is polled before NEVER_S
            assert state.cause == Cause(reason="killed", signal=9)
            assert (state.pid, one.supervisor.url) == (None, None)
            second = await one.serving(8)
            assert second.pid != first.pid
            assert [s.rank for s in one.published if s.run == 7][-1] is Rank.DOWN

    run(live)


def test_a_crash_under_a_request_tells_its_exit_code(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            with pytest.raises(aiohttp.ClientError):
                await one.ask("crash")
            assert (await one.down()).cause == Cause(reason="exited", exit_code=13)

    run(live)


def test_an_engine_that_crashes_again_and_again_is_another_run_each_time(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--crash-after 0")) as one:
            for number in (7, 8):
                await one.serving(number)
                with pytest.raises(aiohttp.ClientError):
                    await one.ask()
                await one.down(number)

    run(live)


def test_the_wrong_model_does_not_serve_and_is_named(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--model other/model", model=MODEL)) as one:
            await one.until(lambda s: s.phase == f"wrong model: wanted {MODEL}, lists other/model")
            assert one.supervisor.url is None

    run(live)


def test_a_command_that_exits_at_once_is_tried_ever_more_slowly(tmp_path):
    starts: dict[int, float] = {}
    spec = EngineSpec(slot="gpu0", command="sh -c 'exit 3' {port}", log=tmp_path / "log")

    async def live() -> None:
        async with slot(spec) as one:
            for number in (7, 8, 9, 10):
                assert (await one.down(number)).cause == Cause(reason="exited", exit_code=3)
                starts[number] = time.monotonic()

    run(live)
    waits = [later - earlier for earlier, later in itertools.pairwise(starts.values())]
    assert all(wait >= FIRST_S / 2 * 2**n for n, wait in enumerate(waits))


def test_a_command_that_does_not_exist_is_a_failed_run(tmp_path):
    spec = EngineSpec(slot="gpu0", command="no-such-engine {port}", log=tmp_path / "log")

    async def live() -> None:
        async with slot(spec) as one:
            state = await one.down()
            assert state.cause == Cause(reason="not-started")
            assert state.phase == "cannot start: command not found"
            await one.down(8)

    run(live)


def test_an_engine_that_hangs_is_killed_and_started_again(tmp_path):
    spec = demo(tmp_path, watch_s=0.02, probe_timeout_s=0.3, stop_grace_s=0.05)

    async def live() -> None:
        async with slot(spec) as one:
            first = await one.serving()
            assert first.pid is not None
            os.kill(first.pid, signal.SIGSTOP)
            state = await one.down()
            assert state.cause == Cause(reason="unhealthy")
            await one.serving(8)
            assert not is_alive(first.pid)

    run(live)


def test_drain_and_stop_says_draining_then_left_and_leaves_nothing(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            pid = (await one.serving()).pid
            assert pid is not None
            await one.supervisor.drain_and_stop()
            last = [(s.rank, s.draining, s.cause) for s in one.published[-2:]]
            assert last == [(Rank.SERVING, True, None), (Rank.LEFT, True, Cause(reason="stopped"))]
            assert one.supervisor.pid is None
            assert not is_alive(pid)
            assert one.task is not None
            await one.task

    run(live)


def test_a_drained_engine_still_serves(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            one.supervisor.drain()
            assert one.published[-1].draining
            assert await one.ask() == 200

    run(live)


def test_leaving_does_not_wait_for_the_backoff(tmp_path):
    spec = EngineSpec(slot="gpu0", command="no-such-engine {port}", log=tmp_path / "log")

    async def live() -> None:
        async with slot(spec) as one:
            await one.down(9)
            await one.supervisor.drain_and_stop()
            left = one.published[-1]
            assert (left.rank, left.cause) == (Rank.LEFT, Cause(reason="not-started"))

    run(live)


def test_leaving_before_the_start_publishes_nothing(tmp_path):
    async def live() -> None:
        async with aiohttp.ClientSession() as session:
            one = Slot(demo(tmp_path), session)
            await one.supervisor.drain_and_stop()
            await one.supervisor.run()
            assert one.published == []

    run(live)


@pytest.mark.parametrize("flags", ["", "--load-ms 60000"])
def test_cancelling_stops_the_child_before_it_returns(tmp_path, flags):
    async def live() -> None:
        async with slot(demo(tmp_path, flags)) as one:
            pid = (await one.until(lambda s: s.phase == "" or "503" in s.phase)).pid
            assert pid is not None
            assert one.task is not None
            one.task.cancel()
            await asyncio.wait({one.task})
            assert not is_alive(pid)
            assert one.published[-1].rank is Rank.LEFT

    run(live)


def test_cancelling_kills_a_child_that_ignores_term(tmp_path):
    spec = EngineSpec(
        slot="gpu0",
        command="sh -c 'trap \"\" TERM; echo up; while :; do sleep 60; done' {port}",
        log=tmp_path / "log",
        stop_grace_s=0.02,
    )

    async def live() -> None:
        async with slot(spec) as one:
            pid = (await one.until(lambda s: s.pid is not None)).pid
            assert pid is not None
            while "up" not in spec.log.read_text():
                await asyncio.sleep(0.005)
            assert one.task is not None
            one.task.cancel()
            await asyncio.wait({one.task})
            assert not is_alive(pid)

    run(live)


def test_three_failed_probes_bring_a_foreign_engine_down(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            await one.serving()
            fake.status = 503
            state = await one.down()
            assert state.cause == Cause(reason="unhealthy")
            assert [s.phase for s in one.published[-3:]] == [
                "1 of 3 probes failed",
                "2 of 3 probes failed",
                "unhealthy, /health 503",
            ]

    run(live)


def test_one_failed_probe_is_forgiven(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            await one.serving()
            fake.status = 503
            await one.until(lambda s: s.phase == "1 of 3 probes failed")
            fake.status = 200
            await one.until(lambda _: not one.published[-1].phase)
            assert one.supervisor.is_serving

    run(live)


def test_a_foreign_engine_comes_back_as_a_new_run(tmp_path):
    async def live() -> None:
        fake = Fake()
        async with fake:
            spec = at(fake.url, tmp_path)
        async with slot(spec) as one:
            await one.until(lambda s: "/health refused" in s.phase)
            async with fake:
                await one.serving()
            await one.down()
            async with fake:
                assert (await one.serving(8)).pid is None

    run(live)


def test_a_report_and_one_failed_probe_bring_a_foreign_engine_down(tmp_path):
    async def live() -> None:
        fake = Fake()
        async with fake, slot(at(fake.url, tmp_path, watch_s=NEVER_S)) as one:
            await one.serving()
            fake.status = 500
            one.supervisor.report_failure()
            await one.down()

    run(live)


def test_a_report_about_a_healthy_engine_is_looked_into_and_changes_nothing(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path, watch_s=NEVER_S)) as one:
            await one.serving()
            said = len(one.published)
            asked = fake.asked
            one.supervisor.report_failure()
            while fake.asked == asked:
                await asyncio.sleep(0.001)
            fake.models = ["changed"]
            one.supervisor.report_failure()
            await one.until(lambda s: s.offers[:1] != () and s.offers[0].id == "changed")
            assert len(one.published) == said + 1

    run(live)


def test_changed_offers_are_published_once(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            await one.serving()
            fake.models = [MODEL, "an/adapter"]
            await one.until(lambda s: len(s.offers) == 2)
            asked = fake.asked
            while fake.asked < asked + 3:
                await asyncio.sleep(0.001)
            assert [len(s.offers) for s in one.published if s.rank is Rank.SERVING] == [1, 2]

    run(live)


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (None, None),
        ("engine {port}", "http://127.0.0.1:1"),
        ("engine --port 8000", None),
        ("engine '{port}", None),
        (None, "https://127.0.0.1:1"),
        (None, "http://10.0.0.1:8000"),
        (None, "http://127.0.0.1.example.org:8000"),
        (None, "http://user@127.0.0.1:8000"),
        (None, "http://127.0.0.1:8000/v1"),
        (None, "http://127.0.0.1:99999"),
    ],
)
def test_an_engine_that_cannot_work_is_refused(tmp_path, command, url):
    with pytest.raises(TelaError):
        EngineSpec(slot="gpu0", command=command, url=url, log=tmp_path / "log")


def test_a_model_that_cannot_stand_in_a_record_is_refused(tmp_path):
    with pytest.raises(TelaError, match="usable name"):
        EngineSpec(slot="gpu0", command="engine {port}", model="/a/path", log=tmp_path / "log")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:1/", "http://[::1]:8000"])
def test_a_url_on_loopback_is_taken(tmp_path, url):
    assert EngineSpec(slot="gpu0", url=url, log=tmp_path / "log").url == url


def test_every_state_fits_a_replica_record(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--crash-after 0", model=MODEL)) as one:
            await one.serving()
            with pytest.raises(aiohttp.ClientError):
                await one.ask()
            await one.down()
        for state in one.published:
            body = Replica(node_run=1, engine="demo", models=state.offers, phase=state.phase, cause=state.cause)
            read_back(body, state)

    run(live)


def read_back(body: Replica, state: EngineState) -> None:
    key, sign = seed_signer(bytes(32))
    draft = Draft("replica", replica_id(key_id(key), state.slot), encode_body(body), run=state.run, rank=state.rank)
    assert read_body(seal(draft, key, sign)) == body


def test_the_first_failure_waits_briefly_and_later_ones_longer():
    waits = []
    backoff = Backoff()
    for _ in range(12):
        backoff = backoff.after(0)
        waits.append(backoff.delay_s(Random(3)))
    assert FIRST_S / 2 <= waits[0] <= FIRST_S
    assert waits == sorted(waits)
    assert LONGEST_S / 2 <= waits[-1] <= LONGEST_S


def test_a_minute_of_service_forgets_earlier_failures():
    assert Backoff(failures=9).after(GOOD_SERVICE_S) == Backoff(failures=1)
    assert Backoff(failures=9).after(GOOD_SERVICE_S - 1) == Backoff(failures=10)


@given(st.integers(0, 10**9), st.integers())
def test_a_wait_is_never_over_the_longest(failures, seed):
    assert 0 <= Backoff(failures=failures).delay_s(Random(seed)) <= LONGEST_S
