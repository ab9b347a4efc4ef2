from random import Random

import pytest

from gossip.errors import RemoteProtocolError
from gossip.greeter import Greeter
from gossip.hello import read_hello
from tests.people import FABRIC, Person, certificate, membership

ONE, OTHER = Person(610), Person(611)


def greeter(person, *, proofs=lambda: (), wall=lambda: 1.0, fabric=FABRIC, rng=None, is_hub=False, accounts=False):
    return Greeter(
        seed=person.seed, fabric_id=fabric, release="r", is_hub=is_hub, accounts=accounts, proofs=proofs, wall=wall,
        rng=rng or Random(person.number),
    )  # fmt: skip


def met(one, other, *, key=OTHER.key):
    """What each end knows of the other after their handshake."""
    dialling, answering = one.to(key), other.answer()
    m2 = answering.receive_first(dialling.first(), 0.0)
    m3, there = dialling.receive(m2)
    return there, answering.receive_last(m3)


def test_two_greeters_of_one_fabric_know_each_others_key_and_greeting():
    proofs = membership(), certificate(ONE)
    there, here = met(greeter(ONE, proofs=lambda: proofs, is_hub=True), greeter(OTHER, accounts=True))
    assert (there.peer, here.peer) == (OTHER.key, ONE.key)
    greeting = read_hello(here.payload)
    assert greeting is not None
    assert (greeting.membership, greeting.certificate) == proofs
    assert (greeting.hello.hub, greeting.hello.accounts, greeting.hello.release) == (True, False, "r")


def test_each_greeting_is_of_its_moment():
    proofs, wall = [membership(), certificate(ONE)], [5.0]
    one = greeter(ONE, proofs=lambda: tuple(proofs), wall=lambda: wall[0])
    met(one, greeter(OTHER))
    proofs[1], wall[0] = certificate(ONE, seq=2), 6.0
    _, here = met(one, greeter(OTHER))
    greeting = read_hello(here.payload)
    assert greeting is not None
    assert (greeting.certificate, greeting.hello.wall) == (proofs[1], 6.0)


def test_no_other_key_than_the_one_dialled_will_do():
    with pytest.raises(RemoteProtocolError):
        met(greeter(ONE), greeter(OTHER), key=Person(612).key)


def test_a_first_message_is_answered_once():
    other, first = greeter(OTHER), greeter(ONE).to(OTHER.key).first()
    other.answer().receive_first(first, 0.0)
    with pytest.raises(RemoteProtocolError):
        other.answer().receive_first(first, 0.0)


def test_two_fabrics_do_not_meet():
    with pytest.raises(RemoteProtocolError):
        met(greeter(ONE, fabric=b"another"), greeter(OTHER))
