"""`tela stop`: end nodes of this account on this host, and say how they ended."""

import contextlib
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from registry.errors import TelaError

if TYPE_CHECKING:
    from node.statedir import Holder

WAIT_S = 90.0  # a drain of 30 s, the engines' own end, and some
LOOK_S = 1.0
ASK_S = 0.5  # a node that is stuck must not keep whoever wants to stop it
TAIL_B = 1_048_576
FAREWELL: tuple[str, ...] = ("lived_s", "served", "cut")


@click.command()
@click.argument("node", required=False)
@click.option("--all", "every", is_flag=True, help="Every node of this account on this host.")
@click.option("--now", is_flag=True, help="Do not wait for requests under way.")
@click.option(
    "--wait", "wait_s", default=WAIT_S, show_default=True, type=click.FloatRange(min=0), help="Seconds to wait."
)
@click.option("--fabric", help="Only nodes of this fabric.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each node on stdout.")
def stop(*, node: str | None, every: bool, now: bool, wait_s: float, fabric: str | None, as_json: bool) -> None:
    """Stop a node of yours on this host: it drains, its engine ends, it says LEFT.

    NODE is its name as `tela nodes` shows it, HOST-SLOT, or its pid; needed only when several run here. Stopped again
    while it drains, it ends at once.
    """
    from console.here import places_here
    from node.statedir import holders

    here = places_here()
    found = holders(here.state, fabric)
    chosen = choose([each for each in found if each.is_here], found, node, every=every)
    with contextlib.ExitStack() as stack:
        ended = [_Ending(each, here.runtime, stack) for each in chosen]
        for each in ended:
            each.tell(now=now)
        stayed = [each for each in ended if not each.wait(wait_s)]
    for each in ended:
        if each not in stayed:
            click.echo(json.dumps(each.told()) if as_json else each.line())
    if stayed:
        raise TelaError(
            f"still running after {wait_s:g} s: {', '.join(each.name for each in stayed)}",
            hint=f"tela stop --now cuts off what is under way; kill -9 {stayed[0].pid} is the last resort",
            code="still_running",
        )


def choose(here: "list[Holder]", found: "list[Holder]", word: str | None, *, every: bool) -> "list[Holder]":
    """Which nodes are meant.

    Args:
        here: those on this machine.
        found: those on other machines as well, which share this home.
        word: what was typed.
        every: whether all of them are meant.

    Raises:
        TelaError: none is meant.
        click.UsageError: which one is not clear.
    """
    if not here:
        others = ", ".join(f"{_name(each)} on {each.machine}" for each in found)
        hint = f"others run elsewhere, stop them there: {others}" if others else "tela start starts one"
        raise TelaError("no node of yours runs on this host", hint=hint, code="no_node")
    meant = here if word is None else [each for each in here if _is_named(each, word)]
    if not meant:
        names = ", ".join(map(_name, here))
        raise TelaError(f"no node {word!r} of yours runs on this host", hint=f"here run: {names}", code="no_node")
    if len(meant) > 1 and not every:
        raise click.UsageError(f"several nodes run here: {', '.join(map(_name, meant))}; name one, or --all")
    return meant


def _name(holder: "Holder") -> str:
    return f"{holder.host}-{holder.slot}"


def _is_named(holder: "Holder", word: str) -> bool:
    """By HOST-SLOT, HOST, HOST@PROVIDER with or without /RUN, or the pid."""
    return word.partition("@")[0] in {_name(holder), holder.host, str(holder.pid)}


class _Ending:
    """A node that is told to end. Mutable; lives for one command."""

    def __init__(self, holder: "Holder", runtime: Path, stack: contextlib.ExitStack) -> None:
        from console.client import Control
        from node.platform.process import Running
        from node.statedir import holders

        self.name = f"{_name(holder)} of {holder.fabric}"
        self.pid = holder.pid
        self._process = stack.enter_context(Running(holder.pid))
        # looked at again with the handle in hand: if it is still the holder, the handle is on it
        self._is_it = holder in holders(holder.path.parent.parent, holder.fabric)
        self._control = Control(runtime / f"{holder.fabric}-{_name(holder)}.sock")
        self._log = holder.path / "node.log"
        self._log_from = _size(self._log)

    def tell(self, *, now: bool) -> None:
        """Tell it to end."""
        if not self._is_it:
            return
        self._process.tell(signal.SIGTERM)
        if now:
            self._process.tell(signal.SIGINT)  # another one, so that the two cannot become one on the way
        click.echo(f"{self.name}: told to stop (pid {self.pid})", err=True)

    def wait(self, wait_s: float) -> bool:
        """Wait for its end, and say what it waits for."""
        said: int | None = None
        left = wait_s
        while self._is_it and not self._process.ends_within(min(LOOK_S, left)):
            left -= LOOK_S
            if left <= 0:
                return False
            count = self._in_flight()
            if count is not None and count != said:
                said = count
                click.echo(f"{self.name}: {count} requests under way, {left:.0f} s; --now cuts them off", err=True)
        return True

    def told(self) -> dict[str, Any]:
        """How it ended, for programs."""
        farewell = farewell_in(_since(self._log, self._log_from))
        fields = {name: farewell[name] for name in FAREWELL if name in farewell}
        return {"event": "stopped", "node": self.name, "pid": self.pid} | fields

    def line(self) -> str:
        """How it ended, for people."""
        from console.narration import line_of

        farewell = farewell_in(_since(self._log, self._log_from))
        return f"{self.name}: {(line_of(farewell) if farewell else None) or 'stopped'}"

    def _in_flight(self) -> int | None:
        try:
            engines = self._control.get("/self", timeout_s=ASK_S)["engines"]
            return sum(int(engine["in_flight"]) for engine in engines)
        except (TelaError, KeyError, TypeError, ValueError):
            return None


def farewell_in(log: str) -> dict[str, Any]:
    """The last word of a node in its log; empty when there is none, as when it ran in a terminal."""
    for line in reversed(log.splitlines()):
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("event") == "left":
                return event
    return {}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _since(path: Path, start: int) -> str:
    """What was added to a log, at most its end; all of it when a new file took its place."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(start if start <= end else 0, end - TAIL_B))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
