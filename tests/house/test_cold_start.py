"""What a command costs before it does anything, counted in modules: that does not depend on the machine's mood."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.console.founded import account, fabric, node_here
from tests.node.control import Shown

__all__ = ["account"]

COUNT = """
import sys
sys.argv = ["tela", *{argv!r}]
try:
    from console.__main__ import main
    main()
except SystemExit:
    pass
print(len(sys.modules), *sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {"rich", "msgspec", "http.client", "aiohttp", "asyncio", "nacl", "uvicorn", "sqlite_utils", "websockets"}
MOST = 160


def loaded(*argv):
    code = COUNT.format(argv=list(argv))
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    count, *names = done.stderr.split()[-1:] and done.stderr.strip().splitlines()[-1].split()
    return int(count), set(names)


def test_help_and_version_import_no_command():
    for argv in (["--help"], ["--version"]):
        count, names = loaded(*argv)
        assert not names & HEAVY
        assert count <= MOST


def looked(account, *argv):
    """What a command loads that asks a node here."""
    fabric(account)
    (account / "config" / "tela" / "config.toml").write_text('fabric = "testfabric"')  # the dearest way to find one

    async def main():
        async with asyncio.timeout(60.0), node_here(account, Shown(), os.environ):
            return await asyncio.to_thread(loaded, *argv)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "argv", [["status"], ["status", "--json"], ["nodes"], ["models"], ["models", "--replicas"], ["nodes", "--json"]]
)
def test_whoever_looks_pays_for_looking_alone(account, argv):
    count, names = looked(account, *argv)
    assert not names & HEAVY
    assert count <= MOST


@pytest.mark.parametrize("command", ["status", "nodes", "models", "events"])
def test_to_say_that_there_is_nothing_here_is_cheap_too(account, command):
    count, names = loaded(command)
    assert not names & HEAVY
    assert count <= MOST


def test_the_solver_and_the_migrations_are_not_on_the_path_of_a_node():
    code = (
        "import sys, node.main; print([name for name in ('sqlite_utils', 'pandas', 'ortools') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
