"""Keys: what stays on a disk that should not hold any."""

import asyncio

from node.keeper import Keeper
from node.recordfile import frames, unframe
from registry.replica import Replica
from registry.views import snapshot
from tests.people import FABRIC, FOUNDING, Person, key_grant

NOW = 1_800_000_000.0


def test_a_node_that_is_no_ingress_any_more_holds_no_keys(tmp_path):
    (tmp_path / "journal").write_bytes(frames([key_grant(user="alice").raw]))  # of its last run, as an ingress
    replica = Replica()
    keeper = Keeper(tmp_path, replica, now=lambda: 0.0, wall=lambda: NOW, say=lambda _: None)
    keeper.load(Person(97).key)  # however it is told that this run holds no accounts: what is held then is shown
    keeper.close()
    assert not list(replica.of_kind("key"))
    assert unframe((tmp_path / "journal").read_bytes()).raws == []


def test_a_node_that_still_is_one_keeps_them(tmp_path):
    (tmp_path / "journal").write_bytes(frames([key_grant(user="alice").raw]))
    replica = Replica()
    keeper = Keeper(tmp_path, replica, now=lambda: 0.0, wall=lambda: NOW, say=lambda _: None)
    keeper.load(Person(97).key, accounts=True)
    keeper.close()
    assert len(list(replica.of_kind("key"))) == 1


def test_what_the_disk_would_not_let_go_goes_later(tmp_path):
    (tmp_path / "journal").write_bytes(frames([key_grant(user="alice").raw]))
    (tmp_path / ".journal.new").mkdir()  # no journal can be written beside the old one
    said, now = [], [0.0]
    replica = Replica()
    replica.apply(FOUNDING.charter)
    keeper = Keeper(tmp_path, replica, now=lambda: now[0], wall=lambda: NOW, say=said.append)
    keeper.load(Person(97).key)
    assert [each["code"] for each in said] == ["journal"]
    (tmp_path / ".journal.new").rmdir()
    now[0] = 60.0
    asyncio.run(keeper.look(snapshot(replica, FABRIC, NOW)))
    keeper.close()
    assert unframe((tmp_path / "journal").read_bytes()).raws == [FOUNDING.charter.raw]
