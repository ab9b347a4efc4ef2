from registry.digest import BUCKETS, Digest, slot_of
from registry.replica import Replica
from tests.people import Person, node_record


def test_the_differing_bucket_is_found_and_only_it():
    one, other = Replica(), Replica()
    shared, extra = node_record(Person(1)), node_record(Person(2))
    for record in (shared, extra):
        one.apply(record)
    other.apply(shared)
    sums = b"".join(other.shelves[0].digest.sums())
    assert one.shelves[0].digest.differing(sums) == [slot_of(extra.key)[0]]


def test_a_register_is_found_by_its_address():
    replica = Replica()
    record = node_record(Person(1))
    replica.apply(record)
    assert replica.shelves[0].at(slot_of(record.key)) == record
    assert replica.shelves[0].at(b"\0" * 8) is None


def test_put_and_remove_return_to_the_empty_root():
    digest = Digest()
    empty = digest.root()
    digest.put(b"\x05" + b"a" * 7, b"h" * 32)
    assert digest.root() != empty
    digest.remove(b"\x05" + b"a" * 7)
    assert digest.root() == empty
    assert len(digest.sums()) == BUCKETS
