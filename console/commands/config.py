"""`tela config show`: every setting, its value and where that came from."""

import os

import click


@click.group()
def config() -> None:
    """Settings: `config.toml`, the environment, and what is left to the defaults."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show(as_json: bool) -> None:
    """List settings. A flag wins over TELA_…, that over config.toml, that over the default."""
    from console.here import CONFIG, places_here
    from console.printing import lines, table
    from node.settings import SETTINGS, read_file, resolve

    path = places_here().config / CONFIG
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
        lines(rows)
        return
    table(rows, ("setting", "value", "source", "environment", "help"), "")
    click.echo(f"file: {path}" + ("" if path.exists() else " (not there)"), err=True)
