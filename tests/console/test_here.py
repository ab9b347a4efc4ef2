"""Which fabric a command is about, and the node that answers for it."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from console.here import control_here, fabric_here, named_fabric, places_here
from node.control.schema import FabricName
from node.control.server import ControlServer
from registry.charter import found
from registry.errors import TelaError
from tests.console.founded import account, config, fabric, node_here
from tests.node.control import Shown, about
from tests.people import MEMBER

__all__ = ["account"]


def refused(what, *args):
    with pytest.raises(TelaError) as caught:
        what(*args)
    return caught.value


def write_config(account, text):
    config(account).mkdir(parents=True, exist_ok=True)
    (config(account) / "config.toml").write_text(text)


def test_without_a_fabric_it_says_how_to_come_by_one(account):
    error = refused(fabric_here, None)
    assert error.code == "no_fabric"
    for way in ("tela init", "tela join", "tela demo"):
        assert way in error.hint


def test_the_only_fabric_need_not_be_named(account):
    fabric(account)
    assert fabric_here(None).name == "testfabric"


def test_of_several_one_must_be_named(account):
    fabric(account)
    fabric(account, name="other")
    error = refused(fabric_here, None)
    assert "other, testfabric" in error.message
    assert "--fabric" in error.hint
    assert "TELA_FABRIC" in error.hint


def test_a_flag_wins_over_the_environment_and_that_over_the_file(account, monkeypatch):
    write_config(account, 'fabric = "of-the-file"')
    assert named_fabric(None, places_here()) == "of-the-file"
    monkeypatch.setenv("TELA_FABRIC", "of-the-environment")
    assert named_fabric(None, places_here()) == "of-the-environment"
    assert named_fabric("of-the-flag", places_here()) == "of-the-flag"


def test_the_file_chooses_among_several(account):
    fabric(account)
    fabric(account, name="other")
    write_config(account, 'fabric = "other"')
    assert fabric_here(None).name == "other"


def test_a_file_that_says_nothing_of_a_fabric_chooses_none(account):
    write_config(account, "drain_s = 5")
    assert named_fabric(None, places_here()) is None


def test_a_file_that_is_wrong_is_named_and_not_passed_over(account):
    write_config(account, 'fabrik = "lab"')
    error = refused(fabric_here, None)
    assert error.code == "config"
    assert "did you mean fabric" in error.hint


def test_a_name_that_is_no_fabric_here_is_said_so(account):
    fabric(account)
    assert "testfabric" in refused(fabric_here, "\x1b[2J").hint


def test_without_a_node_it_says_how_to_start_one(account):
    fabric(account)
    error = refused(control_here, None)
    assert error.code == "no_node"
    assert "tela start" in error.hint


def test_a_node_that_runs_here_answers(account):
    fabric(account)

    async def main():
        async with node_here(account, Shown(), os.environ):
            return await asyncio.to_thread(control_here, None)

    assert asyncio.run(main()).about["node"]["name"] == "host10@lab"


def without_accounts():
    """A node here that does not hold the accounts shelf."""
    shown = Shown(accounts=False)
    shown.source = shown.source._replace(about=lambda: msgspec.structs.replace(about(), accounts=False, pid=2))
    shown.app = type(shown.app)(shown.source)
    return shown


def test_of_several_nodes_here_the_one_that_holds_the_keys_is_asked_about_keys(account):
    fabric(account)

    async def main():
        path = Path(os.environ["XDG_RUNTIME_DIR"]) / "tela" / "testfabric-host1-0.sock"
        server = ControlServer(without_accounts().app, path)
        async with node_here(account, Shown(), os.environ), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.serve())
            try:
                return [
                    (await asyncio.to_thread(control_here, None, accounts=wanted)).about["accounts"]
                    for wanted in (False, True)
                ]
            finally:
                server.close()
                await asyncio.wait([task], timeout=10.0)

    assert asyncio.run(main()) == [False, True]


def test_where_no_node_holds_the_keys_another_says_so(account):
    fabric(account)

    async def main():
        async with node_here(account, without_accounts(), os.environ):
            return await asyncio.to_thread(control_here, None, accounts=True)

    assert asyncio.run(main()).about["accounts"] is False


def test_a_node_of_another_fabric_of_that_name_does_not_answer_for_this_one(account):
    held = fabric(account)
    held.save_records([found("testfabric", "eve", MEMBER.key, MEMBER.sign).charter])

    async def main():
        async with node_here(account, Shown(), os.environ):
            return await asyncio.to_thread(refused, control_here, None)

    error = asyncio.run(main())
    assert error.code == "other_fabric"
    assert "HOME" in error.hint


def test_beside_a_node_of_another_fabric_of_that_name_ours_answers(account):
    fabric(account)

    async def main():
        stranger = Shown()
        stranger.source = stranger.source._replace(
            about=lambda: msgspec.structs.replace(about(), fabric=FabricName(id="ab" * 32, name="testfabric"), pid=2)
        )
        server = ControlServer(
            type(stranger.app)(stranger.source), Path(os.environ["XDG_RUNTIME_DIR"]) / "tela" / "testfabric-a-0.sock"
        )
        async with node_here(account, Shown(), os.environ), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.serve())
            try:
                return await asyncio.to_thread(control_here, None)
            finally:
                server.close()
                await asyncio.wait([task], timeout=10.0)

    assert asyncio.run(main()).about["pid"] == 1
