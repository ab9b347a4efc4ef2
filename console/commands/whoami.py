"""`tela whoami`: who this account is in its fabrics, what it may do, and where its keys are."""

import json
from typing import Any

import click

WIDTH = 10


@click.command()
@click.option("--fabric", help="Only this one; every one unless told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def whoami(*, fabric: str | None, as_json: bool) -> None:
    """Say who you are here: fabrics, memberships, verbs, and the file of each credential. Shows no secret."""
    from console.here import named_fabric, places_here
    from console.identity import api_key_rows, fabric_row
    from node.fabricdir import find, names

    places = places_here()
    named = named_fabric(fabric, places)
    api_keys, trouble = api_key_rows(places)
    held = names(places.config) if named is None else (find(places.config, named).name,)
    rows = [fabric_row(find(places.config, name), places) for name in held]
    if as_json:
        click.echo(json.dumps({"fabrics": rows, "api_keys": api_keys, "trouble": trouble}))
    else:
        for row in rows:
            _show_fabric(row)
        for key in api_keys:
            text = f"{key['id']} {key['label']}".strip()
            click.echo(f"{'api key':{WIDTH}} {text or 'without an id'}, for {key['url']}  ({_file(key)})")
        _show_trouble(trouble)
    if not rows:
        find(places.config, None)  # says that there is none, and what founds or joins one


def _show_fabric(row: dict[str, Any]) -> None:
    node = row["node"]
    runs = f"node {node['name']} runs here" if node else "no node of yours runs here, so this is as last known"
    click.echo(f"{'fabric':{WIDTH}} {row['name']}: {runs}")
    if row["id"]:
        click.echo(f"{'':{WIDTH}} id {row['id']}, charter {row['charter']}")
    files = {each["path"]: each for each in row["credentials"]}
    _show_member(row, files.get(f"{row['path']}/member.key"))
    _show_operator(row, files.get(f"{row['path']}/operator.key"))
    if row["door"]:
        click.echo(f"{'door':{WIDTH}} {row['door']}")
    _show_trouble(row["trouble"])


def _show_member(row: dict[str, Any], file: dict[str, Any] | None) -> None:
    from console.founding import up_to
    from console.views.words import moment

    member = row["member"]
    if member is None:
        if file is None:
            click.echo(f"{'member':{WIDTH}} no; this account may not run nodes")
        return
    until = f"until {moment(member['until'])} or later" if member["accepted"] else "NOT ACCEPTED by a hub yet"
    limits = f"{up_to(member['max_nodes'])} as {', '.join(member['roles']) or 'observer'}"
    click.echo(f"{'member':{WIDTH}} {member['id']} of {member['provider']}, {limits}, {until}")
    if file:
        click.echo(f"{'':{WIDTH}} {_file(file)}")


def _show_operator(row: dict[str, Any], file: dict[str, Any] | None) -> None:
    operator = row["operator"]
    if operator is None:
        if file is None:
            click.echo(f"{'operator':{WIDTH}} no")
        return
    may = "; ".join(f"{', '.join(each['verbs'])} ({each['scope']})" for each in operator["may"])
    counts = f"may {may}" if may else f"may NOTHING by charter {row['charter']}; tela operators request says how it may"
    click.echo(f"{'operator':{WIDTH}} {operator['name']} {operator['id']}, {counts}")
    click.echo(f"{'':{WIDTH}} key {operator['state']}")
    if file:
        click.echo(f"{'':{WIDTH}} {_file(file)}")


def _show_trouble(trouble: list[dict[str, str]]) -> None:
    for each in trouble:
        click.echo(f"{'TROUBLE':{WIDTH}} {each['text']}")
        if each["remedy"]:
            click.echo(f"{'':{WIDTH}} {each['remedy']}")


def _file(row: dict[str, Any]) -> str:
    from pathlib import Path

    from console.thishost import shown_path

    return f"{shown_path(Path(row['path']))}, mode {row['mode']}"
