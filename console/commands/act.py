"""`tela drain`, `undrain`, `restart`, `evict` and `ack`: orders to the fleet, signed here."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from console.commands.completion import node_names

if TYPE_CHECKING:
    from registry.kinds import Verb

WAIT_S = 10.0


def _order(command: Callable[..., None]) -> Callable[..., None]:
    """What every order takes."""
    for option in reversed(
        (
            click.argument("node", shell_complete=node_names),
            click.option("--reason", default="", help="Why; everybody sees it."),
            click.option(
                "--wait",
                default=WAIT_S,
                show_default=True,
                type=click.FloatRange(min=0),
                help="Seconds to watch what comes of it.",
            ),
            click.option("--fabric", help="Which fabric, when this account belongs to several."),
            click.option(
                "--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="Unlocks the operator key."
            ),
            click.option("--yes", is_flag=True, help="Do not ask."),
            click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
        )
    ):
        command = option(command)
    return command


@click.command()
@_order
def drain(**asked: object) -> None:
    """Send nothing new to NODE; what is under way ends. It stays drained through restarts until undrain."""
    _give("drain", "no new request reaches it until undrain", asked)


@click.command()
@_order
def undrain(**asked: object) -> None:
    """Let NODE take requests again."""
    _give("undrain", "it takes requests again", asked)


@click.command()
@_order
def restart(**asked: object) -> None:
    """Start the engines of NODE anew, after what is under way has ended."""
    _give("restart", "its engines stop and load again", asked)


@click.command()
@click.option("--lift", is_flag=True, help="Let it in again.")
@_order
def evict(*, lift: bool, **asked: object) -> None:
    """Put NODE out of the fabric: its links close within seconds and it may not come back."""
    if lift:
        _give("readmit", "it may come back", asked)
    else:
        _give("evict", "its links close, and what it serves is gone at once", asked, asks=True)


@click.command()
@_order
def ack(**asked: object) -> None:
    """Say that somebody looks after NODE; shown beside its trouble."""
    _give("ack", "shown to everybody beside its trouble", asked)


def _give(verb: "Verb", effect: str, asked: Mapping[str, object], *, asks: bool = False) -> None:
    from console.acting import Order, follow, give, signer_for
    from console.here import control_here, fabric_here
    from console.views.names import node_named
    from node.clock import SystemClock
    from registry.text import clean

    fabric = fabric_here(_text(asked["fabric"]))
    control = control_here(fabric.name)
    view = control.get("/view")
    row = node_named(view["nodes"], str(asked["node"]))
    name = clean(str(row["name"]))
    if asks and not asked["yes"]:
        _confirm(f"{verb} {name}, which serves {_served(view, row)}: {effect}")
    signer = signer_for(verb, str(row["member"]), fabric, _text(asked["passphrase_file"]))
    order = Order(verb, str(row["id"]), int(row["run"]) if verb == "restart" else 0, str(asked["reason"]))
    act = give(control, order, signer)
    tell = (lambda _: None) if asked["as_json"] else _tell
    clock = SystemClock()
    last = follow(control, act, within_s=float(str(asked["wait"])), now=clock.now, pause=_pause, tell=tell)
    if asked["as_json"]:
        click.echo(json.dumps({"act": act, "verb": verb, "node": name, "id": row["id"], **last}))
    else:
        click.echo(f"{verb} {name}: {last['state']}")
        if last["state"] in {"PENDING", "ACCEPTED"}:
            click.echo("it goes on without you; tela events says when it is done", err=True)
    if last["state"] in {"REFUSED", "PENDING"}:
        raise SystemExit(1)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _served(view: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    from console.views.words import counted

    models = {str(model) for each in view["replicas"] if each["node"] == row["id"] for model in each["models"]}
    return counted(len(models), "model")


def _confirm(question: str) -> None:
    if sys.stdin.isatty():
        click.confirm(f"{question}. Do it?", abort=True, err=True)
        return
    from registry.errors import TelaError

    raise TelaError(f"{question}. Nobody can be asked: stdin is no terminal", hint="add --yes", code="usage")


def _tell(state: Mapping[str, Any]) -> None:
    from registry.text import clean

    hubs = ", ".join(clean(str(hub)) for hub in state.get("hubs") or [])
    detail = clean(str(state.get("detail") or ""))
    words = {"PENDING": "sent", "ACCEPTED": f"held by {hubs}" if hubs else "held", "DONE": detail, "REFUSED": detail}
    click.echo(f"{state['state']:9} {words.get(str(state['state']), detail)}".rstrip(), err=True)


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)
