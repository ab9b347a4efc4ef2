"""`tela service`: have a node start again after a boot, without root, by what this host has for that.

It is a unit of `systemd --user` where services outlive logins, else a line of the crontab. Where neither would work it
writes nothing and says what would end a node here.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from registry.errors import TelaError

if TYPE_CHECKING:
    from node.platform.installed import Boot, Spot
    from node.platform.staying import Surroundings


@click.group()
def service() -> None:
    """Start a node after each boot: install, remove, status."""


@service.command()
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF START]")
def install(*, dry_run: bool, options: tuple[str, ...]) -> None:
    """Start a node now and after each boot, with these options of `tela start`.

    \b
    tela service install -- --process "vllm serve org/model --port {port}"

    The directory it is called from, PATH and a few more variables are kept for it. Installed again, it is replaced.
    While a node of yours runs here, the service starts with the next boot only.
    """  # noqa: D301 - click reads the character
    from node.platform import installed
    from node.platform.staying import threats, way

    wanted = _wanted(options)
    around = _around()
    how = way(around)
    if not how:
        raise TelaError("nothing here would start a node after a boot", hint="; ".join(threats(around)), code="no_boot")
    if dry_run:
        for path, text in installed.texts(_spot(), how, wanted).items():
            click.echo(f"# {path}\n{text}")
        return
    runs = _runs_here()
    installed.install(_spot(), how, wanted, start=not runs)
    when = "with the next boot; a node of yours runs here now" if runs else "now and after each boot"
    click.echo(f"{wanted.name}: starts {when}, by {how}", err=True)


@service.command()
@click.argument("name", required=False)
def remove(*, name: str | None) -> None:
    """Do not start it after a boot any more. A node that runs goes on: `tela stop` ends it."""
    from node.platform import installed

    found = installed.installed(_spot(), os.uname().nodename)
    if not found:
        raise _none()
    if name is None and len(found) > 1:
        raise click.UsageError(f"several are installed: {', '.join(sorted(found))}; name one")
    name = name or next(iter(found))
    if name not in found:
        raise TelaError(f"no service {name!r} here", hint=f"installed: {', '.join(sorted(found))}", code="no_service")
    installed.remove(_spot(), name, found[name])
    click.echo(f"{name}: removed", err=True)


@service.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each on stdout.")
def status(*, as_json: bool) -> None:
    """What is installed here, and what would end a node all the same."""
    from node.platform import installed
    from node.platform.staying import threats

    found = installed.installed(_spot(), os.uname().nodename)
    for name, how in sorted(found.items()):
        state = installed.state(_spot(), name) if how == "systemd" else "after a boot"
        told = {"name": name, "by": how, "state": state}
        click.echo(json.dumps(told) if as_json else f"{name}  {how}  {state}")
    if not found:
        raise _none()
    if not _runs_here():
        click.echo("no node of yours runs on this host now", err=True)
    for threat in threats(_around()):
        click.echo(threat, err=True)


def _wanted(options: tuple[str, ...]) -> "Boot":
    """The service, its options checked as `tela start` would.

    Raises:
        click.UsageError: an option that `tela start` does not know, or that makes no sense here.
        TelaError: which fabric is not clear.
    """
    from console.commands.start import start
    from console.here import fabric_here
    from node.platform.installed import Boot

    asked = start.make_context("tela service install --", list(options)).params
    if asked.get("detach"):
        raise click.UsageError("--detach is not for a service: it runs in the background anyway")
    fabric = fabric_here(asked.get("fabric")).name
    slot, drain_s = asked.get("slot"), asked.get("drain_s")
    named = () if asked.get("fabric") else ("--fabric", fabric)
    return Boot(
        name="-".join([fabric, _host(), *([] if slot is None else [str(slot)])]),
        command=(*_tela(), "start", *named, *options),
        home=str(Path.cwd()),
        machine=os.uname().nodename,
        drain_s=30.0 if drain_s is None else drain_s,
    )


def _host() -> str:
    """This host's short name; a home that hosts share holds a service of each."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", os.uname().nodename.partition(".")[0])


def _tela() -> tuple[str, ...]:
    """This program, however it was installed."""
    script = Path(sys.executable).with_name("tela")
    return (str(script),) if os.access(script, os.X_OK) else (sys.executable, "-m", "console")


def _around() -> "Surroundings":
    import pwd

    from node.clock import SystemClock
    from node.platform.surroundings import look

    return look(os.environ, pwd.getpwuid(os.getuid()).pw_name, SystemClock().wall())


def _spot() -> "Spot":
    from console.here import places_here
    from node.platform.installed import Spot

    config = places_here().config
    return Spot(units=config.parent / "systemd" / "user", scripts=config / "boot")


def _runs_here() -> bool:
    from console.here import places_here
    from node.statedir import holders

    return any(each.is_here for each in holders(places_here().state, None))


def _none() -> TelaError:
    return TelaError("no service is installed here", hint="tela service install -- OPTIONS", code="no_service")
