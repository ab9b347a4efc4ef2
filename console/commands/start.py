"""`tela start`: run a node of a fabric this account belongs to, and wrap engines."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from node.settings import Setting
    from node.starting import Prepared

SETTINGS = (  # flags that are settings of the same name, what they take, and what they are for
    ("--fabric", "NAME", "Which fabric, when this account belongs to several."),
    ("--host", "NAME", "The name of this host; the system's own unless told."),
    ("--listen", "HOST:PORT", "Where to take links; a node without it only dials out."),
    ("--http", "HOST:PORT", "Where the door is, or unix:PATH; only an ingress has one.  [default: 127.0.0.1:7480]"),
    ("--url", "URL", "Where people reach the door, as https://llm.example.org; shown in every example."),
    ("--tls-cert", "FILE", "Certificate chain of the door, PEM."),
    ("--tls-key", "FILE", "Its private key, PEM."),
)


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    for flag, what, text in reversed(SETTINGS):
        command = click.option(flag, metavar=what, help=text)(command)
    return command


@click.command()
@click.option("--role", multiple=True, metavar="ROLES", help="worker, ingress, relay, observer; commas between.")
@click.option("--process", multiple=True, metavar="CMD", help="An engine to start, with {port} in it. Repeatable.")
@click.option("--engine-url", multiple=True, metavar="URL", help="An engine that runs here already. Repeatable.")
@click.option(
    "--model", multiple=True, metavar="NAME", help="The model the engine has to list; one for each engine, in order."
)
@click.option("--alias", multiple=True, metavar="A|A=M", help="Offer the model, or M, as A instead.")
@click.option("--engine-port", type=click.IntRange(1, 65535), help="The port for {port}; a free one unless told.")
@click.option("--serve-to", multiple=True, metavar="WHOM", help="fabric, project:P or user:U. Repeatable.")
@click.option("--slot", type=click.IntRange(0, 999), help="Which of several nodes on this host; the first free one.")
@click.option("--advertise", multiple=True, metavar="URL", help="Where others reach --listen, as ws://host:7481.")
@click.option("--behind-proxy", multiple=True, metavar="CIDR", help="A proxy's network, whose X-Forwarded-For counts.")
@click.option("--insecure-http", is_flag=True, default=None, help="Take API keys over plain HTTP beyond loopback.")
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(0, 86_400),
    help="Seconds for requests under way at the end.  [default: 30]",
)
@click.option("--detach", is_flag=True, help="Go on in the background; returns when the node is up.")
@click.option("--json", "as_json", is_flag=True, help="Narrate as JSON lines on stdout.")
@_settings
def start(*, detach: bool, as_json: bool, **flags: object) -> None:
    """Run a node here: wrap engines, be an ingress, or only look.

    \b
    tela start --process "vllm serve org/model --port {port}"
    tela start --role ingress,relay --listen 0.0.0.0:7481 --http 127.0.0.1:7480

    Ctrl-C or SIGTERM drains: what is under way ends, then the engine, then the node says LEFT. Twice: at once.
    """  # noqa: D301 - click reads the character
    import os

    from console.here import places_here
    from node.clock import SystemClock
    from node.logs import log_to_stderr
    from node.starting import log_path, prepare, want

    clock = SystemClock()
    wanted = want(flags, places_here(), os.environ)
    if detach:
        from node.detach import Background, detached

        def behind(background: Background) -> None:
            prepared = prepare(wanted, clock.wall())
            background.log_to(log_path(prepared.state))
            logging.getLogger().setLevel(_level(wanted.settings["log_level"], quiet=False))
            _run(prepared, as_json=as_json, ready=background.ready, is_watched=lambda: not background.is_up)

        raise SystemExit(detached(behind, now=clock.now))
    prepared = prepare(wanted, clock.wall())
    log_to_stderr(_level(wanted.settings["log_level"], quiet=not as_json))
    _run(prepared, as_json=as_json, ready=lambda _: None)


def _level(setting: "Setting", *, quiet: bool) -> int:
    """How much is logged. Unless told, beside a narration for people only trouble is."""
    if setting.source == "default" and quiet:
        return logging.WARNING
    return logging.getLevelNamesMapping()[str(setting.value).upper()]


def _run(
    prepared: "Prepared",
    *,
    as_json: bool,
    ready: "Callable[[Mapping[str, object]], None]",
    is_watched: Callable[[], bool] = lambda: True,
) -> None:
    from console.narration import line_of
    from node.main import main

    def say(event: dict[str, object]) -> None:
        if as_json or not is_watched():  # in the background what comes later goes into the log
            click.echo(json.dumps(event))
        elif (line := line_of(event)) is not None:
            click.echo(line, err=True)
        if event.get("event") == "ready":
            ready(event)

    try:
        main(prepared.config, say)
    finally:
        prepared.state.release()


@click.command(name="run-node", hidden=True)
@click.argument("spec", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run_node(spec: Path) -> None:
    """Run one node from a specification file; narrates as JSON lines on stdout, logs on stderr."""
    from node.config import read_config
    from node.logs import log_to_stderr
    from node.main import main

    log_to_stderr()
    main(read_config(spec), lambda event: click.echo(json.dumps(event)))
