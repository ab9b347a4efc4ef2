"""An account of its own for commands, with a fabric in it, and a node's control socket where one is needed."""

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.sealed import ENTROPY_B, encode, seal
from node.config import HubAddress
from node.control.server import ControlServer
from node.fabricdir import FabricDir
from tests.people import FOUNDING, MEMBER, OPERATOR, Person, membership

HUB = Person(10)
HUBS = (HubAddress(key=HUB.key, urls=("ws://hub.example.org:7481",)),)
ENTROPY = bytes(range(ENTROPY_B))


@pytest.fixture
def account(tmp_path, monkeypatch):
    """Directories of an account, named by its environment; the one of sockets has a short path."""
    for name in ("TELA_FABRIC", "TELA_PASSPHRASE_FILE", "SSH_AUTH_SOCK", "TELA_HOST", "TELA_SLOT"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("TELA_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield tmp_path


def run(command, *words, stdin=""):
    """One command, as typed."""
    return CliRunner().invoke(command, [str(word) for word in words], input=stdin)


def config(account):
    return account / "config" / "tela"


def fabric(account, *, name="testfabric", operator=OPERATOR, records=(), hubs=HUBS, who="ada"):
    """A fabric's directory; its operator key is open, so that no test waits for a passphrase to be stretched."""
    sealed = encode(seal(who, operator.seed, b"", ENTROPY)) if operator is not None else None
    return FabricDir.create(
        config(account),
        name,
        [FOUNDING.charter, membership(), *records],
        hubs,
        "https://llm.example.org",
        member_seed=MEMBER.seed,
        operator_key=sealed,
    )


@asynccontextmanager
async def node_here(account, shown, monkeypatch_env):
    """The control API of a node of `testfabric`, where commands look for it."""
    path = Path(monkeypatch_env["XDG_RUNTIME_DIR"]) / "tela" / "testfabric-host10-0.sock"
    server = ControlServer(shown.app, path)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(server.serve())
        try:
            yield shown
        finally:
            server.close()
            await asyncio.wait([task], timeout=10.0)


async def run_beside(command, *words, stdin=""):
    """One command, while the loop goes on serving the control API."""
    return await asyncio.to_thread(run, command, *words, stdin=stdin)
