"""A question to a node: what is asked, by whom, and the signature that binds it to that node and moment. Pure.

What another node sends is decoded here and nowhere else; what may be answered is `node.ask.judge`.
"""

import hashlib
from typing import Annotated, Literal, NamedTuple

import msgspec
from nacl import bindings
from nacl.exceptions import CryptoError

from registry.errors import TelaError
from registry.kinds import Hash, Name
from registry.record import Sign
from registry.text import clean

ASK = 2  # the stream kind
DOMAIN = b"tela/ask/1\0\0\0\0\0\0"  # 16 bytes: no other signature of ours starts with it
MAX_QUESTION_B = 4096
MAX_LINES = 2_000
MAX_TAIL_B = 262_144
MAX_BLOB_B = 262_144
MAX_EVENTS = 1_000
MAX_EVENTS_B = 1 << 20
_SIGNATURE_B = 64

What = Literal["log", "events", "blob", "holds"]


class QuestionRefused(TelaError):
    """Bytes that are no question, or arguments that fit none."""


class _Args(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a question is about."""


class LogArgs(_Args, frozen=True, kw_only=True):
    """The end of a log."""

    slot: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{0,64}\Z")] = ""  # empty: of the node itself
    lines: Annotated[int, msgspec.Meta(ge=0, le=MAX_LINES)] = 200
    bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_TAIL_B)] = MAX_TAIL_B
    follow: bool = False  # and what is written from then on


class EventsArgs(_Args, frozen=True, kw_only=True):
    """Events above a number, oldest first; -1: the newest ones."""

    since: Annotated[int, msgspec.Meta(ge=-1, le=2**60)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_EVENTS)] = 100


class HashArgs(_Args, frozen=True, kw_only=True):
    """A blob, or a record that is held or not."""

    hash: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


Args = LogArgs | EventsArgs | HashArgs
_ARGS: dict[What, type[Args]] = {"log": LogArgs, "events": EventsArgs, "blob": HashArgs, "holds": HashArgs}


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of one node at one moment."""

    q: What
    args: dict[Annotated[str, msgspec.Meta(max_length=16)], str | int | bool] = {}
    node: Name  # whom it is for; another node refuses it
    at: Annotated[float, msgspec.Meta(ge=0, le=1e12)]  # unix seconds, fabric time
    nonce: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]  # a signed question is answered once


class _Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A question as it travels."""

    question: bytes
    signer: Annotated[bytes, msgspec.Meta(max_length=32)]  # empty: it is not signed
    signature: Annotated[bytes, msgspec.Meta(max_length=_SIGNATURE_B)]


class Asked(NamedTuple):
    """A question whose signature was checked."""

    question: Question
    args: Args
    signer: bytes  # empty: nobody; then only the link says who asks


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The head of an answer."""

    ok: bool
    code: str = ""
    message: str = ""
    hint: str = ""


def encode(question: Question, signer: bytes = b"", sign: Sign | None = None) -> bytes:
    """A question as bytes, signed with a member's or an operator's key where one is given.

    Raises:
        QuestionRefused: its arguments fit no question.
    """
    arguments(question)
    text = msgspec.msgpack.encode(question)
    signature = sign(DOMAIN + text) if sign is not None else b""
    return msgspec.msgpack.encode(_Sealed(text, signer if sign is not None else b"", signature))


def decode(raw: bytes) -> Asked:
    """A question from outside.

    Raises:
        QuestionRefused: it is none, or its signature does not verify.
    """
    if len(raw) > MAX_QUESTION_B:
        raise _refused(f"{len(raw)} bytes, at most {MAX_QUESTION_B}")
    try:
        sealed = msgspec.msgpack.decode(raw, type=_Sealed)
        question = msgspec.msgpack.decode(sealed.question, type=Question)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refused(str(error)) from None
    if sealed.signer or sealed.signature:
        _verify(sealed)
    return Asked(question, arguments(question), sealed.signer)


def _verify(sealed: _Sealed) -> None:
    try:
        bindings.crypto_sign_open(sealed.signature + DOMAIN + sealed.question, sealed.signer)
    except (CryptoError, ValueError, TypeError):
        raise _refused("its signature does not verify") from None


def arguments(question: Question) -> Args:
    """The arguments of a question, checked.

    Raises:
        QuestionRefused: they do not fit.
    """
    try:
        return msgspec.convert(question.args, type=_ARGS[question.q])
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from None


def _refused(why: str) -> QuestionRefused:
    return QuestionRefused(f"this is no question: {clean(why)}", code="bad_question")


def read_head(raw: bytes) -> Answered:
    """The head of an answer from outside; what it says is safe to show.

    Raises:
        TelaError: it is none.
    """
    try:
        head = msgspec.json.decode(raw, type=Answered)
    except (msgspec.MsgspecError, RecursionError):
        raise TelaError("the answer cannot be read", code="bad_answer") from None
    code = head.code if head.code.isidentifier() and head.code.isascii() and len(head.code) <= 32 else "refused"
    return Answered(ok=head.ok, code=code, message=clean(head.message), hint=clean(head.hint))


def blob_hash(blob: bytes) -> Hash:
    """The 32-byte hash that names a blob."""
    return hashlib.blake2b(blob, digest_size=32, person=b"tela-blob").digest()
