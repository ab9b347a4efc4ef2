"""Two replicas and the frames between them; who begins and when is tested with `gossip.peer`."""

from collections import Counter, deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip import sync
from gossip.frames import Entries, Frame, Records, Sum, Want, batches, decode, encode, shelf_of
from gossip.sync import answer_entries, answer_sum, answer_want, opening
from registry.digest import DIGEST_B, slot_of
from registry.record import Audience, Draft, Record, seal
from registry.record import decode as decode_record
from registry.replica import Replica, Shelf
from tests.people import Person, node_record, replica_record

ENDS = Person(300), Person(301)
PEOPLE = [Person(310 + number) for number in range(12)]
POOL = [
    *(node_record(person, seq=seq) for person in PEOPLE for seq in (1, 2, 3)),
    *(replica_record(person, seq=seq) for person in PEOPLE for seq in (1, 2)),
]
SOME = st.lists(st.sampled_from(POOL), unique=True)
PUBLIC = Audience.PUBLIC


def holding(records) -> Replica:
    replica = Replica()
    for record in records:
        replica.apply(record)
    return replica


def opaque(audience: Audience, subject: str, body: bytes = b"{}") -> Record:
    return seal(Draft("thing", subject, body, audience=audience), ENDS[0].key, ENDS[0].sign)


def answers(frame: Frame, replica: Replica) -> list[Frame]:
    match frame:
        case Sum():
            return list(answer_sum(frame, replica.shelves[shelf_of(frame.shelf)]))
        case Entries():
            return list(answer_entries(frame, replica.shelves[shelf_of(frame.shelf)]))
        case Want():
            return list(answer_want(frame, replica.shelves[shelf_of(frame.shelf)]))
        case Records():
            for raw in frame.raws:
                replica.apply(decode_record(raw))
    return []


def repair(begins: Replica, answers_: Replica, *, rng: Random | None = None, audience=PUBLIC) -> Counter:
    """One exchange until nobody says any more; with `rng` a third is lost, a third repeated, all in any order."""
    said: Counter = Counter()
    waiting: deque[tuple[Replica, Frame]] = deque([(answers_, opening(audience, begins.shelves[audience]))])
    while waiting:
        if rng is not None:
            waiting.rotate(rng.randrange(len(waiting)))
        to, frame = waiting.popleft()
        said[type(frame).__name__] += 1
        chance = rng.random() if rng else 1.0
        if chance < 1 / 3:
            continue
        heard = decode(encode(frame))
        assert heard is not None
        other = begins if to is answers_ else answers_
        for _ in range(2 if chance < 2 / 3 else 1):
            waiting.extend((other, answer) for answer in answers(heard, to))
        assert sum(said.values()) < 10_000
    return said


def root(replica: Replica, audience=PUBLIC) -> bytes:
    return replica.shelves[audience].digest.root()


@given(SOME, SOME)
def test_any_two_replicas_are_equal_after_one_exchange(ours, theirs):
    one, other = holding(ours), holding(theirs)
    repair(one, other)
    joined = holding([*ours, *theirs])
    assert root(one) == root(other) == root(joined)
    assert one.shelves[PUBLIC].entries == joined.shelves[PUBLIC].entries


@given(SOME, SOME, st.integers(0, 2**32))
def test_over_frames_lost_repeated_and_reordered_they_are_equal_after_a_few(ours, theirs, seed):
    one, other, rng = holding(ours), holding(theirs), Random(seed)
    joined = root(holding([*ours, *theirs]))
    for _ in range(100):
        if root(one) == root(other):
            break
        repair(one, other, rng=rng)
        repair(other, one, rng=rng)
    assert root(one) == root(other) == joined


@given(SOME)
def test_two_equal_replicas_have_nothing_to_say(records):
    one, other = holding(records), holding(reversed(records))
    assert repair(one, other) == {"Sum": 1}


def test_only_what_differs_travels():
    one, other = holding(POOL), holding(POOL)
    news = opaque(PUBLIC, "new")
    one.apply(news)
    assert repair(one, other) == {"Sum": 1, "Entries": 1, "Records": 1}
    assert repair(holding(POOL), one) == {"Sum": 1, "Entries": 1, "Want": 1, "Records": 1}
    assert other.get(news.key) == one.get(news.key)


def test_of_two_records_in_one_register_both_travel_since_a_hash_does_not_say_which_is_newer():
    one, other = holding(POOL), holding(POOL)
    one.apply(node_record(PEOPLE[0], seq=9))
    assert repair(one, other) == {"Sum": 1, "Entries": 1, "Want": 1, "Records": 2}
    assert root(one) == root(other)


def test_each_shelf_is_repaired_alone():
    private = opaque(Audience.ACCOUNTS, "a")
    one, other = holding([private, *POOL]), Replica()
    repair(one, other)
    assert root(one) == root(other)
    assert not other.shelves[Audience.ACCOUNTS].entries
    repair(one, other, audience=Audience.ACCOUNTS)
    assert other.get(private.key) is not None


def test_records_larger_than_a_frame_together_are_split():
    big = [opaque(PUBLIC, f"b{number}", b"x" * 3_500) for number in range(40)]
    one, other = holding(big), Replica()
    said = repair(other, one)
    assert root(one) == root(other)
    assert said["Records"] >= 3


def test_a_bucket_beyond_one_frame_is_repaired_from_either_side(monkeypatch):
    monkeypatch.setattr(sync, "MAX_PAIRS", 3)
    same_bucket = _in_one_bucket(12)
    one, other = holding(same_bucket[:8]), holding(same_bucket[4:])
    repair(one, other)
    repair(other, one)
    assert root(one) == root(other) == root(holding(same_bucket))


def _in_one_bucket(count: int) -> list[Record]:
    found: list[Record] = []
    number = 0
    while len(found) < count:
        record = opaque(PUBLIC, f"n{number}")
        number += 1
        if slot_of(record.key)[0] == 0:
            found.append(record)
    return found


def test_what_is_wanted_a_thousand_times_is_sent_once():
    shelf = holding(POOL).shelves[PUBLIC]
    slot = next(iter(slot_of(key) for key in shelf.entries))
    frames = list(answer_want(Want(PUBLIC, slot * 1_000), shelf))
    assert [len(frame.raws) for frame in frames if isinstance(frame, Records)] == [1]


@given(st.binary(max_size=400).map(lambda data: data[: len(data) // DIGEST_B * DIGEST_B]))
def test_addresses_nobody_holds_are_passed_over(slots):
    assert not list(answer_want(Want(PUBLIC, slots), Shelf()))


def test_a_frame_of_entries_that_do_not_lie_in_the_bucket_loses_nothing():
    shelf = holding(POOL).shelves[PUBLIC]
    strange = Entries(PUBLIC, 0, b"\xff" * 16)
    said = list(answer_entries(strange, shelf))
    assert Want(PUBLIC, b"\xff" * 8) in said


@pytest.mark.parametrize("size", [1, 40])
def test_asking_again_for_what_came_changes_nothing(size):
    replica = holding(POOL[:size])
    before = root(replica)
    for frame in batches(record.raw for record in POOL[:size]):
        answers(frame, replica)
    assert root(replica) == before
