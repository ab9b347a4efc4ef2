"""What others sent earlier must not keep a node from starting."""

from node.keeper import Keeper
from node.recordfile import frames, unframe
from registry.kinds import Act
from registry.record import Draft, seal
from registry.replica import Replica
from tests.people import OPERATOR, Person

STRANGER = Person(98)


def test_a_record_that_this_release_refuses_does_not_keep_a_node_from_starting(tmp_path):
    # The release before held it as a kind it did not know, from whoever sent it, or knew a field that is gone.
    junk = seal(Draft("act", "drain/x", b'{"no": "act"}', seq=1), STRANGER.key, STRANGER.sign)
    kept = OPERATOR.write(Act(verb="ack", target="x", at=1.0), "ack/x", seq=1)
    (tmp_path / "journal").write_bytes(frames([junk.raw, kept.raw]))
    replica = Replica()
    keeper = Keeper(tmp_path, replica, now=lambda: 0.0, wall=lambda: 0.0, say=lambda _: None)
    keeper.load(STRANGER.key)
    keeper.close()
    assert [entry.record for entry in replica.of_kind("act")] == [kept]
    assert unframe((tmp_path / "journal").read_bytes()).raws == [kept.raw]
