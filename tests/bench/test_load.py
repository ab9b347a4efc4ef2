"""The load generator against the demo engine and against bytes of our own, on real sockets."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from statistics import mean

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from node.engine.demo import DemoEngine, EngineOptions, demo_engine
from node.engine.demo_wire import Listening, listening
from registry.errors import TelaError
from tests.bench import load
from tests.bench.load import Load, Target, closed_loop, open_loop, sequential
from tests.bench.measure import pairs
from tests.bench.report import Report, conditions, write
from tests.bench.stats import Sample, arrivals, summarise
from tests.node.demo_client import ASK, CHAT, child, run

TOKENS = 20
EVENTS = TOKENS + 2  # one for the role, one for the finish reason


def target(place: Listening, fault: str = "", *, stream: bool = False, path: str = CHAT) -> Target:
    headers = (("x-tela-fault", fault),) if fault else ()
    body = json.dumps({**ASK, "stream": stream})
    return Target(host=place.host, port=place.port, path=path, headers=headers, body=body, stream=stream)


def got_from_engine(fault: str = "", *, stream: bool = False, count: int = 1) -> list[Sample]:
    got: list[Sample] = []

    async def ask() -> None:
        async with demo_engine(EngineOptions(natural_tokens=TOKENS)) as place:
            got.extend(await sequential(target(place, fault, stream=stream), count=count))

    run(ask)
    return got


@asynccontextmanager
async def saying(*pieces: bytes):
    """A server that answers every connection with these bytes, one write each, and closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Listening(host="127.0.0.1", port=server.sockets[0].getsockname()[1])


def got_from(*pieces: bytes, stream: bool = True, patience_s: float = 60.0) -> Sample:
    got: list[Sample] = []

    async def ask() -> None:
        async with saying(*pieces) as place:
            asked = Target(host=place.host, port=place.port, path="/", stream=stream, patience_s=patience_s)
            got.extend(await sequential(asked, count=1))

    run(ask)
    return got[0]


def sse(*events: bytes) -> bytes:
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def with_ports(use: Callable[[Listening, set[int]], Awaitable[None]]) -> None:
    """Run against a demo engine that notes the port of every client."""
    ports: set[int] = set()
    engine = DemoEngine(EngineOptions())

    async def noting(scope, receive, send):
        ports.add(scope["client"][1])
        await engine(scope, receive, send)

    async def scenario() -> None:
        async with listening(noting, engine.loads_from_now) as place:
            await use(place, ports)

    run(scenario)


def test_a_body_is_whole_and_counted():
    samples = got_from_engine(count=3)
    assert [sample.status for sample in samples] == [200, 200, 200]
    assert all(sample.is_success and sample.events == 0 for sample in samples)
    assert len({sample.bytes for sample in samples}) == 1
    assert samples[0].bytes > 300


def test_a_stream_is_whole_when_done_was_seen_and_its_events_are_counted():
    (sample,) = got_from_engine(stream=True)
    assert sample.is_success
    assert sample.events == EVENTS


def test_the_times_of_a_request_are_in_order():
    for sample in got_from_engine(stream=True, count=5):
        assert sample.first_s is not None
        assert sample.scheduled_s <= sample.sent_s < sample.first_s < sample.end_s


def test_sequential_requests_share_one_connection():
    async def use(place: Listening, ports: set[int]) -> None:
        samples = await sequential(target(place), count=50)
        assert all(sample.is_success for sample in samples)
        assert len(ports) == 1

    with_ports(use)


def test_a_closed_loop_keeps_its_connections():
    async def use(place: Listening, ports: set[int]) -> None:
        samples = await closed_loop(target(place, stream=True), connections=4, seconds=0.1)
        assert len(samples) > 8
        assert all(sample.is_success for sample in samples)
        assert len(ports) == 4

    with_ports(use)


def test_an_open_loop_sends_all_that_is_due_and_returns_it_in_order():
    async def use(place: Listening, ports: set[int]) -> None:
        samples = await open_loop(target(place), rate_per_s=200, seconds=0.2, connections=2, rng=None)
        assert [sample.scheduled_s for sample in samples] == arrivals(200, 0.2, None)
        assert all(sample.is_success for sample in samples)
        assert all(sample.sent_s >= sample.scheduled_s for sample in samples)

    with_ports(use)


def test_an_open_loop_makes_a_new_connection_when_all_are_busy():
    async def use(place: Listening, ports: set[int]) -> None:
        slow = target(place, "slow=300")
        samples = await open_loop(slow, rate_per_s=1000, seconds=0.01, connections=2, rng=None)
        assert len(ports) == len(samples) == 10

    with_ports(use)


def test_a_reset_is_an_error_and_the_connection_is_replaced():
    samples = got_from_engine("reset", count=3)
    assert [sample.error for sample in samples] == [load.RESET] * 3


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_cut_short_is_truncated(stream):
    (sample,) = got_from_engine("truncate=3", stream=stream)
    assert (sample.error, sample.is_complete, sample.status) == (load.TRUNCATED, False, 200)
    assert sample.events == (3 if stream else 0)


def test_a_stream_that_ends_well_without_done_is_unfinished():
    (sample,) = got_from_engine("eof=3", stream=True)
    assert (sample.error, sample.is_complete) == (load.UNFINISHED, False)


def test_half_a_body_in_a_frame_of_its_own_size_is_no_json():
    (sample,) = got_from_engine("eof")
    assert (sample.error, sample.is_complete) == (load.NOT_JSON, False)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_a_whole_answer_and_no_success(stream):
    (sample,) = got_from_engine("503", stream=stream)
    assert (sample.status, sample.is_complete, sample.error) == (503, True, None)
    assert not sample.is_success
    assert summarise([sample], seconds=1).failures == {"HTTP 503": 1}


@pytest.mark.parametrize(
    "events",
    [
        [b'{"choices":[]}', b'{"error":{"message":"m","code":"upstream_disconnect"}}'],
        [b'{"choices":[]}', b'{"type":"error","error":{"type":"overloaded_error"}}', b"[DONE]"],
    ],
)
def test_an_error_event_is_flagged_with_and_without_done(events):
    sample = got_from(sse(*events))
    assert (sample.error, sample.is_complete, sample.events) == (load.ERROR_EVENT, False, 2)


def test_an_error_event_before_a_cut_says_more_than_the_cut():
    assert got_from(sse(b"{}", b'{"error":{}}')[:-1]).error == load.ERROR_EVENT


def test_an_answer_that_talks_of_errors_is_none():
    talk = b'{"error":null,"choices":[{"delta":{"content":"say \\"error\\""}}]}'
    assert got_from(sse(talk, b"[DONE]")).is_success


@given(st.sets(st.integers(0, 170)))
def test_events_are_counted_wherever_the_stream_is_split(cuts):
    stream = sse(b'{"a":1}', b'{"error":{"code":"x"}}', b'{"b":2}', b"[DONE]")
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    answer = load._Answer()
    answer.is_sse = True
    for start, end in pairwise(edges):
        answer.take(stream[start:end], float(end))
    assert (answer.events, answer.has_done, answer.has_error) == (3, True, True)


def test_bytes_that_are_no_http_are_an_error():
    assert got_from(b"SSH-2.0-x\r\n\r\n").error == load.NOT_HTTP


def test_a_connection_closed_before_the_answer_is_an_error():
    assert got_from().error == load.CLOSED


def test_an_interim_answer_is_passed_over():
    assert got_from(b"HTTP/1.1 100 Continue\r\n\r\n", sse(b"{}", b"[DONE]")).is_success


def test_an_engine_that_hangs_ends_with_patience():
    async def ask() -> None:
        async with demo_engine() as place:
            asked = target(place, "hang")
            hasty = Target(
                host=place.host,
                port=place.port,
                path=CHAT,
                headers=asked.headers,
                body=asked.body,
                patience_s=0.02,
            )
            (sample,) = await sequential(hasty, count=1)
            assert sample.error == load.TIMED_OUT

    run(ask)


def test_nobody_listening_is_an_error_and_not_the_end_of_the_run():
    async def ask() -> None:
        async with saying() as place:
            gone = place
        samples = await sequential(target(gone), count=2)
        assert [sample.error for sample in samples] == [load.CONNECT] * 2

    run(ask)


def test_latency_counts_from_the_schedule():
    late = Sample(scheduled_s=1.0, sent_s=1.5, first_s=1.6, end_s=1.75, status=200, is_complete=True, bytes=9)
    summary = summarise([late], seconds=2)
    spreads = (summary.latency_ms, summary.service_ms, summary.first_ms, summary.late_ms)
    assert [round(spread.p50) for spread in spreads if spread is not None] == [750, 250, 600, 500]


def test_requests_that_end_after_the_run_are_no_part_of_its_rate():
    ends_s = (0.5, 1.0, 2.5)
    samples = [Sample(scheduled_s=0, sent_s=0, end_s=end_s, status=200, is_complete=True) for end_s in ends_s]
    assert summarise(samples, seconds=2).rate_per_s == 1.0


def test_poisson_arrivals_have_the_rate_and_the_spread_of_their_gaps():
    due = arrivals(50, 400, Random(1))
    gaps = [after - before for before, after in pairwise(due)]
    assert due[-1] < 400
    assert mean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert mean((gap - 1 / 50) ** 2 for gap in gaps) ** 0.5 == pytest.approx(1 / 50, rel=0.05)


def test_both_loops_of_the_generator_agree():
    def counts(loops: Callable[[], asyncio.AbstractEventLoop]) -> list[tuple[int, int, bool]]:
        async def ask() -> list[Sample]:
            async with demo_engine() as place:
                asked = target(place, stream=True)
                return await open_loop(asked, rate_per_s=500, seconds=0.1, connections=3, rng=Random(1))

        with asyncio.Runner(loop_factory=loops) as runner:
            return [(sample.bytes, sample.events, sample.is_success) for sample in runner.run(ask())]

    assert counts(load._fine_loop) == counts(uvloop.new_event_loop)


def test_a_process_of_its_own_prints_one_line():
    with child() as (_, place):
        where = {"host": place.host, "port": place.port, "path": CHAT, "body": json.dumps(ASK)}
        order = {"target": where, "load": {"mode": "sequential", "count": 20, "warm_up": 2}}
        command = [sys.executable, "-P", "-m", "tests.bench.load", "--json", json.dumps(order)]
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    assert (summary["asked"], summary["succeeded"], summary["failures"]) == (20, 20, {})
    assert summary["generator_cpu_s"] > 0


def test_pairs_take_turns_and_a_report_holds_their_figures(tmp_path, capsys):
    with child() as (direct_process, direct), child("--first-ms", "20") as (through_process, through):
        paired = pairs(
            target(direct),
            target(through),
            rounds=2,
            load=Load(mode="sequential", count=20, warm_up=1),
            roles={"engine": direct_process.pid, "both": [direct_process.pid, through_process.pid]},
        )
    assert [each.side for each in paired.rounds] == ["direct", "through", "through", "direct"]
    assert (paired.direct.succeeded, paired.through.succeeded) == (40, 40)
    assert paired.added_p50_ms is not None
    assert paired.added_p50_ms.least > 10
    assert paired.rate_ratio is not None
    assert paired.rate_ratio < 1
    assert paired.through.rss_mb["both"] > paired.through.rss_mb["engine"] > 10
    report = Report(name="a-trial", conditions=conditions("2026-01-01T00:00:00Z"), parts={"trial": paired})
    written = json.loads(write(report, tmp_path).read_text())
    assert written["parts"]["trial"]["through"]["asked"] == 40
    assert written["conditions"]["date_utc"] in capsys.readouterr().out


def test_pairs_refuse_a_process_that_is_gone():
    with child() as (process, place):
        process.kill()
        process.wait()
        load_once = Load(mode="sequential", count=1, warm_up=0)
        with pytest.raises(TelaError, match="gone"):
            pairs(target(place), target(place), rounds=1, load=load_once, roles={"engine": process.pid})
