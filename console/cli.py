"""The command line: names, help and where each command lives. A command imports what it needs when it runs."""

import importlib

import click
from click.shell_completion import CompletionItem

from console import __version__
from console.edge import edge

# name -> (module:attribute, one line of help, whether it is shown)
COMMANDS = {
    "demo": ("console.commands.demo:demo", "A whole fabric on this machine, with live traffic.", True),
    "init": ("console.commands.init:init", "Found a fabric.", True),
    "invite": ("console.commands.invite:invite", "Invite somebody's nodes.", True),
    "join": ("console.commands.join:join", "Join a fabric with an invite.", True),
    "operators": ("console.commands.operators:operators", "Who may do what.", True),
    "whoami": ("console.commands.whoami:whoami", "Who you are here, and where your keys are.", True),
    "start": ("console.commands.start:start", "Run a node here, wrap engines.", True),
    "stop": ("console.commands.stop:stop", "Stop nodes of yours on this host.", True),
    "service": ("console.commands.boot:service", "Start a node after each boot, without root.", True),
    "status": ("console.commands.look:status", "The fabric on one page.", True),
    "nodes": ("console.commands.look:nodes", "The nodes, and how they are.", True),
    "models": ("console.commands.look:models", "The models, and who serves them.", True),
    "events": ("console.commands.look:events", "What happened.", True),
    "logs": ("console.commands.look:logs", "The end of an engine's log.", True),
    "drain": ("console.commands.act:drain", "Send nothing new to a node.", True),
    "undrain": ("console.commands.act:undrain", "Let it take requests again.", True),
    "restart": ("console.commands.act:restart", "Start a node's engines anew.", True),
    "evict": ("console.commands.act:evict", "Put a node out of the fabric.", True),
    "ack": ("console.commands.act:ack", "Say that somebody looks after a node.", True),
    "keys": ("console.commands.keys:keys_", "API keys: offer, claim, list, revoke.", True),
    "login": ("console.commands.login:login", "Keep an API key for a door.", True),
    "try": ("console.commands.login:try_", "Call a model once.", True),
    "config": ("console.commands.config:config", "Settings, and where each came from.", True),
    "completion": ("console.commands.completion:completion", "Completion for your shell.", True),
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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The names that begin so, from the table alone; click's own would load every command."""
        return [
            CompletionItem(name, help=text)
            for name, (_, text, shown) in COMMANDS.items()
            if shown and name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in `--help`, from the table alone."""
        rows = [(name, text) for name, (_, text, shown) in COMMANDS.items() if shown]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; of one that does not exist, the nearest names are said."""
        is_typed = not ctx.resilient_parsing  # completion asks about what is not whole yet
        if is_typed and args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 2)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; what goes wrong in it ends at `console.edge`."""
        with edge(ctx.invoked_subcommand or ""):
            return super().invoke(ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tela")
def cli() -> None:
    """An operator-first control plane for LLM serving on machines nobody owns alone."""
