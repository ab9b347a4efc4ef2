"""Who is answered: pure, with a registry made from numbers."""

import pytest

from node.ask.judge import FRESH_S, MAX_NONCES, Nonces, Whom, may_ask
from node.ask.question import Asked, Question, decode, encode
from registry.charter import Chartered, succeed
from registry.kinds import Act, Charter, Operator, read_body
from registry.validity import standing
from tests.people import FABRIC, FOUNDING, MEMBER, OPERATOR, Person, registry_of

NODE, ASKING, OTHER = Person(10), Person(11), Person(12)
NOW = 1_800_000_000.0
WHOM = Whom(NODE.id, MEMBER.key)


def registry(*records):
    return registry_of(*records, nodes=(NODE, ASKING))


def with_operator(verbs, scope):
    """The standing under a charter that names one more operator."""
    body = read_body(FOUNDING.charter)
    assert isinstance(body, Charter)
    more = (*body.operators, Operator(key=OTHER.key, name="eve", verbs=verbs, scope=scope))
    successor = succeed(
        Chartered(FOUNDING.charter, body), Charter(name=body.name, operators=more, hubs=()), OPERATOR.key, OPERATOR.sign
    )
    return standing(registry(successor), FABRIC, NOW)


def asked(q="log", *, by=MEMBER, at=NOW, node=NODE.id, nonce=b"n" * 16, **args) -> Asked:
    question = Question(q=q, args=args, node=node, at=at, nonce=nonce)
    return decode(encode(question, by.key, by.sign) if by else encode(question))


def code(question, *, asking=ASKING.id, held=None):
    refusal = may_ask(question, asking, WHOM, held or standing(registry(), FABRIC, NOW), NOW)
    return refusal.code if refusal else None


def test_its_owner_and_an_operator_of_the_fleet_read_a_log():
    assert code(asked()) is None
    assert code(asked(by=OPERATOR)) is None


@pytest.mark.parametrize(
    ("verbs", "scope", "answer"),
    [
        (("fleet",), "fabric", None),
        (("fleet",), "provider:lab", None),
        (("fleet",), "provider:other", "forbidden"),
        (("fleet",), "project:lab", "forbidden"),
        (("keys", "owner"), "fabric", "forbidden"),
    ],
)
def test_an_operator_reads_logs_within_verb_and_scope(verbs, scope, answer):
    assert code(asked(by=OTHER), held=with_operator(verbs, scope)) == answer


def test_any_operator_is_told_events_and_blobs():
    held = with_operator(("keys",), "project:p")
    assert code(asked("events", by=OTHER), held=held) is None
    assert code(asked("blob", by=OTHER, hash="00" * 32), held=held) is None
    assert code(asked("events", by=OTHER)) == "not_admitted"


def test_a_log_is_never_shown_to_an_unsigned_question():
    assert code(asked(by=None)) == "unsigned"
    assert code(asked("events", by=None)) is None
    assert code(asked("holds", by=None, hash="00" * 32)) is None


def test_a_node_key_is_no_person():
    assert code(asked(by=NODE)) == "forbidden"


def test_a_node_that_is_no_member_is_told_nothing():
    for question in (asked(), asked("events", by=None), asked("holds", by=None, hash="00" * 32)):
        assert code(question, asking=OTHER.id) == "not_admitted"


def test_an_evicted_node_is_told_nothing():
    evict = OPERATOR.write(Act(verb="evict", target=ASKING.id, at=NOW), f"evict/{ASKING.id}", seq=1)
    held = standing(registry(evict), FABRIC, NOW)
    assert code(asked("events", by=None), held=held) == "not_admitted"


def test_an_owner_whose_membership_ended_reads_no_more_logs():
    late = standing(registry(), FABRIC, 5e9)
    refusal = may_ask(asked(at=5e9), ASKING.id, WHOM, late, 5e9)
    assert refusal is not None


@pytest.mark.parametrize(
    ("off_s", "answer"),
    [(0.0, None), (FRESH_S, None), (-FRESH_S, None), (FRESH_S + 1, "stale"), (-FRESH_S - 1, "stale")],
)
def test_a_question_is_fresh_for_two_minutes_either_way(off_s, answer):
    assert code(asked(at=NOW + off_s)) == answer


def test_a_question_for_another_node_is_refused():
    assert code(asked(node=ASKING.id)) == "not_for_us"


def test_a_nonce_is_used_once_as_long_as_the_question_is_fresh():
    nonces = Nonces()
    assert nonces.use(asked(), NOW) is None
    refusal = nonces.use(asked(), NOW + 2 * FRESH_S)
    assert refusal is not None
    assert refusal.code == "replayed"
    assert nonces.use(asked(by=OPERATOR), NOW) is None, "another signer's nonces are others"
    assert nonces.use(asked(), NOW + 2 * FRESH_S + 1) is None


def test_one_signer_cannot_use_up_the_room_of_others():
    nonces = Nonces()
    for number in range(MAX_NONCES):
        assert nonces.use(asked(nonce=number.to_bytes(16)), NOW) is None
    refusal = nonces.use(asked(nonce=b"x" * 16), NOW)
    assert refusal is not None
    assert refusal.code == "busy"
    assert nonces.use(asked(by=OPERATOR), NOW) is None
