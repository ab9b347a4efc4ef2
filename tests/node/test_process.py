"""A node as a whole: what it does about its own past, and about another that uses its key."""

import asyncio
from contextlib import suppress
from random import Random

import msgspec
import pytest

from gossip.websocket import WebsocketNetwork
from node.clock import SystemClock
from node.process import NodeProcess
from node.statedir import keep_to
from registry.charter import certify
from registry.errors import TelaError
from registry.kinds import Certificate
from registry.lifecycle import Rank
from tests.node.fabric import MODEL, fabric
from tests.people import FAR_S, Person


class More:
    """More nodes beside those of a fabric; how each ends is the test's business."""

    def __init__(self, door):
        self._door = door
        self._tasks: list[asyncio.Task] = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, person, state, **changes):
        """A worker like the first, with another key; returns it, its task and what it says."""
        authority, said = self._door.authority, []
        body = Certificate(node=person.key, roles=("worker",), not_after=FAR_S)
        certificate = certify(body, authority.member, authority.member_sign, seq=1)
        config = msgspec.structs.replace(
            self._door.workers[0].config, state=str(state), seed=person.seed, certificate=certificate.raw, **changes
        )
        node = NodeProcess(config, clock=SystemClock(), rng=Random(7), network=WebsocketNetwork(), say=said.append)
        task = asyncio.get_running_loop().create_task(node.run())
        self._tasks.append(task)
        return node, task, said


def run(tmp_path, script):
    async def main():
        async with fabric(tmp_path, workers=1) as door, More(door) as more:
            async with asyncio.timeout(30.0):
                await script(door, more)

    asyncio.run(main())


async def end_of(task):
    try:
        await task
    except TelaError as error:
        return error
    return None


def test_of_two_live_runs_of_one_key_the_older_stops_and_says_so(tmp_path):
    async def script(door, more):
        first, task, _ = more.start(Person(70), tmp_path / "one")
        await door.until(lambda: first.id in door.ingress.view().nodes)
        second, other, _ = more.start(Person(70), tmp_path / "two")
        error = await end_of(task)
        assert error is not None
        assert error.code == "superseded"
        assert "another run of this node's key is alive" in error.message
        assert str(tmp_path / "one") in error.hint
        await door.until(lambda: door.ingress.view().nodes[second.id].rank is Rank.SERVING)
        second.stop()
        assert await end_of(other) is None

    run(tmp_path, script)


def test_a_node_says_left_for_engines_of_its_last_run_that_nobody_ended(tmp_path):
    async def silent():
        pass

    async def script(door, more):
        first, task, _ = more.start(Person(71), tmp_path / "lost")
        await door.until(lambda: len(door.ingress.view().routable.get(MODEL, ())) == 2)
        slot = f"{first.id}/e0"
        await door.until(lambda: first.keeper._kept.get(first.replica.get(key_of(first, slot)).record.key) is not None)
        first.mesh.farewell = silent
        journal = tmp_path / "lost" / "journal"
        killed = journal.read_bytes()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        journal.write_bytes(killed)  # as a SIGKILL would have left it
        again, other, _ = more.start(Person(71), tmp_path / "lost", engines=())
        await door.until(lambda: door.ingress.view().replicas[slot].rank is Rank.LEFT)
        assert door.ingress.view().replicas[slot].replica.cause.reason == "lost"
        assert door.ingress.view().nodes[again.id].node.prev == "lost"
        again.stop()
        assert await end_of(other) is None

    def key_of(node, slot):
        return next(entry.record.key for entry in node.replica.of_kind("replica") if entry.record.key.id == slot)

    run(tmp_path, script)


def test_a_node_that_left_remembers_that_it_did(tmp_path):
    async def script(door, more):
        first, task, said = more.start(Person(72), tmp_path / "again", engines=())
        await door.until(lambda: first.id in door.ingress.view().nodes)
        first.stop()
        assert await end_of(task) is None
        assert said[-1]["event"] == "left"
        again, other, _ = more.start(Person(72), tmp_path / "again", engines=())
        await door.until(lambda: door.ingress.view().nodes[again.id].rank is Rank.SERVING)
        assert door.ingress.view().nodes[again.id].node.prev == "left"
        again.stop()
        assert await end_of(other) is None

    run(tmp_path, script)


def test_a_broken_journal_is_set_aside_and_told(tmp_path):
    async def script(door, more):
        state = tmp_path / "broken"
        state.mkdir(mode=0o700)
        (state / "journal").write_bytes(b"no journal at all" * 500)
        node, task, said = more.start(Person(73), state, engines=())
        assert any(event["event"] == "trouble" and "set aside" in event["text"] for event in said)
        assert list(state.glob("journal.corrupt-*"))
        await door.until(lambda: node.id in door.ingress.view().nodes)
        node.stop()
        assert await end_of(task) is None

    run(tmp_path, script)


def test_the_directory_of_another_fabric_of_the_same_name_is_not_taken(tmp_path):
    async def script(door, more):
        state = tmp_path / "theirs"
        state.mkdir(mode=0o700)
        keep_to(state, b"x" * 32)
        with pytest.raises(TelaError, match="belongs to another fabric"):
            more.start(Person(74), state)

    run(tmp_path, script)
