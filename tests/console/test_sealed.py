"""The file of an operator's key: only its passphrase opens it, and nothing else than one is taken for one."""

import json

import msgspec
import pytest

from console.sealed import ENTROPY_B, NOTE, encode, held_by_agent, read, seal, unseal
from registry.errors import TelaError
from tests.people import Person

ADA = Person(1)
ENTROPY = bytes(range(ENTROPY_B))
SEALED = seal("ada", ADA.seed, b"correct horse", ENTROPY)


def refused(what, *args):
    with pytest.raises(TelaError) as caught:
        what(*args)
    return caught.value


def test_the_passphrase_opens_what_it_sealed():
    assert unseal(read(encode(SEALED), "operator.key"), b"correct horse") == ADA.seed


def test_another_passphrase_does_not():
    error = refused(unseal, SEALED, b"correct hors")
    assert error.code == "wrong_passphrase"
    assert "recovery key" in error.hint


def test_the_seed_is_not_in_the_file():
    raw = encode(SEALED)
    assert ADA.seed not in raw
    assert ADA.seed.hex().encode() not in raw
    assert SEALED.key == ADA.key


def test_a_key_without_a_passphrase_says_so_in_its_file():
    bare = seal("ada", ADA.seed, b"", ENTROPY)
    assert (bare.how, bare.note) == ("none", NOTE)
    assert b"whoever can read this file" in encode(bare)
    assert unseal(bare, b"") == ADA.seed


def test_a_public_half_that_was_exchanged_is_found():
    swapped = msgspec.structs.replace(SEALED, key=Person(2).key)
    assert refused(unseal, swapped, b"correct horse").code == "bad_key"


def test_a_key_in_an_agent_has_nothing_to_open():
    entry = read(encode(held_by_agent("ada", ADA.key)), "operator.key")
    assert (entry.how, entry.key, entry.box) == ("ssh-agent", ADA.key, None)
    assert refused(unseal, entry, b"").code == "bad_key"


def changed(**fields):
    return json.dumps(json.loads(encode(SEALED)) | fields).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"deadbeef",
        b"[" * 100_000,
        encode(SEALED)[:-20],
        b" " * 5_000,
        changed(how="ssh-agent"),
        changed(box=None),
        changed(v=2),
        changed(name="a\nb"),
        changed(more=1),
        changed(box=json.loads(encode(SEALED))["box"] | {"memory_b": 1 << 40}),
        changed(box=json.loads(encode(SEALED))["box"] | {"ops": 1 << 20}),
        changed(box=json.loads(encode(SEALED))["box"] | {"salt": ""}),
    ],
)
def test_anything_else_is_refused_naming_the_file(raw):
    error = refused(read, raw, "/home/ada/operator.key")
    assert error.code == "bad_key"
    assert "/home/ada/operator.key" in error.message
