"""Running a node in this process."""

import json
from pathlib import Path

import click


@click.command(name="run-node", hidden=True)
@click.argument("spec", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run_node(spec: Path) -> None:
    """Run one node from a specification file; narrates as JSON lines on stdout, logs on stderr."""
    from node.config import read_config
    from node.logs import log_to_stderr
    from node.main import main

    log_to_stderr()
    main(read_config(spec), lambda event: click.echo(json.dumps(event)))
