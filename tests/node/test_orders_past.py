"""What an old act does when it comes back."""

from node.orders import answered, due, is_past
from registry.acts import subject
from registry.kinds import Outcome
from registry.replica import Replica
from registry.validity import standing
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    act_record,
    certificate,
    membership,
    node_record,
    operator,
    successor,
)

NOW, DAY_S = 1_800_000_000.0, 86_400.0
NODE = Person(90)


def replica_of(*records):
    replica = Replica()
    for record in (FOUNDING.charter, membership(), certificate(NODE), node_record(NODE), *records):
        replica.apply(record)
    return replica


def test_an_operator_who_goes_makes_no_node_restart_again():
    one, other = Person(91), Person(92)
    both = [operator(OPERATOR, "fleet", "owner"), operator(one, "fleet"), operator(other, "fleet")]
    charter = successor(FOUNDING.charter, *both)
    earlier = act_record("restart", NODE, by=one, seq=1, at=NOW - 2 * DAY_S)
    later = act_record("restart", NODE, by=other, seq=2, at=NOW - DAY_S)
    done = Outcome(act=later.order.hash, state="done", at=NOW - DAY_S)  # the register of the earlier one's outcome
    said = NODE.write(done, subject("restart", NODE.id), run=1, seq=2)
    replica = replica_of(charter, earlier, later, said)

    def orders(run=2, started=NOW):  # it was started again since
        todo = due(standing(replica, FABRIC, NOW), NODE.id, answered(replica, NODE.key), is_hub=False)
        return [each for each in todo if not is_past(each.act, run, started)]

    assert not orders()
    replica.apply(successor(charter, both[0], both[1]))
    assert not orders()
