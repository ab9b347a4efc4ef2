"""What a node keeps on disk, and what it learns of its own past."""

import asyncio

from node.keeper import Before, Keeper
from registry.lifecycle import Rank
from registry.replica import Replica
from registry.views import snapshot
from tests.people import FABRIC, FOUNDING, Person, certificate, membership, node_record, replica_record

ME, OTHER = Person(80), Person(81)
FIRST = (FOUNDING.charter, membership(), certificate(ME), certificate(OTHER))


class Kept:
    """A keeper over a directory, closed at the end of the block."""

    def __init__(self, path, *records):
        self.replica, self.said = Replica(), []
        for record in (*FIRST, *records):
            self.replica.apply(record)
        self.keeper = Keeper(path, self.replica, now=lambda: 0.0, wall=lambda: 5.0, say=self.said.append)

    def __enter__(self):
        self.before = self.keeper.load(ME.key)
        return self

    def __exit__(self, *_):
        self.keeper.close()

    def look(self, *records):
        for record in records:
            self.replica.apply(record)
        asyncio.run(self.keeper.look(snapshot(self.replica, FABRIC, 0.0)))

    def events(self):
        return [each.kind for each in self.keeper.events.since(0, 100)]


def after(path, *records):
    """What the next run learns when the last one ended with these records."""
    with Kept(path) as kept:
        kept.look(*records)
    with Kept(path) as kept:
        return kept.before, kept.replica


def test_a_node_that_never_ran_has_no_past(tmp_path):
    with Kept(tmp_path) as kept:
        assert kept.before == Before("", (), {})


def test_a_run_that_said_left_ended_well(tmp_path):
    before, _ = after(tmp_path, node_record(ME, run=4, rank=Rank.LEFT))
    assert before == Before("left", (), {"node": 4})


def test_what_is_said_last_is_kept_although_nobody_looks_any_more(tmp_path):
    with Kept(tmp_path) as kept:
        kept.look(node_record(ME, run=4))
        kept.replica.apply(node_record(ME, run=4, rank=Rank.LEFT))
    with Kept(tmp_path) as kept:
        assert kept.before.prev == "left"


def test_a_run_that_said_nothing_was_lost_and_its_engines_are_ghosts(tmp_path):
    engine, ended = replica_record(ME, run=9), replica_record(ME, slot="e1", run=3, rank=Rank.LEFT)
    before, _ = after(tmp_path, node_record(ME, run=4), engine, ended)
    assert before == Before("lost", (engine,), {"node": 4, "e0": 9, "e1": 3})


def test_other_nodes_are_remembered_too_and_are_not_our_past(tmp_path):
    record = node_record(OTHER, run=6)
    before, replica = after(tmp_path, record, replica_record(OTHER))
    assert before == Before("", (), {})
    assert replica.get(record.key).record == record


def test_of_a_register_the_latest_record_is_read(tmp_path):
    with Kept(tmp_path) as kept:
        kept.look(node_record(ME, run=4))
        kept.look(node_record(ME, run=4, seq=2))
        kept.look()
    with Kept(tmp_path) as kept:
        assert kept.replica.get(node_record(ME).key).record.order.seq == 2


def test_what_happened_between_two_looks_is_in_the_events(tmp_path):
    with Kept(tmp_path) as kept:
        kept.look(node_record(OTHER))
        assert kept.events() == []  # with nothing to compare, nothing happened
        kept.look(replica_record(OTHER))
        assert kept.events() == ["replica.serving", "model.up"]
    with Kept(tmp_path) as kept:
        assert kept.events() == ["replica.serving", "model.up"]


def test_a_journal_that_cannot_be_read_is_said_and_stops_nothing(tmp_path):
    (tmp_path / "journal").write_bytes(b"\x00" * 100)
    with Kept(tmp_path) as kept:
        assert kept.before == Before("", (), {})
        assert [each["code"] for each in kept.said] == ["journal"]
        kept.look(node_record(ME, run=4))
    with Kept(tmp_path) as kept:
        assert kept.before.runs == {"node": 4}
        assert kept.said == []
