"""`tela status`, `nodes`, `models`, `events` and `logs`: what a node of this account here knows of the fabric."""

import json

import click

from console.commands.completion import node_names

MAX_LINE_CHARS = 4_000
FABRIC = click.option("--fabric", help="Which fabric, when this account belongs to several.")
JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, one object a line.")


@click.command()
@FABRIC
@JSON
def status(fabric: str | None, as_json: bool) -> None:
    """One page: this node, hubs, nodes, models, engines, and what somebody should look at."""
    from console.here import control_here
    from console.views.fleet import next_step, summary

    control = control_here(fabric)
    about, view = control.get("/self"), control.get("/view")
    if as_json:
        click.echo(json.dumps({"self": about, "view": view}))
        return
    for line in summary(view, about):
        click.echo(line)
    if hint := next_step(view):
        click.echo(hint, err=True)


@click.command()
@click.option("--all", "everything", is_flag=True, help="Those that left, too.")
@FABRIC
@JSON
def nodes(everything: bool, fabric: str | None, as_json: bool) -> None:
    """List nodes: state, roles, what they serve, where they run."""
    from console.here import control_here
    from console.printing import lines, table
    from console.views.fleet import NODE_COLUMNS, node_rows

    view = control_here(fabric).get("/view")
    if as_json:
        lines(node for node in view["nodes"] if everything or node["state"] != "LEFT")
        return
    table(node_rows(view, everything=everything), NODE_COLUMNS, "no nodes; that includes this one, so wait a moment")


@click.command()
@click.option("--replicas", is_flag=True, help="Every replica, and why it takes no requests.")
@FABRIC
@JSON
def models(replicas: bool, fabric: str | None, as_json: bool) -> None:
    """List models: state, replicas ready of wanted, what they can."""
    from console.here import control_here
    from console.printing import lines, table
    from console.views.fleet import MODEL_COLUMNS, REPLICA_COLUMNS, model_rows, next_step, replica_rows

    view = control_here(fabric).get("/view")
    if as_json:
        lines(view["replicas" if replicas else "models"])
    elif replicas:
        table(replica_rows(view), REPLICA_COLUMNS, "no replicas")
    else:
        table(model_rows(view), MODEL_COLUMNS, next_step(view))


@click.command()
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1_000), help="How many, the latest.")
@click.option("--follow", "-f", is_flag=True, help="Go on as they happen, until Ctrl-C.")
@FABRIC
@JSON
def events(limit: int, follow: bool, fabric: str | None, as_json: bool) -> None:
    """What the node here saw happen: states, causes, acts. Other nodes may have seen it at another moment."""
    from console.here import control_here
    from console.views.words import instant
    from registry.text import clean

    path = f"/events?limit={limit}" + ("&follow=1" if follow else "")
    count = 0
    for event in control_here(fabric).stream(path):
        count += 1
        if as_json:
            click.echo(json.dumps(event))
        else:
            click.echo(clean(f"{instant(event['at'])}  {event['subject']}  {event['text']}", 400))
    if not count and not as_json:
        click.echo("nothing has happened yet", err=True)


@click.command()
@click.argument("node", required=False, shell_complete=node_names)
@click.option("--slot", help="Which of its engines, as e0; `node` for tela's own log.  [default: the first engine]")
@click.option("--lines", "-n", default=50, show_default=True, type=click.IntRange(0, 2_000), help="How many.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option("--passphrase-file", type=click.Path(exists=True, dir_okay=False), help="Unlocks the operator key.")
@FABRIC
@JSON
def logs(
    node: str | None,
    slot: str | None,
    lines: int,
    follow: bool,
    passphrase_file: str | None,
    fabric: str | None,
    as_json: bool,
) -> None:
    """Show the end of an engine's log on NODE, or on the node here. It is asked for over the links, never gossiped.

    Its member may read it, and operators of the fleet. Of an own node on this host, or on a home this host shares,
    the file itself is read.
    """
    import time

    from console.asking import Wish, log_tail
    from registry.text import clean

    for line in log_tail(fabric, Wish(node, slot, lines, follow), passphrase_file, time.sleep):
        text = clean(line, MAX_LINE_CHARS)
        click.echo(json.dumps({"line": text}) if as_json else text)
