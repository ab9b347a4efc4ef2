"""Acts that concern a node: which it takes up, what it says came of them, and that it says when it is put out."""

import asyncio
from operator import methodcaller

import pytest

from gossip.memory import MemoryNetwork
from node.orders import Orders, answered, due, is_past
from registry.acts import subject
from registry.errors import TelaError
from registry.kinds import Act, Outcome
from tests.autojump import run
from tests.mesh import MeshNode, order, until
from tests.people import OPERATOR, Person

ME, OTHER = Person(80), Person(81)

STARTED = 0.0


class Engines:
    """A fleet that says what was asked of it, and drains when a test lets it."""

    def __init__(self):
        self.is_idle = asyncio.Event()
        self.restarts = []

    async def drained(self):
        await self.is_idle.wait()
        return "3 requests ended"

    async def restart(self, reason):
        self.restarts.append(reason)
        if reason == "impossible":
            raise TelaError("it cannot be done\x1b here " + "x" * 500)
        return "e0 is run 8"


class Bench:
    """One node's orders, and what it says."""

    def __init__(self, *, is_hub=False, fleet=None, at=7):
        self.node = MeshNode(ME, MemoryNetwork().host("me"), run=at)
        self.said = []
        self.orders = Orders(
            author=self.node.author,
            mesh=self.node.mesh,
            is_hub=is_hub,
            fleet=fleet,
            started=lambda: STARTED,
            fabric=self.node.clock.fabric,
            say=self.said.append,
        )

    def look(self, tasks, *records):
        for record in records:
            self.node.mesh.tell(methodcaller("publish", record))
        self.orders.look(self.node.view().standing, tasks)

    def outcomes(self):
        held = self.node.replica.of_kind("outcome")
        return {body.act: (body.state, body.reason) for _, body in held if isinstance(body, Outcome)}

    async def outcome_of(self, record):
        await until(lambda: record.order.hash in self.outcomes())
        return self.outcomes()[record.order.hash]

    def events(self, name):
        return [each for each in self.said if each["event"] == name]


def carried_out(*records, **bench):
    """What became of orders that came one after the other; returns the bench and the last outcome."""

    async def main():
        here = Bench(**bench)
        async with asyncio.TaskGroup() as tasks:
            for record in records:
                here.look(tasks, record)
            said = await here.outcome_of(records[-1])
        return here, said

    return run(main())


# --- which


def due_at(*records, is_hub=False, handled=()):
    here = Bench()
    for record in records:
        here.node.mesh.tell(methodcaller("publish", record))
    todo = due(here.node.view().standing, ME.id, set(handled), is_hub=is_hub)
    return [each.act.verb for each in todo]


def due_in_loop(*records, **more):
    async def main():
        return due_at(*records, **more)

    return run(main())


@pytest.mark.parametrize("verb", ["drain", "undrain", "restart"])
def test_a_node_carries_out_what_is_about_itself(verb):
    assert due_in_loop(order(verb, ME.id)) == [verb]
    assert due_in_loop(order(verb, OTHER.id)) == []


@pytest.mark.parametrize("verb", ["evict", "readmit", "revoke"])
def test_hubs_and_no_others_turn_people_away(verb):
    assert due_in_loop(order(verb, OTHER.id), is_hub=True) == [verb]
    assert due_in_loop(order(verb, OTHER.id)) == []


def test_nobody_has_to_do_anything_about_a_word_of_care():
    assert due_in_loop(order("ack", ME.id), is_hub=True) == []


def test_what_was_taken_up_is_not_taken_up_again():
    record = order("drain", ME.id)
    assert due_in_loop(record, handled=(record.order.hash,)) == []


def test_an_order_of_somebody_who_may_not_is_none():
    assert due_in_loop(order("drain", ME.id, by=OTHER)) == []


# --- what comes of it


def test_a_drain_is_done_once_nothing_is_under_way():
    async def main():
        fleet = Engines()
        here, record = Bench(fleet=fleet), order("drain", ME.id, reason="driver")
        async with asyncio.TaskGroup() as tasks:
            here.look(tasks, record)
            await asyncio.sleep(60)
            assert not here.outcomes()
            fleet.is_idle.set()
            assert await here.outcome_of(record) == ("done", "3 requests ended")
        assert here.events("act") == [{"event": "act", "verb": "drain", "target": ME.id, "reason": "driver"}]
        assert here.events("outcome")[0]["detail"] == "3 requests ended"

    run(main())


def test_an_order_that_takes_back_another_is_the_one_that_is_answered():
    async def main():
        fleet = Engines()
        here, first, second = Bench(fleet=fleet), order("drain", ME.id), order("undrain", ME.id, seq=2)
        async with asyncio.TaskGroup() as tasks:
            here.look(tasks, first)
            await asyncio.sleep(1)
            here.look(tasks, second)
            assert await here.outcome_of(second) == ("done", "takes requests again")
            fleet.is_idle.set()
            await asyncio.sleep(60)
        assert here.outcomes() == {second.order.hash: ("done", "takes requests again")}

    run(main())


def test_an_order_is_carried_out_once_however_often_one_looks():
    async def main():
        fleet = Engines()
        here, record = Bench(fleet=fleet), order("restart", ME.id, reason="again")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                here.look(tasks, record)
            assert await here.outcome_of(record) == ("done", "e0 is run 8")
        assert fleet.restarts == ["again"]

    run(main())


def test_what_this_run_answered_before_it_forgot_is_not_done_again():
    async def main():
        here, record = Bench(fleet=Engines()), order("undrain", ME.id)
        async with asyncio.TaskGroup() as tasks:
            here.look(tasks, record)
            await here.outcome_of(record)
        assert answered(here.node.replica, ME.key) == {record.order.hash}
        assert answered(here.node.replica, OTHER.key) == set()

    run(main())


def test_a_node_without_engines_declines_and_says_why():
    _, said = carried_out(order("restart", ME.id))
    assert said == ("refused", "this node wraps no engine")


def test_what_cannot_be_done_is_declined_in_words_that_fit_a_record():
    _, (state, reason) = carried_out(order("restart", ME.id, reason="impossible"), fleet=Engines())
    assert state == "refused"
    assert len(reason) <= 256


def test_an_order_for_another_run_is_declined():
    body = Act(verb="drain", target=ME.id, run=3, at=0.0)
    record = OPERATOR.write(body, subject("drain", ME.id), seq=1)
    _, said = carried_out(record, fleet=Engines())
    assert said == ("refused", "it is meant for run 3; this is run 7")


def test_a_restart_for_an_earlier_run_is_carried_out_by_this_one():
    body = Act(verb="restart", target=ME.id, run=3, at=0.0)
    record = OPERATOR.write(body, subject("restart", ME.id), seq=1)
    _, said = carried_out(record, fleet=Engines())
    assert said == ("done", "this run began after it: 7")


def test_a_hub_says_that_it_turned_somebody_away_and_let_them_in_again():
    _, said = carried_out(order("evict", OTHER.id), is_hub=True)
    assert said == ("done", "turned away")
    _, said = carried_out(order("evict", OTHER.id), order("readmit", OTHER.id, seq=2), is_hub=True)
    assert said == ("done", "let in again")


# --- being put out


def test_a_node_that_is_put_out_says_so_once_with_who_and_why_and_when_it_may_come_back():
    async def main():
        here = Bench()
        async with asyncio.TaskGroup() as tasks:
            here.look(tasks)
            for record in (order("evict", ME.id, reason="it lies"), order("readmit", ME.id, seq=2)):
                here.look(tasks, record)
                here.look(tasks)
        assert here.said == [
            {"event": "evicted", "text": "evicted by ada: it lies"},
            {"event": "readmitted", "text": ""},
        ]

    run(main())


def test_a_restart_that_another_overtook_is_not_carried_out_when_that_one_falls():
    async def main():
        fleet = Engines()
        here = Bench(fleet=fleet)
        record = order("restart", ME.id)
        later = Outcome(act=b"l" * 32, state="done", at=here.node.clock.fabric() + 3600.0)
        here.node.mesh.tell(methodcaller("publish", here.node.author.write(later, subject("restart", ME.id))))
        async with asyncio.TaskGroup() as tasks:
            here.look(tasks, record)
            assert await here.outcome_of(record) == ("done", "the engines began anew after it")
        assert fleet.restarts == []

    run(main())


@pytest.mark.parametrize(
    ("run", "at", "past"),
    [(1, 500.0, True), (2, 500.0, False), (0, 500.0, False), (0, 380.0, False), (0, 379.0, True)],
)
def test_a_restart_of_before_this_run_is_past(run, at, past):
    act = Act(verb="restart", target="n", run=run, at=at)
    assert is_past(act, 2, 500.0) == past


def test_a_drain_of_before_this_run_still_stands():
    assert not is_past(Act(verb="drain", target="n", at=0.0), 2, 500.0)
