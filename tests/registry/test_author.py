from registry.author import Author, next_run
from registry.kinds import KeyGrant, Node
from registry.lifecycle import Rank
from registry.record import Audience
from tests.people import Person

ME = Person(20)


def author(run=7):
    return Author(ME.key, ME.sign, run)


def body():
    return Node(host="h", member=ME.key, roles=())


def test_each_register_counts_upward_for_itself():
    writer = author()
    first, second = writer.write(body(), ME.id), writer.write(body(), ME.id, rank=Rank.SERVING)
    other = writer.write(KeyGrant(), "k_1")
    assert (first.order.run, first.order.seq, second.order.seq, other.order.seq) == (7, 1, 2, 1)
    assert second.order > first.order


def test_a_body_lies_on_the_shelf_of_its_kind():
    assert author().write(body(), ME.id).key.audience is Audience.PUBLIC
    assert author().write(KeyGrant(), "k_1").key.audience is Audience.ACCOUNTS


def test_an_engines_run_may_be_its_own():
    assert author().write(body(), ME.id, run=99).order.run == 99


def test_a_new_run_is_above_all_that_is_known():
    assert next_run(5, 9, 7) == 10
    assert next_run(5, 2, 70) == 71
