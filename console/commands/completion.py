"""`tela completion`: what a shell runs to complete words, and the names it may offer.

Names of models and nodes come from a node that runs here. A shell waits for them, so there is a deadline, and no name
at all is an answer: completing never shows an error.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from registry.errors import TelaError

DEADLINE_S = 0.3
SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what completes `tela` in a shell.

    \b
    bash   eval "$(tela completion bash)"           in ~/.bashrc
    zsh    eval "$(tela completion zsh)"            in ~/.zshrc, after compinit
    fish   tela completion fish | source            in ~/.config/fish/config.fish
    """  # noqa: D301 - click reads the character
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "tela", "_TELA_COMPLETE").source())


def model_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Models of the fabric that begin so; for `shell_complete` of an argument."""
    return _names("models", "id", begun)


def node_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Nodes of the fabric, as host@provider, that begin so; for `shell_complete` of an argument."""
    return _names("nodes", "name", begun)


def _names(rows: str, field: str, begun: str) -> list[str]:
    from registry.text import is_id

    try:
        with _within(DEADLINE_S):
            names = {str(row[field]) for row in _view()[rows]}
    except (TelaError, _Late, KeyError, TypeError):
        return []
    return sorted(name for name in names if name.startswith(begun) and is_id(name))


def _view() -> dict[str, Any]:
    from console.here import control_here

    return control_here(None).get("/view")


class _Late(Exception):
    """The time is up. No OSError, which whoever waits for a node takes for that node's fault, and asks the next."""


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """A deadline for everything inside, whatever it waits for. For the main thread of a short life."""

    def late(_number: int, _frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
