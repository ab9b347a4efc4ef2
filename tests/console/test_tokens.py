"""The token of an invite: whole, or refused with what is wrong; and other secrets named for what they are."""

import base64
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tokens import MAX_TOKEN_CHARS, PREFIX, Invitation, read_token, write_token
from node.config import HubAddress
from registry.charter import Chartered, offer, succeed
from registry.errors import TelaError
from registry.kinds import Charter, Invite, read_body
from tests.people import FOUNDING, OPERATOR, Person

GUEST, HUB = Person(20), Person(10)
BODY = Invite(key=GUEST.key, provider="chem", roles=("worker",), accept_by=2e9)
INVITATION = Invitation(
    name="lab",
    charters=(FOUNDING.charter,),
    record=offer(BODY, OPERATOR.key, OPERATOR.sign),
    invite=BODY,
    seed=GUEST.seed,
    hubs=(HubAddress(key=HUB.key, urls=("ws://hub.example.org:7481", "wss://[fd00::2]:7481")),),
    door="https://llm.example.org",
)
TOKEN = write_token(INVITATION)


def refused(text):
    with pytest.raises(TelaError) as caught:
        read_token(text)
    return caught.value


def packed(**fields):
    """A token whose parts are not what `write_token` would put there."""
    payload = base64.urlsafe_b64decode(TOKEN.removeprefix(PREFIX) + "=" * (-len(TOKEN.removeprefix(PREFIX)) % 4))
    names = ("v", "name", "charters", "invite", "seed", "hubs", "door")
    parts = dict(zip(names, msgspec.msgpack.decode(zlib.decompress(payload[:-4])), strict=True)) | fields
    return token_of(zlib.compress(msgspec.msgpack.encode(list(parts.values()))))


# The last character of base64 may have bits that mean nothing.
ALIKE = frozenset(
    TOKEN[:-1] + char
    for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    if base64.urlsafe_b64decode(TOKEN.removeprefix(PREFIX)[:-1] + char + "==")
    == base64.urlsafe_b64decode(TOKEN.removeprefix(PREFIX) + "==")
)


def token_of(body):
    return PREFIX + base64.urlsafe_b64encode(body + zlib.crc32(body).to_bytes(4)).decode().rstrip("=")


def test_what_is_written_is_read_back():
    assert read_token(TOKEN) == INVITATION
    assert read_token(TOKEN).by == "ada"
    assert read_token(TOKEN).fabric_id == FOUNDING.fabric_id


def test_it_is_one_word_that_fits_a_terminal_line():
    assert TOKEN.isascii()
    assert not set(TOKEN) & set(" \n'\"$")
    assert len(TOKEN) < 4_096


def test_a_mail_program_may_break_its_lines():
    broken = "\n".join(TOKEN[at : at + 76] for at in range(0, len(TOKEN), 76))
    assert read_token(f"  {broken}\r\n") == INVITATION


def test_successors_of_the_charter_come_along_in_any_order():
    charter = read_body(FOUNDING.charter)
    assert isinstance(charter, Charter)
    after = msgspec.structs.replace(charter, name="later")
    second = succeed(Chartered(FOUNDING.charter, charter), after, OPERATOR.key, OPERATOR.sign)
    token = packed(charters=[second.raw, FOUNDING.charter.raw])
    assert read_token(token).charters == (FOUNDING.charter, second)


@pytest.mark.parametrize("cut", [1, 5, 40, len(TOKEN) - len(PREFIX) - 3])
def test_one_that_is_cut_short_is_damaged(cut):
    error = refused(TOKEN[:-cut])
    assert error.code == "bad_invite"
    assert "damaged" in error.message


@given(st.integers(len(PREFIX), len(TOKEN) - 1), st.sampled_from("Aa0-_é%"))
def test_a_changed_character_is_noticed(at, char):
    changed = TOKEN[:at] + char + TOKEN[at + 1 :]
    if changed not in ALIKE:
        assert refused(changed).code == "bad_invite"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tela_sk_" + "a" * 49, "this is an API key, not an invite"),
        ("tela_claim_" + "a" * 49, "this is a claim for an API key, not an invite"),
        ("", "there is no invite in it"),
        ("hello", "this is no invite"),
    ],
)
def test_other_words_are_named_for_what_they_are(text, said):
    error = refused(text)
    assert (error.code, error.message) == ("bad_invite", said)
    assert "invite" in error.hint


def test_one_of_a_newer_release_says_so():
    assert "newer release" in refused(packed(v=2)).message
    assert "newer release" in refused(token_of(zlib.compress(msgspec.msgpack.encode([2, {"all": "new"}])))).message


@pytest.mark.parametrize(
    "token",
    [
        packed(seed=bytes(32)),
        packed(seed=b"short"),
        packed(name="../etc"),
        packed(name=""),
        packed(charters=[]),
        packed(charters=[INVITATION.record.raw]),
        packed(charters=[b"nonsense"]),
        packed(invite=FOUNDING.charter.raw),
        packed(invite=b""),
        packed(hubs=[[HUB.key, ["http://hub"]]]),
        packed(hubs=[[HUB.key, []]]),
        packed(hubs=[[b"k", ["ws://hub:1"]]]),
        packed(door="javascript:alert(1)"),
        token_of(b""),
        token_of(b"not zlib"),
        token_of(zlib.compress(b"\xc1")),
        token_of(zlib.compress(b"\x91" * 100_000)),
        token_of(zlib.compress(bytes(100_000_000))),
        PREFIX + "A" * (MAX_TOKEN_CHARS + 1),
    ],
)
def test_what_does_not_fit_together_is_damaged(token):
    assert refused(token).code == "bad_invite"


def test_one_that_nobody_entitled_signed_is_refused():
    stranger = Person(77)
    error = refused(packed(invite=offer(BODY, stranger.key, stranger.sign).raw))
    assert error.code == "invite_unknown"
