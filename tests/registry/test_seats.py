from hypothesis import given
from hypothesis import strategies as st

from registry.kinds import Certificate, read_body
from registry.lifecycle import Rank
from registry.seats import Certified, seat
from tests.people import Person, certificate, node_record

A, B, C = Person(20), Person(21), Person(22)


def seats(certificates, *records, max_nodes=2, now=0.0):
    certified = []
    for record in certificates:
        body = read_body(record)
        assert isinstance(body, Certificate)
        certified.append(Certified(record, body))
    return seat(certified, max_nodes, {record.key.id: record for record in records}, now)


def names(taken):
    return {each.record.key.id for each in taken}


def test_the_first_certificates_have_the_places():
    verdict = seats([certificate(A, seq=1), certificate(B, seq=2), certificate(C, seq=3)])
    assert names(verdict.taken) == {A.id, B.id}
    assert [why for _, why in verdict.refused] == ["membership allows 2 nodes"]


def test_an_expired_certificate_takes_no_place():
    verdict = seats([certificate(A, not_after=1.0), certificate(B), certificate(C)], now=1_000.0)
    assert names(verdict.taken) == {B.id, C.id}
    assert [why for _, why in verdict.refused] == ["certificate expired"]


def test_a_node_that_left_frees_its_place_and_stays_entitled():
    gone = node_record(A, rank=Rank.LEFT)
    verdict = seats([certificate(A, seq=1), certificate(B, seq=2), certificate(C, seq=3)], gone)
    assert names(verdict.taken) == {A.id, B.id, C.id}


def test_a_node_that_is_down_keeps_its_place():
    down = node_record(A, rank=Rank.DOWN)
    assert names(seats([certificate(A), certificate(B)], down, max_nodes=1).taken) == {A.id}


def test_a_renewed_certificate_does_not_cost_a_running_node_its_place():
    running = (node_record(A, run=5), node_record(B, run=6))
    verdict = seats([certificate(A, seq=90), certificate(B, seq=91), certificate(C, seq=3)], *running)
    assert names(verdict.taken) == {A.id, B.id}


def test_of_running_nodes_those_that_started_first_have_the_places():
    running = (node_record(A, run=9), node_record(B, run=6), node_record(C, run=7))
    verdict = seats([certificate(A, seq=1), certificate(B, seq=2), certificate(C, seq=3)], *running)
    assert names(verdict.taken) == {B.id, C.id}


@given(st.permutations([certificate(node, seq=seq) for seq, node in enumerate((A, B, C, Person(23)))]))
def test_the_order_in_which_they_come_does_not_matter(certificates):
    assert names(seats(certificates).taken) == {A.id, B.id}
