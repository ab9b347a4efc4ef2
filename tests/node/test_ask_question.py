"""Questions as bytes: what is signed is bound to node, moment and words; what is no question is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.ask.question import MAX_QUESTION_B, Question, QuestionRefused, blob_hash, decode, encode, read_head
from registry.errors import TelaError
from tests.people import MEMBER, Person

NODE = Person(10)


def question(q="log", node=NODE.id, at=1_800_000_000.0, nonce=b"n" * 16, **args):
    return Question(q=q, args=args, node=node, at=at, nonce=nonce)


def test_a_signed_question_comes_back_with_its_signer():
    asked = decode(encode(question(lines=5, follow=True), MEMBER.key, MEMBER.sign))
    assert asked.signer == MEMBER.key
    assert (asked.args.lines, asked.args.follow) == (5, True)
    assert asked.question.node == NODE.id


def test_an_unsigned_question_is_nobody_s():
    assert decode(encode(question("holds", hash="ab" * 32))).signer == b""


def test_another_s_name_under_a_signature_is_refused():
    text, _, signature = msgspec.msgpack.decode(encode(question(), MEMBER.key, MEMBER.sign))
    with pytest.raises(QuestionRefused, match="signature"):
        decode(msgspec.msgpack.encode([text, Person(3).key, signature]))


def test_a_question_that_was_changed_is_refused():
    _, signer, signature = msgspec.msgpack.decode(encode(question(lines=1), MEMBER.key, MEMBER.sign))
    other = msgspec.msgpack.encode(question(lines=2))
    with pytest.raises(QuestionRefused, match="signature"):
        decode(msgspec.msgpack.encode([other, signer, signature]))


@pytest.mark.parametrize(("signer", "signature"), [(MEMBER.key, b""), (b"", b"s" * 64), (b"short", b"s" * 64)])
def test_half_a_signature_is_refused(signer, signature):
    with pytest.raises(QuestionRefused):
        decode(msgspec.msgpack.encode([msgspec.msgpack.encode(question()), signer, signature]))


def test_a_record_s_signature_signs_no_question():
    from registry.record import DOMAIN as RECORDS

    text = msgspec.msgpack.encode(question())
    with pytest.raises(QuestionRefused, match="signature"):
        decode(msgspec.msgpack.encode([text, MEMBER.key, MEMBER.sign(RECORDS + text)]))


@pytest.mark.parametrize(
    ("q", "args"),
    [
        ("log", {"lines": 2_001}),
        ("log", {"lines": -1}),
        ("log", {"slot": "../../etc/passwd"}),
        ("log", {"path": "/etc/passwd"}),
        ("log", {"bytes": 262_145}),
        ("events", {"limit": 0}),
        ("events", {"since": "x"}),
        ("blob", {}),
        ("blob", {"hash": "AB" * 32}),
        ("holds", {"hash": "ab"}),
    ],
)
def test_arguments_out_of_bounds_are_refused_on_both_sides(q, args):
    with pytest.raises(QuestionRefused):
        encode(question(q, **args))
    raw = msgspec.msgpack.encode([msgspec.msgpack.encode(question(q, **args)), b"", b""])
    with pytest.raises(QuestionRefused):
        decode(raw)


def test_a_question_of_unknown_kind_is_refused():
    text = msgspec.msgpack.encode({"q": "shell", "args": {}, "node": NODE.id, "at": 1.0, "nonce": b"n" * 16})
    with pytest.raises(QuestionRefused):
        decode(msgspec.msgpack.encode([text, b"", b""]))


def test_a_question_that_is_too_long_is_refused():
    with pytest.raises(QuestionRefused, match="at most"):
        decode(b"\0" * (MAX_QUESTION_B + 1))


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_never_breaks(raw):
    with pytest.raises(QuestionRefused):
        decode(raw)


@given(st.binary(max_size=300))
def test_a_head_that_is_none_is_refused_and_never_breaks(raw):
    with pytest.raises(TelaError, match="cannot be read"):
        read_head(raw)


def test_the_words_of_another_node_are_safe_to_show():
    head = read_head(b'{"ok": false, "code": "a\\u001b[2J", "message": "no\\u202e\\u001b[31m", "hint": "x"}')
    assert head.code == "refused"
    assert "\x1b" not in head.message
    assert "\u202e" not in head.message


def test_a_blob_is_named_by_its_content():
    assert blob_hash(b"a") != blob_hash(b"b")
    assert len(blob_hash(b"a")) == 32
