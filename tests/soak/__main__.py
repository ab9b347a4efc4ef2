"""`make soak`: the full figures, part by part; results as JSON under docs/bench.

ONLY=part runs one. Each part ends within minutes and says at the end whether what it must reach was reached.
"""

import asyncio
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random

import aiohttp

from node.client import Answer, Caller
from node.demo import MODEL, DemoFabric, demo_engine_command
from node.scenario.traffic import until_called
from tests.bench.report import conditions
from tests.soak.join import measure

FOLDER = Path(__file__).parents[2] / "docs" / "bench"
RATE_PER_S = 50.0


async def kill(seconds: float = 60.0) -> dict[str, object]:
    """Three replicas, an engine killed every 5 s and restarted, 50 requests/s, half of them streams."""
    answers: list[tuple[bool, Answer]] = []
    kills = 0
    least = 3
    engine = demo_engine_command(MODEL, "--delay-ms", "5")  # answers take 100 ms, so kills meet some on their way
    with tempfile.TemporaryDirectory(prefix="tela-soak-") as directory:
        fabric = DemoFabric(Path(directory), workers=3, rng=Random(1), now=time.time(), engine=engine)
        async with fabric.running(), aiohttp.ClientSession(trust_env=False) as session:
            caller = Caller(session, fabric.url, fabric.authority.secret, time.monotonic)
            await fabric.serving(3)
            await until_called(caller, MODEL)
            rng = Random(2)

            async def one(stream: bool) -> None:
                answers.append((stream, await caller.chat(MODEL, f"soak {len(answers)}", stream=stream)))

            async with asyncio.TaskGroup() as tasks:
                start = time.monotonic()
                sent = 0
                while (elapsed := time.monotonic() - start) < seconds:
                    if elapsed >= 5.0 * (kills + 1):
                        await fabric.serving(3, 4.0)  # at least two serve at any time
                        fabric.kill_engine(kills % 3)
                        kills += 1
                    least = min(least, sum(node.engine_state == "SERVING" for node in fabric.workers))
                    tasks.create_task(one(rng.random() < 0.5))
                    sent += 1
                    await asyncio.sleep(max(0.0, start + sent / RATE_PER_S - time.monotonic()))
            rows = await _rows(fabric, len(answers))
    whole = [answer for stream, answer in answers if not stream]
    streams = [answer for stream, answer in answers if stream]
    return {
        "load": f"{RATE_PER_S:g} requests/s for {seconds:g} s, half streams of 20 tokens at 5 ms, 3 replicas",
        "requests": len(answers),
        "engines_killed": kills,
        "least_serving": least,
        "whole_answers": len(whole),
        "whole_answers_failed": sum(answer.trouble is not None for answer in whole),
        "streams": len(streams),
        "streams_ended_with_an_error_event": sum(answer.trouble is not None for answer in streams),
        "streams_silently_truncated": sum(answer.is_silent for answer in streams),
        "usage_rows": rows,
        "first_trouble": next((answer.trouble for answer in whole if answer.trouble), None),
        "reached": all(answer.trouble is None for answer in whole)
        and not any(answer.is_silent for answer in streams)
        and least >= 2
        and rows == len(answers),
    }


async def start(times: int = 5) -> dict[str, object]:
    """How long from the first process to the first answered request, three workers."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tela-soak-") as directory:
            fabric = DemoFabric(Path(directory), workers=3, rng=Random(1), now=time.time())
            async with fabric.running(), aiohttp.ClientSession(trust_env=False) as session:
                caller = Caller(session, fabric.url, fabric.authority.secret, time.monotonic)
                await fabric.serving(3)
                await until_called(caller, MODEL)
                answer = await caller.chat(MODEL, "hello")
                assert answer.trouble is None
                took.append(round(time.monotonic() - began, 2))
    return {"load": "tela demo, three workers", "seconds_to_serve": took, "reached": max(took) <= 8.0}


async def join() -> dict[str, object]:
    """A fabric founded by commands: from `tela start` to routable, the size of nodes, the cost of `tela status`."""
    return await asyncio.to_thread(measure)


PARTS: dict[str, Callable[[], Coroutine[None, None, dict[str, object]]]] = {"kill": kill, "start": start, "join": join}


async def _rows(fabric: DemoFabric, wanted: int) -> int:
    import sqlite3

    rows = 0
    for _ in range(50):
        with sqlite3.connect(f"file:{fabric.ledger}?mode=ro", uri=True) as database:
            (rows,) = database.execute("SELECT COUNT(*) FROM usage").fetchone()
        if rows >= wanted:
            break
        await asyncio.sleep(0.1)
    return rows


def main(argv: list[str]) -> int:
    wanted = argv or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    held = True
    for name in wanted:
        print(f"{name}: {PARTS[name].__doc__}", file=sys.stderr, flush=True)
        about = conditions(date)
        figures = asyncio.run(PARTS[name]())
        report = {"name": name, "date_utc": about.date_utc, "platform": about.platform, "versions": about.versions}
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"soak-{name}.json").write_text(json.dumps({**report, **figures}, indent=1) + "\n")
        print(json.dumps(figures, indent=1))
        held = held and bool(figures["reached"])
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
