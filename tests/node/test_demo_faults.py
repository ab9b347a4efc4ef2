"""What goes wrong with the demo engine on request, and how its process ends; children are real."""

import asyncio
import json
import signal
import socket

import aiohttp
import pytest

from node.engine.demo import EngineOptions, demo_engine, main
from node.engine.demo_faults import Ending, FaultRefused, Faults, Opening, parse_faults
from node.engine.demo_play import Pace
from tests.node.demo_client import (
    ASK,
    CHAT,
    DEADLINE_S,
    DEFAULTS,
    answer,
    child,
    client,
    events_of,
    gauge,
    on_the_wire,
    post,
    read_to_the_end,
    refusal,
    request_bytes,
    run,
    until,
)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_is_counted_and_no_longer_running(stream: bool) -> None:
    async def scenario() -> None:
        slow = EngineOptions(pace=Pace(first_s=3600))
        async with demo_engine(slow) as place, aiohttp.ClientSession(place.url) as session:
            _, writer = await asyncio.open_connection(place.host, place.port)
            writer.write(request_bytes({**ASK, "stream": stream}))
            await until(session, "vllm:num_requests_running", 1)
            assert await gauge(session, "vllm:kv_cache_usage_perc") > 0
            writer.close()
            await until(session, "tela_demo:cancelled_total", 1)
            assert await gauge(session, "vllm:num_requests_running") == 0
            assert await gauge(session, "vllm:kv_cache_usage_perc") == 0

    run(scenario)


@pytest.mark.parametrize("fault", ["hang", "hang-after=1", "slow=3600000", "slow-token=3600000"])
def test_a_request_that_hangs_notices_its_client_leaving(fault: str) -> None:
    async def scenario() -> None:
        async with demo_engine() as place, aiohttp.ClientSession(place.url) as session:
            _, writer = await asyncio.open_connection(place.host, place.port)
            writer.write(request_bytes({**ASK, "stream": True}, fault))
            await until(session, "vllm:num_requests_running", 1)
            writer.close()
            await until(session, "tela_demo:cancelled_total", 1)

    run(scenario)


def test_hang_after_sends_its_events_first() -> None:
    async def scenario() -> None:
        async with demo_engine() as place:
            reader, writer = await asyncio.open_connection(place.host, place.port)
            writer.write(request_bytes({**ASK, "stream": True}, "hang-after=2"))
            for _ in range(2):
                await reader.readuntil(b"\n\n")
            writer.close()

    run(scenario)


@pytest.mark.parametrize("fault", ["slow=40", "slow-token=20"])
@pytest.mark.parametrize("stream", [False, True])
def test_slowness_takes_its_time(fault: str, stream: bool) -> None:
    async def scenario() -> None:
        async with client(EngineOptions(natural_tokens=2)) as session:
            began_s = asyncio.get_running_loop().time()
            headers = {"x-tela-fault": fault}
            async with session.post(CHAT, json={**ASK, "stream": stream}, headers=headers) as got:
                await got.read()
            assert asyncio.get_running_loop().time() - began_s >= 0.039

    run(scenario)


@pytest.mark.parametrize("fault", [500, 503, 429])
def test_a_status_fault_is_an_error_object(fault: int) -> None:
    data = json.dumps({**ASK, "stream": True}).encode()
    assert refusal(CHAT, data, EngineOptions(faults=parse_faults(str(fault))))[0] == fault


def test_truncate_closes_without_the_end_of_the_body() -> None:
    got = on_the_wire("truncate=2", stream=True)
    assert got.count(b"data: ") == 2
    assert got.endswith(b"\n\n\r\n")  # a whole chunk, then nothing


def test_truncate_breaks_a_body_in_the_middle() -> None:
    head, _, body = on_the_wire("truncate", stream=False).partition(b"\r\n\r\n")
    promised = int(head.lower().partition(b"content-length: ")[2].split()[0])
    assert 0 < len(body) < promised


def test_reset_closes_before_any_byte() -> None:
    with pytest.raises(ConnectionResetError):
        on_the_wire("reset", stream=True)


def test_faults_of_a_broken_connection_are_no_cancellation() -> None:
    async def scenario() -> None:
        async with demo_engine() as place, aiohttp.ClientSession(place.url) as session:
            await read_to_the_end(place, "truncate=1", {**ASK, "stream": True})
            await until(session, "vllm:num_requests_running", 0)
            assert await gauge(session, "tela_demo:cancelled_total") == 0

    run(scenario)


def test_eof_ends_a_stream_well_but_early() -> None:
    got = answer(CHAT, {**ASK, "stream": True}, x_tela_fault="eof=3")
    assert len(events_of(got)) == 3
    assert b"[DONE]" not in got


def test_eof_ends_a_body_well_but_early() -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer(CHAT, ASK, x_tela_fault="eof"))


def test_garbage_is_no_json() -> None:
    with pytest.raises(ValueError, match="codec"):
        json.loads(answer(CHAT, ASK, x_tela_fault="garbage"))


def test_garbage_in_a_stream_is_one_event_among_good_ones() -> None:
    events = events_of(answer(CHAT, {**ASK, "stream": True}, x_tela_fault="garbage"))
    broken = [event for event in events if not event.endswith((b"}", b"[DONE]"))]
    assert len(broken) == 1
    assert events[-1] == b"[DONE]"


def test_an_unknown_fault_is_refused() -> None:
    async def scenario() -> None:
        async with client(DEFAULTS) as session:
            headers = {"x-tela-fault": "whatever"}
            async with session.post(CHAT, json=ASK, headers=headers) as response:
                assert response.status == 400
                assert "whatever" in await response.text()

    run(scenario)


def test_a_fault_of_the_process_hits_each_nth_request() -> None:
    async def scenario() -> None:
        options = EngineOptions(faults=parse_faults("503"), fault_every=2)
        async with client(options) as session:
            statuses = []
            for _ in range(4):
                async with session.post(CHAT, json=ASK) as response:
                    statuses.append(response.status)
        assert statuses == [200, 503, 200, 503]

    run(scenario)


def test_faults_are_read_as_a_value() -> None:
    assert parse_faults("slow=250; truncate=3") == Faults(slow_s=0.25, ending=Ending.TRUNCATE, ending_after=3)
    assert parse_faults("503") == Faults(opening=Opening.STATUS, status=503)
    assert parse_faults("") == Faults()


@pytest.mark.parametrize("text", ["slow", "slow=-1", "hang=1", "eof=1;truncate=2", "600", "x" * 99])
def test_a_malformed_fault_is_refused(text: str) -> None:
    with pytest.raises(FaultRefused):
        parse_faults(text)


def test_a_process_dies_in_the_middle_of_a_stream() -> None:
    with child() as (process, place):
        got = post(place, "crash-after-events=3", stream=True)
        assert process.wait(DEADLINE_S) == 13
    assert got.count(b"data: ") == 3
    assert got.endswith(b"\n\n\r\n")


def test_a_process_dies_before_it_answers() -> None:
    with child() as (process, place):
        assert post(place, "crash", stream=False) == b""
        assert process.wait(DEADLINE_S) == 13


def test_a_process_dies_of_one_request_too_many() -> None:
    with child("--crash-after", "1", "--fault", "eof", "--delay-ms", "1") as (process, place):
        truncated = post(place, "truncate", stream=True)  # the request's own fault wins
        assert truncated.count(b"data: ") == 1
        assert post(place, "", stream=False) == b""
        assert process.wait(DEADLINE_S) == 13


def test_a_process_told_to_end_drops_what_hangs_and_says_nothing() -> None:
    with child() as (process, place):
        with socket.create_connection((place.host, place.port), timeout=DEADLINE_S) as connection:
            connection.sendall(request_bytes({**ASK, "stream": True}, "hang-after=1"))
            assert connection.recv(65536)
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == -signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_port_in_use_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"127.0.0.1:{port}" in err


@pytest.mark.parametrize("flags", [["--fault", "wat"], ["--tokens", "0"], ["--delay-ms", "-1"]])
def test_wrong_flags_exit_with_2(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(flags)
    assert exit_.value.code == 2
