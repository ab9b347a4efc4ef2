"""`tela config show`: every setting, its value and where that came from."""

import json
import os

import click


@click.group()
def config() -> None:
    """Settings: `config.toml`, the environment, and what is left to the defaults."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show(as_json: bool) -> None:
    """List settings. A flag wins over TELA_…, that over config.toml, that over the default."""
    from console.here import places_here
    from console.views.table import plain
    from node.settings import SETTINGS, read_file, resolve

    path = places_here().config / "config.toml"
    settings = resolve({}, os.environ, read_file(path))
    rows = [
        {
            "setting": name,
            "value": setting.value,
            "source": setting.source,
            "environment": SETTINGS[name].env,
            "help": SETTINGS[name].help,
        }
        for name, setting in settings.items()
    ]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    click.echo(plain(rows, ("setting", "value", "source", "environment", "help")))
    click.echo(f"file: {path}" + ("" if path.exists() else " (not there)"), err=True)
