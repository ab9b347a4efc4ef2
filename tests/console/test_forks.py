"""Charters that are not followed: what of them is left, and the commands that do it again."""

import pytest

from console.views.authority import authority, lines
from console.views.forks import forks_of
from registry.charter import VERBS, Chartered, charter_in_force, found
from registry.ids import key_id
from registry.kinds import Charter, Operator, read_body
from tests.people import OPERATOR, Person, successor

KIM, LEE, HUB, OTHER, RECOVERY = Person(5), Person(6), Person(10), Person(11), Person(9)
ADA = Operator(key=OPERATOR.key, name="ada", verbs=VERBS)


def line(person, name, *verbs, scope="fabric"):
    return Operator(key=person.key, name=name, verbs=verbs, scope=scope)


FOUNDED = found("lab", "ada", OPERATOR.key, OPERATOR.sign, recovery=RECOVERY.key)
BASE = successor(
    FOUNDED.charter, ADA, line(KIM, "kim", "owner", "fleet"), hubs=(HUB,), issuers=(HUB,), recovery=RECOVERY.key
)


def heir(*operators, by=OPERATOR, hubs=(HUB,), issuers=(HUB,), of=BASE):
    return successor(of, *operators, by=by, hubs=hubs, issuers=issuers, recovery=RECOVERY.key)


def in_force(*records):
    read = [(record, read_body(record)) for record in (FOUNDED.charter, BASE, *records)]
    judged = charter_in_force(
        FOUNDED.fabric_id, [Chartered(each, body) for each, body in read if isinstance(body, Charter)]
    )
    assert judged is not None
    return judged


def fork(lost):
    """What is left of a charter that lost: what the recovery key signed is followed before any other."""
    (left,) = forks_of(in_force(lost, heir(*KEPT, by=RECOVERY)))
    assert left.record == lost
    return left


KEPT = (ADA, line(KIM, "kim", "owner", "fleet"))


@pytest.mark.parametrize(
    ("lost", "command"),
    [
        (heir(*KEPT, line(LEE, "lee", "keys", "fleet", scope="project:x")),
         f"tela operators add lee --key {LEE.key.hex()} --verbs fleet,keys --scope project:x"),
        (heir(ADA, line(KIM, "kim", "owner", "fleet", "keys")), "tela operators grant kim --verbs keys --scope fabric"),
        (heir(ADA), "tela operators remove kim"),
        (heir(ADA, line(KIM, "kim", "owner")), "tela operators remove kim --verbs fleet --scope fabric"),
        (heir(*KEPT, hubs=(HUB, OTHER)), f"tela operators hub add {OTHER.id} --url ws://127.0.0.1:7011"),
        (heir(*KEPT, hubs=()), f"tela operators hub remove {HUB.id}"),
        (heir(*KEPT, issuers=(HUB, OTHER)), f"tela operators issuer add {OTHER.id}"),
        (heir(*KEPT, issuers=()), f"tela operators issuer remove {HUB.id}"),
    ],
)  # fmt: skip
def test_what_was_lost_is_a_command(lost, command):
    assert fork(lost).pending == (command,)


def test_what_was_done_again_is_settled():
    lost = heir(*KEPT, issuers=(HUB, OTHER))
    won = heir(*KEPT, by=RECOVERY)
    again = heir(*KEPT, issuers=(HUB, OTHER), of=won)
    (left,) = forks_of(in_force(lost, won, again))
    assert left.pending == ()
    text = "\n".join(lines(authority(in_force(lost, won, again), None, mine=b"")))
    assert "FORK" not in text


def test_a_fork_that_waits_is_listed_with_what_to_do():
    lost = heir(ADA)
    won = heir(*KEPT, by=RECOVERY)
    text = "\n".join(lines(authority(in_force(lost, won), None, mine=b"")))
    assert f"FORK      charter 2 {lost.order.hash.hex()[:12]} signed by ada is not followed" in text
    assert "\n          tela operators remove kim\n" in text
    assert "--recovery" in text


def test_a_fork_of_somebody_who_is_no_operator_any_more_keeps_their_name():
    lost = heir(ADA, line(KIM, "kim", "owner", "fleet", "keys"), by=KIM)
    won = heir(ADA, by=RECOVERY)
    shown = authority(in_force(lost, won), None, mine=b"")
    (row,) = shown["forks"]
    assert row["signed_by"] == "kim"
    assert row["pending"] == [f"tela operators add kim --key {KIM.key.hex()} --verbs keys --scope fabric"]
    assert key_id(KIM.key) not in str(row["signed_by"])
