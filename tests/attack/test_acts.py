"""What a signer of acts can do to others' later acts, and what an old act does when it comes back."""

import pytest

from node.orders import answered, due
from registry.acts import subject, write_act
from registry.kinds import Outcome
from registry.validity import standing
from tests.people import (
    FABRIC,
    FOUNDING,
    MEMBER,
    OPERATOR,
    Person,
    act_record,
    certificate,
    membership,
    node_record,
    operator,
    successor,
)
from tests.people import Registry as Replica

NOW, DAY_S = 1_800_000_000.0, 86_400.0
MOST = 2**64 - 1
NODE = Person(90)


def replica_of(*records):
    replica = Replica()
    for record in (FOUNDING.charter, membership(), certificate(NODE), node_record(NODE), *records):
        replica.apply(record)
    return replica


@pytest.mark.parametrize(("taken", "verb"), [("undrain", "drain"), ("restart", "restart")])
def test_a_member_cannot_number_an_act_so_high_that_operators_have_none_left(taken, verb):
    replica = replica_of(act_record(taken, NODE, by=MEMBER, seq=MOST))
    counting = list(replica.of_kind("act"))
    order = write_act(counting, verb, NODE.id, owner=OPERATOR.key, sign=OPERATOR.sign, at=NOW)
    replica.apply(order)
    assert standing(replica, FABRIC, NOW).acts[subject(verb, NODE.id)].record == order


def test_an_operator_who_goes_makes_no_node_restart_again():
    one, other = Person(91), Person(92)
    both = [operator(OPERATOR, "fleet", "owner"), operator(one, "fleet"), operator(other, "fleet")]
    charter = successor(FOUNDING.charter, *both)
    earlier = act_record("restart", NODE, by=one, seq=1, at=NOW - 2 * DAY_S)
    later = act_record("restart", NODE, by=other, seq=2, at=NOW - DAY_S)
    done = Outcome(act=later.order.hash, state="done", at=NOW - DAY_S)  # the register of the earlier one's outcome
    said = NODE.write(done, subject("restart", NODE.id), run=1, seq=2)
    replica = replica_of(charter, earlier, later, said)

    def orders():
        return due(standing(replica, FABRIC, NOW), NODE.id, answered(replica, NODE.key), is_hub=False)

    assert not orders()
    replica.apply(successor(charter, both[0], both[1]))
    assert not orders()
