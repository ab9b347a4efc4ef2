"""When an engine may serve and what it is said to offer: real engines, real sockets."""

import asyncio
import os
import socket
import stat
import time
from pathlib import Path

import aiohttp
import pytest

from node.engine.watch import FAILURES_TO_DOWN
from registry.kinds import Cause
from registry.lifecycle import Rank
from tests.node.demo_client import MODEL, run
from tests.node.engine_slot import Fake, at, demo, slot

LORA = {"lora_name": "an/adapter", "lora_path": "/x"}


def families_of(state):
    return {offer.id: offer.families for offer in state.offers}


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def test_it_serves_at_its_first_result_and_learns_the_other_families(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            assert families_of(await one.serving()) == {MODEL: ("chat",)}
            await one.until(lambda s: families_of(s) == {MODEL: ("chat", "completions", "embeddings")})

    run(live)


@pytest.mark.parametrize("family", ["completions", "embeddings"])
def test_a_family_that_gives_no_result_is_not_offered(tmp_path, family):
    async def live() -> None:
        async with slot(demo(tmp_path, f"--serves {family}")) as one:
            assert families_of(await one.serving()) == {MODEL: (family,)}

    run(live)


def test_healthy_is_not_ready_while_nothing_comes_of_it(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--failing")) as one:
            phase = "no result: chat 500, completions 500, embeddings 500"
            await one.until(lambda s: s.phase.endswith(phase))
            assert one.supervisor.url is None

    run(live)


def test_an_engine_that_recovers_serves(tmp_path):
    async def live() -> None:
        async with Fake() as fake:
            fake.chat_status = 500
            async with slot(at(fake.url, tmp_path)) as one:
                await one.until(lambda s: "no result: chat 500, completions 404" in s.phase)
                fake.chat_status = 200
                await one.serving()

    run(live)


def test_the_seconds_and_after_a_while_a_hint_are_said(tmp_path):
    began = time.monotonic()
    fast = lambda: (time.monotonic() - began) * 100  # noqa: E731  # a minute is 0.6 s

    async def live() -> None:
        async with slot(demo(tmp_path, "--load-ms 60000"), now=fast) as one:
            state = await one.until(lambda s: "; see the log" in s.phase)
            assert state.phase.startswith("loading ")
            assert state.phase.endswith(" s, /health 503; see the log")
            said = [s for s in one.published if "/health 503" in s.phase]
            assert len(said) <= 12  # of some dozens of probes

    run(live)


# --- keys


def test_a_started_engine_has_a_key_of_its_own_at_each_start(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            first = one.supervisor.api_key
            assert first
            assert len(first) >= 32
            async with one.session.get(f"{one.supervisor.url}/v1/models") as response:
                assert response.status == 401
            assert await one.ask() == 200
            await one.supervisor.restart("another")
            await one.serving(8)
            assert one.supervisor.api_key not in {None, first}

    run(live)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_what_is_tela_s_own_is_not_in_its_environment(tmp_path):
    ours = {**os.environ, "TELA_PASSPHRASE_FILE": "/secret", "COLOUR": "blue"}

    async def live() -> None:
        async with slot(demo(tmp_path), environ=ours) as one:
            pid = (await one.serving()).pid
            assert pid is not None
            seen = environment_of(pid)
            assert [name for name in seen if name.startswith("TELA_")] == ["TELA_ENGINE_API_KEY"]
            assert seen["COLOUR"] == "blue"

    run(live)


def test_an_engine_with_a_place_for_its_key_gets_it_there(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--api-key {api_key}")) as one:
            await one.serving()
            assert one.supervisor.api_key
            assert await one.ask() == 200

    run(live)


def test_a_foreign_engine_that_wants_a_key_says_so(tmp_path):
    async def live() -> None:
        async with Fake() as fake:
            fake.api_key = "sesame"
            async with slot(at(fake.url, tmp_path)) as one:
                await one.until(lambda s: s.phase.startswith("the engine wants an API key: "))

    run(live)


def test_a_foreign_engine_is_asked_with_the_key_it_wants(tmp_path):
    async def live() -> None:
        async with Fake() as fake:
            fake.api_key = "sesame"
            async with slot(at(fake.url, tmp_path, api_key="sesame")) as one:
                await one.serving()
                assert one.supervisor.api_key == "sesame"

    run(live)


# --- models that change


def test_an_adapter_that_is_loaded_is_offered_and_no_longer_when_it_is_gone(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, watch_s=0.03)) as one:
            await one.serving()
            assert await one.post("/v1/load_lora_adapter", LORA) == 200
            await one.until(lambda s: [o.id for o in s.offers] == [MODEL, "an/adapter"])
            assert await one.post("/v1/unload_lora_adapter", LORA) == 200
            await one.until(lambda _: [o.id for o in one.published[-1].offers] == [MODEL])
            assert one.supervisor.current_run == 7

    run(live)


def test_an_engine_that_calls_its_models_new_at_every_look_is_not_said_to_change(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            fake.created = 1
            await one.serving()
            said = len(one.published)
            asked = fake.asked
            fake.created = 2
            while fake.asked < asked + 3:
                await asyncio.sleep(0.001)
            assert len(one.published) == said

    run(live)


def test_a_model_that_takes_the_place_of_another_is_tried(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            await one.serving()
            fake.models = ["another"]
            await one.until(lambda s: families_of(s) == {"another": ("chat",)})

    run(live)


def test_a_busy_engine_that_gives_no_result_for_a_new_model_goes_on_serving(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(at(fake.url, tmp_path)) as one:
            await one.serving()
            fake.chat_status = 429
            fake.models = [MODEL, "another"]
            state = await one.until(lambda s: len(s.offers) == 2)
            asked = fake.asked
            while fake.asked < asked + 2 * FAILURES_TO_DOWN:
                await asyncio.sleep(0.001)
            assert one.supervisor.is_serving
            assert families_of(state) == {MODEL: ("chat",), "another": ("chat",)}

    run(live)


def test_the_model_it_is_for_vanishes_and_the_run_is_down(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, watch_s=0.03, model=MODEL)) as one:
            await one.serving()
            assert await one.post("/demo", {"models": ["another"]}) == 200
            state = await one.down()
            assert state.cause == Cause(reason="model-gone")
            assert state.phase == f"wrong model: wanted {MODEL}, lists another"
            await one.serving(8)  # the process is another one, and has it

    run(live)


def test_an_alias_is_offered_instead_of_the_name(tmp_path):
    async def live() -> None:
        async with slot(demo(tmp_path, "--model a/b --model c/d", aliases=("nice", "other=c/d"))) as one:
            state = await one.serving()
            assert [offer.id for offer in state.offers] == ["nice", "other"]
            assert one.supervisor.names == {"nice": "a/b", "other": "c/d"}

    run(live)


# --- how it ends


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out-of-memory-gpu"),
        ("ERROR: [Errno 98] error while attempting to bind: Address already in use", "port-in-use"),
        ("nothing in particular", "exited"),
    ],
)
def test_an_end_has_its_class_and_not_a_word_of_the_log(tmp_path, line, reason):
    async def live() -> None:
        async with slot(demo(tmp_path)) as one:
            await one.serving()
            with pytest.raises(aiohttp.ClientError):
                await one.post("/demo", {"lines": [line], "exit": 3})
            state = await one.down()
            assert state.cause == Cause(reason=reason, exit_code=3)
            assert line[:9] not in state.phase

    run(live)


def test_what_an_earlier_run_printed_is_no_cause_of_this_one(tmp_path):
    (tmp_path / "log").write_text("CUDA out of memory\n")

    async def live() -> None:
        async with slot(demo(tmp_path, "--exit 1")) as one:
            assert (await one.down()).cause == Cause(reason="exited", exit_code=1)

    run(live)


def test_a_port_of_its_own_is_where_it_is(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def live() -> None:
        async with slot(demo(tmp_path, port=port)) as one:
            await one.serving()
            assert one.supervisor.url == f"http://127.0.0.1:{port}"
            await one.supervisor.restart("at the same port")
            await one.serving(8)

    run(live)


def test_whoever_holds_its_port_is_not_taken_for_it(tmp_path):
    async def live() -> None:
        async with Fake() as fake, slot(demo(tmp_path, port=fake.port)) as one:
            state = await one.down()
            assert (state.cause, state.phase) == (Cause(reason="not-started"), "cannot start: port in use")
            assert not any(s.rank is Rank.SERVING for s in one.published)

    run(live)


def test_a_log_that_grows_too_long_is_moved_aside_while_it_runs(tmp_path):
    log = tmp_path / "log"

    async def live() -> None:
        async with slot(demo(tmp_path, watch_s=0.03)) as one:
            await one.serving()
            with log.open("ab") as end:
                end.truncate(65 * 1024 * 1024)
            while not (tmp_path / "log.1").exists() or log.stat().st_size > 1024:
                await asyncio.sleep(0.01)
            assert stat.S_IMODE((tmp_path / "log.1").stat().st_mode) == 0o600
            assert await one.post("/demo", {"lines": ["goes on"]}) == 200
            while "goes on" not in log.read_text():
                await asyncio.sleep(0.005)
            assert one.supervisor.is_serving

    run(live)
