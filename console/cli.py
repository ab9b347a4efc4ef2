"""The command line: names, help and where each command lives. A command imports what it needs when it runs."""

import importlib
import sys

import click

from console import __version__
from registry.errors import TelaError

# name -> (module:attribute, one line of help, whether it is shown)
COMMANDS = {
    "demo": ("console.commands.demo:demo", "A whole fabric on this machine, with live traffic.", True),
    "run-node": ("console.commands.start:run_node", "Run one node from a specification file.", False),
}


class LazyGroup(click.Group):
    """Knows its commands by name and loads the one that is run, so that `--help` imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The shown commands."""
        return [name for name, (_, _, shown) in COMMANDS.items() if shown]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in `--help`, from the table alone."""
        rows = [(name, text) for name, (_, text, shown) in COMMANDS.items() if shown]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an error that may be shown is shown, with what to do next, and exits 1."""
        try:
            return super().invoke(ctx)
        except TelaError as error:
            _show(error)
        except BaseExceptionGroup as group:  # of several tasks that failed at once, the first may be shown
            shown, others = group.split(TelaError)
            if shown is None or others is not None:
                raise
            _show(_first(shown))
        sys.exit(1)


def _show(error: BaseException) -> None:
    if isinstance(error, TelaError):
        click.echo(f"tela: {error.message}", err=True)
        if error.hint:
            click.echo(f"      {error.hint}", err=True)


def _first(group: BaseExceptionGroup[TelaError]) -> BaseException:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tela")
def cli() -> None:
    """An operator-first control plane for LLM serving on machines nobody owns alone."""
