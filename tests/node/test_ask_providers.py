"""Who gets to read a log that is not theirs."""

from node.ask.judge import Whom, may_ask
from node.ask.question import Asked, LogArgs, Question
from registry.replica import Replica
from registry.validity import standing
from tests.people import (
    FABRIC,
    FOUNDING,
    MEMBER,
    OPERATOR,
    Person,
    certificate,
    membership,
    node_record,
    operator,
    successor,
)

NOW = 1_800_000_000.0


def test_a_certificate_by_somebody_elses_member_opens_no_log_to_that_ones_operator():
    head, friend, node = Person(100), Person(101), Person(102)
    charter = successor(FOUNDING.charter, operator(OPERATOR, "owner"), operator(head, "fleet", scope="provider:Q"))
    replica = Replica()
    for record in (
        FOUNDING.charter,
        charter,
        membership(friend, provider="Q"),
        membership(),
        certificate(node, by=friend),  # nobody asked the node, nor its member
        certificate(node),
        node_record(node),
    ):
        replica.apply(record)
    question = Question(q="log", node=node.id, at=NOW, nonce=b"n" * 16)
    asked = Asked(question, LogArgs(), head.key)
    refusal = may_ask(asked, node.id, Whom(node.id, MEMBER.key), standing(replica, FABRIC, NOW), NOW)
    assert refusal is not None
    assert refusal.code == "forbidden"
