"""Keys: what stays on a disk that should not hold any."""

from node.keeper import Keeper
from node.recordfile import frames
from registry.replica import Replica
from tests.people import Person, key_grant

NOW = 1_800_000_000.0


def test_a_node_that_is_no_ingress_any_more_holds_no_keys(tmp_path):
    (tmp_path / "journal").write_bytes(frames([key_grant(user="alice").raw]))  # of its last run, as an ingress
    replica = Replica()
    keeper = Keeper(tmp_path, replica, now=lambda: 0.0, wall=lambda: NOW, say=lambda _: None)
    keeper.load(Person(97).key)  # however it is told that this run holds no accounts: what is held then is shown
    keeper.close()
    assert not list(replica.of_kind("key"))
