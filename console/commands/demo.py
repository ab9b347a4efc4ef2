"""`tela demo`: a whole fabric on this machine, and what it does."""

import asyncio
import contextlib
import json
import signal
import tempfile
from collections import Counter
from pathlib import Path
from random import SystemRandom

import aiohttp
import click

from node.client import Caller
from node.clock import SystemClock
from node.demo import DemoFabric, Event
from node.scenario import Script, Step, until_called
from registry.text import clean

TRAFFIC_PER_S = 10.0
TELL_EACH_S = 2.0
FIRST_KILL_S = 4.0  # after the traffic began an engine is killed, to be seen
KILL_EACH_S = 15.0


@click.command()
@click.option("--workers", default=3, show_default=True, type=click.IntRange(1, 32), help="How many workers.")
@click.option("--check", is_flag=True, help="Run the scripted scenario instead; exit 0 only if all held.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")
@click.option("--seconds", type=click.FloatRange(min=0.5), help="Stop by itself after so long.")
@click.option("--port", default=0, show_default="a free one", type=click.IntRange(0, 65535), help="Port of the door.")
def demo(workers: int, check: bool, as_json: bool, seconds: float | None, port: int) -> None:
    """A whole fabric on this machine: an ingress, workers on demo engines, live traffic.

    Now and then an engine is killed, so that it can be seen what becomes of its requests. Everything runs as real
    processes in a temporary directory and is gone afterwards.
    """
    if check and workers < 3:
        raise click.UsageError("--check kills two of the workers; it needs --workers 3 or more")
    with tempfile.TemporaryDirectory(prefix="tela-demo-") as directory:
        run = Demo(Path(directory), workers=workers, port=port, as_json=as_json)
        try:
            held = asyncio.run(run.check() if check else run.show(seconds))
        except asyncio.CancelledError:
            held = False
    if not held:
        raise SystemExit(1)


class Demo:
    """One demo and its narration. Lives for one command."""

    def __init__(self, directory: Path, *, workers: int, port: int, as_json: bool) -> None:
        self._clock = SystemClock()
        self._as_json = as_json
        self._is_quiet = False
        self._fabric = DemoFabric(
            directory,
            workers=workers,
            rng=SystemRandom(),
            now=self._clock.wall(),
            http=f"127.0.0.1:{port}",
            tell=self._narrate,
        )

    async def check(self) -> bool:
        """The scripted scenario."""
        started = self._clock.now()
        self._is_quiet = True
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with self._fabric.running(), aiohttp.ClientSession(trust_env=False) as session:
            script = Script(
                self._fabric,
                self._caller(session),
                rng=SystemRandom(),
                now=self._clock.now,
                report=self._report,
            )
            held = await script.check(started)
        failed = sum(not step.ok for step in script.steps)
        self._line({"event": "checked", "ok": held, "steps": len(script.steps), "failed": failed}, None)
        self._tell(f"{len(script.steps) - failed} of {len(script.steps)} steps held.")
        return held

    async def show(self, seconds: float | None) -> bool:
        """Live traffic until Ctrl-C."""
        self._tell("DEMO · one fabric on this machine; nothing is kept.")
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stop.set)
        async with self._fabric.running(), aiohttp.ClientSession(trust_env=False) as session:
            caller = self._caller(session)
            await until_called(caller, self._fabric.model)
            self._invite()
            script = Script(self._fabric, caller, rng=SystemRandom(), now=self._clock.now, report=self._report)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._traffic(script, stop)
            self._tell("stopping; goodbye.")
        return True

    async def _traffic(self, script: Script, stop: asyncio.Event) -> None:
        told = self._clock.now()
        kill_at, killed = told + FIRST_KILL_S, 0
        async with asyncio.TaskGroup() as tasks:
            turn = 0
            while not stop.is_set():
                turn += 1
                tasks.create_task(script.call(stream=turn % 2 == 0))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1.0 / TRAFFIC_PER_S)
                if self._clock.now() >= kill_at and len(self._fabric.workers) > 1:
                    kill_at += KILL_EACH_S
                    self._kill(killed % len(self._fabric.workers))
                    killed += 1
                if self._clock.now() - told >= TELL_EACH_S:
                    told = self._clock.now()
                    self._sum_up(script)

    def _sum_up(self, script: Script) -> None:
        troubles = [answer.trouble for _, answer in script.answers if answer.trouble is not None]
        nodes = Counter(answer.node.partition("@")[0] for _, answer in script.answers if answer.node)
        total, streamed = len(script.answers), sum(stream for stream, _ in script.answers)
        self._line(
            {
                "event": "traffic",
                "requests": total,
                "streamed": streamed,
                "failed": len(troubles),
                "by_node": dict(nodes),
            },
            f"{total} requests, {streamed} of them streamed, {len(troubles)} failed · "
            + " · ".join(f"{name} {count}" for name, count in sorted(nodes.items())),
        )

    def _kill(self, at: int) -> None:
        worker = self._fabric.workers[at]
        if worker.engine_state == "SERVING":
            pid = self._fabric.kill_engine(at)
            self._line(
                {"event": "killed", "node": worker.name, "pid": pid}, f"{worker.name:12} kill -9 {pid}, its engine"
            )

    def _invite(self) -> None:
        secret, url, model = self._fabric.authority.secret, self._fabric.url, self._fabric.model
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}]})
        self._line(
            {"event": "serving", "url": f"{url}/v1", "key": secret, "model": model},
            f"\n{model} is served at {url}/v1 · try it:\n\n"
            f"  curl {url}/v1/chat/completions -H 'Authorization: Bearer {secret}' \\\n"
            f"       -H 'Content-Type: application/json' -d '{body}'\n\n"
            "Ctrl-C ends it.\n",
        )

    def _caller(self, session: aiohttp.ClientSession) -> Caller:
        return Caller(session, self._fabric.url, self._fabric.authority.secret, self._clock.now)

    # --- narration

    def _narrate(self, name: str, event: Event) -> None:
        words = {
            "ready": "up" if not event.get("http") else f"up at {event['http']}",
            "engine": f"engine {event.get('state')} {_how(event)}",
        }
        told = words.get(str(event.get("event")))
        if told is not None and (self._as_json or not self._is_quiet):
            self._line({"node": name, **event}, clean(f"{name:12} {told}".rstrip()))

    def _report(self, step: Step) -> None:
        mark = "ok    " if step.ok else "FAILED"
        self._line(
            {"event": "step", "name": step.name, "ok": step.ok, "detail": step.detail},
            f"{mark} {step.name:32} {step.detail}",
        )

    def _line(self, event: Event, text: str | None) -> None:
        if self._as_json:
            click.echo(json.dumps(event))
        elif text is not None:
            click.echo(text)

    def _tell(self, text: str) -> None:
        click.echo(text, err=True)


def _how(event: Event) -> object:
    is_draining = event.get("draining") and event.get("state") == "SERVING"
    return "draining" if is_draining else event.get("phase")
