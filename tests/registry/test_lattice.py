from hypothesis import given
from hypothesis import strategies as st

from registry.lattice import join, supersedes
from registry.lifecycle import Rank, may_move
from registry.record import Record
from registry.replica import Replica
from tests.people import FABRIC, MEMBER, OPERATOR, Person, node_record, replica_record

NODES = (Person(10), Person(11))


@st.composite
def records(draw):
    """Few registers and few orders, so that collisions and ties are common."""
    who = draw(st.sampled_from(NODES))
    run, seq = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    rank = draw(st.sampled_from(list(Rank)))
    make = draw(st.sampled_from([node_record, replica_record]))
    return make(who, run=run, rank=rank, seq=seq, draining=draw(st.booleans()))


def same_register():
    return records().filter(lambda record: record.key == node_record(NODES[0]).key) | st.none()


def state(replica: Replica) -> dict:
    return {entry.record.key: entry.record.order for entry in replica}


def replica_of(batch) -> Replica:
    replica = Replica()
    for record in batch:
        replica.apply(record)
    return replica


@given(same_register(), same_register(), same_register())
def test_join_commutes_associates_repeats_and_only_grows(a, b, c):
    assert join(a, b) == join(b, a)
    assert join(a, join(b, c)) == join(join(a, b), c)
    assert join(a, a) == a
    assert join(join(a, b), a) == join(a, b)


@given(st.lists(records(), max_size=12), st.randoms(use_true_random=False))
def test_any_order_and_repetition_gives_the_same_replica(batch, random):
    shuffled = batch * 2
    random.shuffle(shuffled)
    one, other = replica_of(batch), replica_of(shuffled)
    assert state(one) == state(other)
    assert all(one.shelves[shelf].digest.root() == other.shelves[shelf].digest.root() for shelf in one.shelves)


@given(st.lists(records(), max_size=12), records())
def test_applying_is_monotone(batch, record):
    replica = replica_of(batch)
    before = state(replica)
    news = replica.apply(record)
    after = state(replica)
    assert all(after[key] >= order for key, order in before.items())
    assert news == (before.get(record.key) != after[record.key])


@given(st.lists(records(), max_size=20))
def test_within_a_run_left_absorbs_and_an_old_run_never_returns(batch):
    replica = Replica()
    seen: dict = {}
    for record in batch:
        replica.apply(record)
        held = replica.get(record.key).record.order
        run, rank = seen.get(record.key, (0, 0))
        assert (held.run, held.rank) >= (run, rank)
        seen[record.key] = (held.run, held.rank)


@given(st.lists(records(), max_size=12))
def test_equal_roots_mean_equal_states_and_the_reverse(batch):
    for cut in range(len(batch) + 1):
        one, other = replica_of(batch[:cut]), replica_of(batch)
        roots_equal = all(
            one.shelves[shelf].digest.root() == other.shelves[shelf].digest.root() for shelf in one.shelves
        )
        assert roots_equal == (state(one) == state(other))


def test_two_records_of_one_order_are_decided_by_hash_everywhere_alike():
    a, b = node_record(MEMBER, host="a"), node_record(MEMBER, host="b")
    assert a.order[:3] == b.order[:3]
    assert supersedes(a, b) != supersedes(b, a)


def test_nobody_can_displace_a_record_of_another_owner():
    replica = replica_of([node_record(MEMBER)])
    forged: Record = OPERATOR.write(replica.get(node_record(MEMBER).key).body, OPERATOR.id, run=99)
    replica.apply(forged)
    assert replica.get(node_record(MEMBER).key).record == node_record(MEMBER)


def test_ranks_only_advance():
    assert may_move(Rank.JOIN, Rank.LEFT)
    assert may_move(Rank.SERVING, Rank.SERVING)
    assert not may_move(Rank.DOWN, Rank.SERVING)


def test_dropping_forgets_records_and_their_digests():
    replica = replica_of([node_record(NODES[0]), node_record(NODES[1])])
    assert replica.drop(lambda entry: entry.record.key.owner == NODES[0].key) == 1
    assert state(replica) == state(replica_of([node_record(NODES[1])]))
    shelf = replica.shelves[node_record(NODES[1]).key.audience]
    assert shelf.digest.root() == replica_of([node_record(NODES[1])]).shelves[0].digest.root()
    assert FABRIC
