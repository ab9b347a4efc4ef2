"""What an old act does when it comes back."""

from node.orders import answered, due, is_done, is_past
from registry.acts import subject
from registry.kinds import Act, Outcome, read_body
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
    assert [each.record for each in orders(run=1, started=NOW - 9 * DAY_S)] == [earlier]  # a run that saw the later one
    assert is_done(read_body(earlier), replica, NODE.key)


def test_an_order_to_begin_anew_that_comes_after_another_was_done_is_obeyed():
    done = act_record("restart", NODE, seq=1, at=NOW - DAY_S)
    said = NODE.write(Outcome(act=done.order.hash, state="done", at=NOW), subject("restart", NODE.id), run=1, seq=1)
    replica = replica_of(done, said)
    again = Act(verb="restart", target=NODE.id, at=NOW + 1)
    assert not is_done(again, replica, NODE.key)
    assert not is_done(Act(verb="drain", target=NODE.id, at=0.0), replica, NODE.key)
