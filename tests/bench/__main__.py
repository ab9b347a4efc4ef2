"""`make bench`: what tela adds to a request, as pairs against the engine itself in the same run.

One engine, one worker, one ingress, each its own process; the load comes from yet another. Usage rows are on.
"""

import argparse
import asyncio
import datetime
import json
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from node.demo import MODEL, DemoFabric
from tests.bench.load import Load, Target
from tests.bench.measure import pairs
from tests.bench.report import Report, conditions, write

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me about gossip in distributed systems. " * 8}]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--name", default="overhead", help="of the report in docs/bench")
    parser.add_argument("--rounds", type=int, default=4, help="of each side")
    parser.add_argument("--seconds", type=float, default=15.0, help="of one round")
    parser.add_argument("--only", default="", help="parts whose title contains this")
    arguments = parser.parse_args()
    asyncio.run(_bench(arguments))
    return 0


async def _bench(arguments: argparse.Namespace) -> None:
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    about = conditions(stamp)
    with tempfile.TemporaryDirectory(prefix="tela-bench-") as directory:
        async with _engine() as (process, port):
            fabric = DemoFabric(
                Path(directory), workers=1, rng=Random(3), now=time.time(), engine=f"http://127.0.0.1:{port}"
            )
            async with fabric.running():
                await fabric.serving(1)
                await asyncio.sleep(1.0)
                roles = {"ingress": fabric.ingress.pid, "worker": fabric.workers[0].pid, "engine": process.pid}
                parts = {}
                for title, load, stream in _parts(arguments.seconds):
                    if arguments.only in title:
                        print(f"{title} …", file=sys.stderr, flush=True)
                        direct, through = _targets(fabric, port, stream=stream)
                        parts[title] = await asyncio.to_thread(
                            pairs, direct, through, rounds=arguments.rounds, load=load, roles=roles
                        )
    write(Report(name=arguments.name, conditions=about, parts=parts))


def _parts(seconds: float):
    open_loop = Load(mode="open", rate_per_s=16.0, seconds=seconds, seed=7)
    return (
        ("JSON at 16 requests/s", open_loop, False),
        ("streams at 16 requests/s", open_loop, True),
        ("JSON on one kept-alive connection", Load(mode="sequential", count=int(seconds * 20)), False),
        ("streams on one kept-alive connection", Load(mode="sequential", count=int(seconds * 10)), True),
        ("JSON, 32 connections", Load(mode="closed", seconds=seconds, connections=32), False),
        ("streams, 16 connections", Load(mode="closed", seconds=seconds, connections=16), True),
    )


def _targets(fabric: DemoFabric, port: int, *, stream: bool) -> tuple[Target, Target]:
    body = json.dumps({**BODY, "stream": stream})
    host, _, door = fabric.url.removeprefix("http://").partition(":")
    headers = (("authorization", f"Bearer {fabric.authority.secret}"),)
    path = "/v1/chat/completions"
    return (
        Target(host="127.0.0.1", port=port, path=path, headers=headers, body=body, stream=stream),
        Target(host=host, port=int(door), path=path, headers=headers, body=body, stream=stream),
    )


@asynccontextmanager
async def _engine():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "node.engine.demo", "--model", MODEL, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(await process.stdout.readline())["port"]
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    sys.exit(main())
