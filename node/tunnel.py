"""The heads of a request stream: what an ingress says when it opens one and what the worker answers.

Both are decoded here and nowhere else. The worker dials nothing the ingress names: a path from a list, on its
own engine.
"""

from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec

from registry.errors import TelaError

REQUEST = 1  # the stream kind
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")

MAX_BODY_B = 64 * 1024 * 1024  # of a request, at the door and at the worker alike
MAX_HEADERS = 100  # as many as the door takes, so that none is lost between it and the engine
MAX_HEADERS_B = 32_000

# Hop-by-hop (RFC 9110 §7.6.1), framing that belongs to one connection, credentials, and what names the
# ingress.
_NOT_FORWARDED = frozenset((
    b"authorization", b"connection", b"content-length", b"cookie", b"expect", b"forwarded", b"host",
    b"keep-alive", b"accept-encoding", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection",
    b"te", b"trailer", b"transfer-encoding", b"upgrade", b"x-api-key", b"x-forwarded-for",
    b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"x-request-id",
))  # fmt: skip
# What an engine may tell a client. The rest would let it speak for the ingress: set cookies, redirect, pin TLS.
_RETURNED = frozenset((
    b"cache-control", b"content-disposition", b"content-encoding", b"content-language", b"content-type", b"vary",
))  # fmt: skip
_RETURNED_PREFIXES = (b"openai-", b"anthropic-", b"x-")
_OURS = (b"x-accel-", b"x-content-", b"x-forwarded-", b"x-frame-", b"x-request-id", b"x-should-retry", b"x-tela-")

Headers = list[tuple[bytes, bytes]]  # names in lower case
_Line = Annotated[bytes, msgspec.Meta(max_length=MAX_HEADERS_B)]


class RequestHead(msgspec.Struct, frozen=True, array_like=True):
    """What an ingress asks of a worker."""

    slot: str  # which engine of the node
    run: int  # of the replica that was picked; another one refuses
    path: str
    rid: str
    headers: Annotated[list[tuple[_Line, _Line]], msgspec.Meta(max_length=MAX_HEADERS)]


class ReplyHead(msgspec.Struct, frozen=True, array_like=True):
    """What the engine answered."""

    status: Annotated[int, msgspec.Meta(ge=200, le=599)]
    headers: Annotated[list[tuple[_Line, _Line]], msgspec.Meta(max_length=MAX_HEADERS)]


H = TypeVar("H", RequestHead, ReplyHead)
_REQUESTS = msgspec.msgpack.Decoder(RequestHead)
_REPLIES = msgspec.msgpack.Decoder(ReplyHead)
_ENCODE = msgspec.msgpack.Encoder().encode


class HeadRefused(TelaError):
    """A head from the other node that does not decode."""


def encode_head(head: RequestHead | ReplyHead) -> bytes:
    """The bytes of a head."""
    return _ENCODE(head)


def read_request_head(raw: bytes) -> RequestHead:
    """A head from an ingress.

    Raises:
        HeadRefused: when it does not decode or asks for a path that is not served.
    """
    head = _read(_REQUESTS, raw)
    if head.path not in PATHS:
        raise HeadRefused("a path that is not served", code="bad_head")
    return head


def read_reply_head(raw: bytes) -> ReplyHead:
    """A head from a worker.

    Raises:
        HeadRefused: when it does not decode.
    """
    return _read(_REPLIES, raw)


def _read(decoder: msgspec.msgpack.Decoder[H], raw: bytes) -> H:
    try:
        head = decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise HeadRefused(f"head refused: {error}", code="bad_head") from None
    if any(b"\r" in text or b"\n" in text or b"\0" in text for line in head.headers for text in line):
        raise HeadRefused("head refused: a line break in a header", code="bad_head")
    return head


def to_engine(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The client's headers that may travel to an engine; its credentials never leave the ingress."""
    return _within_limits((name, value) for name, value in headers if name not in _NOT_FORWARDED)


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The engine's headers that may travel to a client."""
    lowered = [(name.lower(), value) for name, value in headers]
    essential = [each for each in lowered if each[0] in _RETURNED]
    others = [each for each in lowered if each[0].startswith(_RETURNED_PREFIXES) and not each[0].startswith(_OURS)]
    return _within_limits([*essential, *others])  # cut, it is at the end


def _within_limits(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    kept: Headers = []
    size = 0
    for name, value in headers:
        size += len(name) + len(value)
        if len(kept) == MAX_HEADERS or size > MAX_HEADERS_B:
            break
        kept.append((name, value))
    return kept
