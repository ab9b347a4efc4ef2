"""`tela demo`: a whole fabric on this machine, and what it does."""

import asyncio
import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

import aiohttp
import click

from node.clock import SystemClock
from node.demo import DemoFabric
from node.demo_node import Event
from node.scenario.script import Script, Step, stage_of, traffic_of
from node.scenario.traffic import Tally, Traffic, until_called
from registry.errors import TelaError
from registry.text import clean

TRAFFIC_PER_S = 10.0
TELL_EACH_S = 2.0
FIRST_KILL_S = 4.0  # after the traffic began an engine is killed, to be seen
KILL_EACH_S = 15.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_BASE_B = 60  # the sockets in it must not get a longer name than the kernel takes
SHORT_BASE = "/tmp"  # noqa: S108 - what is made in it is made private


@click.command()
@click.option("--workers", default=3, show_default=True, type=click.IntRange(1, 32), help="How many workers.")
@click.option("--check", is_flag=True, help="Run the scripted scenario instead; exit 0 only if all held.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5),
    help="End by itself after so many seconds of traffic; starting and stopping are not counted, --check ignores it.",
)
@click.option("--port", default=0, show_default="a free one", type=click.IntRange(0, 65535), help="Port of the door.")
def demo(workers: int, check: bool, as_json: bool, seconds: float | None, port: int) -> None:
    """A whole fabric on this machine: an ingress, workers on demo engines, live traffic.

    Now and then an engine is killed, so that it can be seen what becomes of its requests. Everything runs as real
    processes in a temporary directory and is gone afterwards; only when something failed its logs are kept.
    """
    if check and workers < 3:
        raise click.UsageError("--check kills two of the workers; it needs --workers 3 or more")
    with _workplace() as place:
        run = Demo(place.directory, workers=workers, ingresses=2 if check else 1, port=port, as_json=as_json)
        try:
            held = asyncio.run(run.check() if check else run.show(seconds))
        except asyncio.CancelledError:
            click.echo("ended before it was done; nothing is left.", err=True)
            raise SystemExit(1) from None
        if not held:
            click.echo(place.keep(), err=True)
            raise SystemExit(1)


class Workplace:
    """The directory of one demo. Mutable: its logs may be kept.

    Attributes:
        directory: where it is.
        keeps: whether its logs are left when it goes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keeps = False

    def keep(self) -> str:
        """Leave the logs; returns the words that say where."""
        self.keeps = True
        return f"the logs are kept in {self.directory}"

    def leave(self) -> None:
        """Remove it, but for logs that are to be kept; keys and ledgers never are."""
        if not self.keeps:
            shutil.rmtree(self.directory, ignore_errors=True)  # a process that was killed may still be ending
            return
        for path in sorted(self.directory.rglob("*"), reverse=True):
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()  # fails, as it should, while a log is in it
                elif path.suffix != ".log":
                    path.unlink()


@contextlib.contextmanager
def _workplace() -> Iterator[Workplace]:
    """A private directory for one demo; when something fails its logs stay, and the error says where."""
    base = tempfile.gettempdir()
    place = Workplace(Path(tempfile.mkdtemp(prefix="tela-demo-", dir=base if len(base) <= MAX_BASE_B else SHORT_BASE)))
    try:
        yield place
    except TelaError as error:
        hint = "; ".join(filter(None, (error.hint, place.keep())))
        raise TelaError(error.message, hint=hint, code=error.code) from error
    finally:
        place.leave()


class Demo:
    """One demo and its narration. Lives for one command."""

    def __init__(self, directory: Path, *, workers: int, ingresses: int, port: int, as_json: bool) -> None:
        self._clock = SystemClock()
        self._as_json = as_json
        self._is_quiet = False
        self._told: dict[str, str] = {}  # what was told last of each node
        self._tally = Tally()
        self._stop = asyncio.Event()
        self._is_stoppable = False  # there is traffic, which is let end
        self._fabric = DemoFabric(
            directory,
            workers=workers,
            ingresses=ingresses,
            rng=SystemRandom(),
            now=self._clock.wall(),
            http=f"127.0.0.1:{port}",
            tell=self._narrate,
        )

    async def check(self) -> bool:
        """The scripted scenario; True when every step held."""
        started = self._clock.now()
        self._is_quiet = True
        self._listen_to_signals()
        async with self._fabric.running(), aiohttp.ClientSession(trust_env=False) as session:
            stage = stage_of(self._fabric, self._traffic(session), SystemRandom(), self._clock.now)
            script = Script(stage, self._report)
            held = await script.check(started)
        failed = sum(not step.ok for step in script.steps)
        self._line({"event": "checked", "ok": held, "steps": len(script.steps), "failed": failed}, None)
        self._tell(f"{len(script.steps) - failed} of {len(script.steps)} steps held.")
        return held

    async def show(self, seconds: float | None) -> bool:
        """Live traffic until Ctrl-C; True when every whole answer came and no stream ended in silence."""
        self._tell("DEMO · one fabric on this machine; nothing is kept.")
        self._listen_to_signals()
        async with self._fabric.running(), aiohttp.ClientSession(trust_env=False) as session:
            traffic = self._traffic(session)
            await until_called(traffic.doors[0].caller, self._fabric.model)
            self._invite()
            self._is_stoppable = True
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, self._stop.set)
            await self._live(traffic)
            self._tell("stopping; goodbye.")
        return self._conclude()

    def _listen_to_signals(self) -> None:
        """Let a signal end the traffic; without any yet, in a check, or told again, everything at once."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end() -> None:
            if self._is_stoppable and not self._stop.is_set():
                self._stop.set()
            else:
                task.cancel()

        for number in ENDING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                loop.add_signal_handler(number, end)

    async def _live(self, traffic: Traffic) -> None:
        told = self._clock.now()
        kill_at, killed = told + FIRST_KILL_S, 0
        async with asyncio.TaskGroup() as tasks:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                tasks.create_task(self._call(traffic, stream=turn % 2 == 0))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), 1.0 / TRAFFIC_PER_S)
                if self._clock.now() >= kill_at and len(self._fabric.workers) > 1:
                    kill_at += KILL_EACH_S
                    self._kill(killed % len(self._fabric.workers))
                    killed += 1
                if self._clock.now() - told >= TELL_EACH_S:
                    told = self._clock.now()
                    self._sum_up("traffic")

    async def _call(self, traffic: Traffic, *, stream: bool) -> None:
        self._tally.add(await traffic.call(stream=stream), stream=stream)

    def _sum_up(self, event: str, said: str = "") -> None:
        tally = self._tally
        failed = tally.lost + tally.cut
        counts = {"requests": tally.calls, "streamed": tally.streams, "failed": failed, "failed_whole": tally.lost}
        self._line(
            {"event": event, **counts, "by_node": dict(tally.by_host)},
            said
            or f"{tally.calls} requests, {tally.streams} of them streamed, {failed} failed · "
            + " · ".join(f"{name} {count}" for name, count in sorted(tally.by_host.items())),
        )

    def _conclude(self) -> bool:
        """Say what became of all calls; whether that is as it should be."""
        try:
            said, held = self._tally.judge(), True
        except AssertionError as error:
            said, held = str(error), False
        self._sum_up("ended", said)
        return held

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

    def _traffic(self, session: aiohttp.ClientSession) -> Traffic:
        return traffic_of(self._fabric, session, SystemRandom(), self._clock.now)

    # --- narration

    def _narrate(self, name: str, event: Event) -> None:
        words = {
            "ready": "up" if not event.get("http") else f"up at {event['http']}",
            "engine": f"engine {event.get('state')} {_how(event)}",
        }
        told = words.get(str(event.get("event")))
        if told is None or (self._is_quiet and not self._as_json):
            return
        is_new = self._told.get(name) != told  # an engine also says when it can do more than it could
        self._told[name] = told
        self._line({"node": name, **event}, clean(f"{name:12} {told}".rstrip()) if is_new else None)

    def _report(self, step: Step) -> None:
        mark = "ok    " if step.ok else "FAILED"
        self._line(
            {"event": "step", "name": step.name, "ok": step.ok, "detail": step.detail},
            clean(f"{mark} {step.name:32} {step.detail}", 600),
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
