import pytest

from registry.acts import MAX_NUMBER, needs, next_seq, outcome_of, previous, subject, write_act
from registry.errors import TelaError
from registry.kinds import ASPECTS, Act, Outcome, read_body
from registry.replica import Entry, Replica
from tests.people import OPERATOR, Person, act_record

NODE, SECOND, STRANGER = Person(20), Person(50), Person(99)
MOST = 2**64 - 1


def holding(*records):
    replica = Replica()
    for record in records:
        replica.apply(record)
    return replica


def write(held, verb="drain", by=OPERATOR):
    return write_act(held, verb, NODE.id, owner=by.key, sign=by.sign, at=5.0, run=3, reason="because")


def test_a_verb_and_its_opposite_have_one_subject():
    assert subject("drain", "n") == subject("undrain", "n") == "drain/n"
    assert subject("evict", "n") == subject("readmit", "n") != subject("restart", "n")


def test_an_act_reads_back_as_it_was_meant():
    act = read_body(write(holding()))
    assert act == Act(verb="drain", target=NODE.id, run=3, reason="because", at=5.0)


def test_a_number_is_above_every_signers_on_that_subject():
    held = holding(
        act_record("drain", NODE, seq=4), act_record("undrain", NODE, by=SECOND, seq=7), act_record("ack", NODE, seq=9)
    )
    assert next_seq(held, subject("drain", NODE.id)) == 8
    assert write(held).order.seq == 8
    assert write(holding()).order.seq == 1


def test_acts_name_the_signers_one_before():
    verbs = ("drain", "restart", "evict", "ack")
    own = [act_record(verb, NODE, at=float(at)) for at, verb in enumerate(verbs)]
    held = holding(*reversed(own), act_record("drain", NODE, by=SECOND, at=9.0))
    for count in range(1, len(own) + 1):
        assert previous(holding(*own[:count]), OPERATOR.key) == own[count - 1].order.hash
    assert previous(held, STRANGER.key) == b""
    act = read_body(write(held))
    assert isinstance(act, Act)
    assert act.prev == own[-1].order.hash


def test_of_acts_of_one_moment_the_greater_hash_is_the_one_before():
    both = (act_record("drain", NODE, at=1.0), act_record("ack", NODE, at=1.0))
    assert previous(holding(*both), OPERATOR.key) == max(each.order.hash for each in both)


def test_a_number_stops_where_greater_ones_are_as_good_and_the_signers_own_goes_on():
    held = holding(act_record("drain", NODE, by=SECOND, seq=MOST))
    assert next_seq(held, subject("drain", NODE.id)) == MAX_NUMBER
    for number in (MAX_NUMBER, MAX_NUMBER + 1, MAX_NUMBER + 2):
        record = write(held)
        assert record.order.seq == number
        assert held.apply(record)


def test_whoever_used_up_the_own_register_is_told():
    with pytest.raises(TelaError):
        write(holding(act_record("drain", NODE, seq=MOST)))


def test_acts_that_count_nowhere_can_be_left_out():
    stranger = act_record("drain", NODE, by=STRANGER, seq=MOST)
    held = holding(stranger, act_record("drain", NODE, seq=2))
    counting = [Entry(record, body) for record, body in held if record != stranger]
    assert write(counting).order.seq == 3


def test_everybody_knows_who_carries_an_act_out():
    assert {needs(verb) for verb in ("drain", "undrain", "restart")} == {"target"}
    assert {needs(verb) for verb in ("evict", "readmit", "revoke")} == {"hubs"}
    assert needs("ack") == "nobody"
    assert all(needs(verb) for verb in ASPECTS)


def test_outcomes_are_those_of_the_very_act():
    order, other = act_record("drain", NODE), act_record("drain", NODE, by=SECOND)

    def outcome(of, by, about=""):
        return by.write(Outcome(act=of.order.hash, state="done", at=1.0), about or of.key.id, seq=1)

    elsewhere = outcome(order, SECOND, f"ack/{NODE.id}")
    held = holding(order, other, outcome(order, NODE), outcome(other, STRANGER), elsewhere)
    assert [name for name, _ in outcome_of(held, order)] == [NODE.id]
