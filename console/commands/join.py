"""`tela join`: make a membership of an invite, and have a hub accept it while it still can be."""

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from console.joining import Joined


@click.command()
@click.argument("invite")
@click.option("--name", help="What the fabric is called here; its own name unless told.")
@click.option("--offline", is_flag=True, help="Dial nobody: the first node you start has to be accepted, in time.")
@click.option("--wait", "within_s", default=10.0, show_default=True, type=click.FloatRange(0.1, 600), help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def join(*, invite: str, name: str | None, offline: bool, within_s: float, as_json: bool) -> None:
    """Join the fabric that INVITE is for: @FILE, - for stdin, or the word itself.

    \b
    tela join @invite.txt

    Makes a key of yours, and a hub accepts it. An invite is for one person; all your hosts share what it makes when
    they share your home, else copy the directory that is named at the end.
    """  # noqa: D301 - click reads the character
    from console.here import places_here
    from console.joining import Joining
    from console.tokens import read_token

    logging.getLogger("tela").addHandler(logging.NullHandler())  # what the links log is said in words below
    invitation = read_token(_token(invite))
    joined = Joining(invitation, places_here()).join(name, offline=offline, within_s=within_s)
    _tell(joined, as_json=as_json)


def _token(argument: str) -> str:
    """The word, from wherever it is.

    Raises:
        TelaError: the file cannot be read.
    """
    from console.thishost import others_here
    from console.tokens import MAX_TOKEN_CHARS
    from registry.errors import TelaError

    if argument == "-":
        return sys.stdin.read(MAX_TOKEN_CHARS + 1)
    if argument.startswith("@"):
        path = Path(argument[1:])
        try:
            with path.open("rb") as file:
                return file.read(MAX_TOKEN_CHARS + 1).decode(errors="replace")
        except OSError as error:
            raise TelaError(
                f"cannot read {path}: {error.strerror}", hint="tela join @FILE, with the file's path", code="no_file"
            ) from error
    if not argument.startswith("tela_") and Path(argument).is_file():
        raise click.UsageError(f"{argument} is a file: tela join @{argument}")
    others = others_here()
    if others:
        people = "1 other person has" if others == 1 else f"{others} other people have"
        click.echo(
            f"warning: {people} processes on this host and could read the invite from your command line. If it is\n"
            "refused as used by another key, that is why; ask for a new one. Better: tela join @FILE",
            err=True,
        )
    return argument


def _tell(joined: "Joined", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_object(joined)))
        return
    _tell_membership(joined)
    which = "" if joined.is_only else f" --fabric {joined.fabric.name}"
    click.echo("Next:\n", err=True)
    click.echo(f'tela start{which} --process "vllm serve MODEL --port {{port}}"')
    click.echo(f"tela start{which} --role observer --detach")
    click.echo(f"tela nodes{which}")


def _object(joined: "Joined") -> dict[str, object]:
    invite, fabric = joined.invitation.invite, joined.fabric
    return {
        "fabric": {"id": joined.invitation.fabric_id.hex(), "name": fabric.name},
        "member": joined.member,
        "provider": invite.provider,
        "roles": list(invite.roles),
        "max_nodes": invite.max_nodes,
        "accepted": joined.until is not None,
        "until": joined.until,
        "path": str(fabric.path),
    }


def _tell_membership(joined: "Joined") -> None:
    from console.founding import up_to
    from console.thishost import shown_path
    from console.views.words import moment
    from registry.text import clean

    invite, fabric = joined.invitation.invite, joined.fabric
    roles = ", ".join(map(clean, invite.roles))
    what = f"{up_to(invite.max_nodes)} at one time for {clean(invite.provider)}, as {roles}"
    if joined.until is None:
        click.echo(
            f"You have a membership of {fabric.name}, but no hub has accepted it yet: {what}.\n"
            f"Start a node before {moment(invite.accept_by)}, or the invite lapses.",
            err=True,
        )
    else:
        click.echo(
            f"You are a member of {fabric.name}: {what}.\n"
            f"It lasts until {moment(joined.until)}, and longer as long as your nodes are seen.",
            err=True,
        )
    click.echo(f"Your key is in {shown_path(fabric.path)}; it is yours alone, so let nobody else read it.\n", err=True)
