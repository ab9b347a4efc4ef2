"""The HELLO inside the handshake: what a node says of itself, and the records that show by what right it is there.

It carries the membership and the certificate of the node, and where an invite is behind them that invite and a hub's
word that it was accepted, so that a node nobody has heard of can be admitted. Here is its form; `gossip.verdict` weighs
it.
"""

from math import isfinite
from typing import Annotated, NamedTuple

import msgspec

from gossip.transcript import MAX_HELLO_B
from registry.errors import RecordRefused
from registry.kinds import Acceptance, Body, Certificate, Invite, Membership, read_body
from registry.record import MAX_RECORD_B, Record, decode

REFUSALS = {
    "bad_hello": "its greeting does not decode",
    "too_old": "its release is too old to speak with this one",
    "no_charter": "this node does not hold the charter yet",
    "not_admitted": "its membership was signed by no owner of this fabric",
    "not_certified": "its key was certified by another member, or by none",
    "expired": "its membership or certificate has expired",
    "too_many": "its membership allows no further node",
    "evicted": "an operator evicted this node",
    "revoked": "an operator revoked its invite or membership",
    "invite_unknown": "its invite was signed by no owner of this fabric",
    "invite_expired": "its invite was not used in time: ask for a new one",
    "exhausted": "its invite was accepted by another key: an invite is for one person",
    "not_accepted": "no hub accepted its invite yet, and this node may not: ask a hub named in the charter",
    "not_ready": "this hub started a moment ago, and has not heard yet whom others accepted: come again",
    "narrowed": "it may do less than when the link was made, and is linked anew",
    "clock_off": "its clock and this one are more than ten minutes apart",
}


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of itself inside the encrypted handshake."""

    capability: int
    release: Annotated[str, msgspec.Meta(max_length=64)]
    hub: bool
    accounts: bool  # it holds the accounts grant and wants that shelf
    proofs: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_B)], ...], msgspec.Meta(max_length=4)
    ]  # raw records: membership, certificate, invite, acceptance; the latter two where there is an invite
    wall: float | None = None  # unix seconds on its own clock; None: it is of the release before


_DECODER = msgspec.msgpack.Decoder(Hello)
_KINDS: tuple[type[Body], ...] = (Membership, Certificate, Invite, Acceptance)


class Greeting(NamedTuple):
    """A greeting whose form is right: nothing in it was weighed."""

    hello: Hello
    membership: Record
    certificate: Record
    invite: Record | None = None
    acceptance: Record | None = None


def encode_hello(hello: Hello) -> bytes:
    """The bytes of a greeting."""
    return msgspec.msgpack.encode(hello)


def read_hello(payload: bytes) -> Greeting | None:
    """A greeting from outside; None for anything that is none."""
    try:
        hello = _DECODER.decode(payload) if len(payload) <= MAX_HELLO_B else None
        proofs = tuple(decode(raw) for raw in hello.proofs) if hello else ()
        bodies = tuple(read_body(proof) for proof in proofs)
    except (msgspec.MsgspecError, RecordRefused, RecursionError):  # the last from fields that are skipped unread
        return None
    if hello is None or len(bodies) < 2 or (hello.wall is not None and not isfinite(hello.wall)):
        return None
    if not all(isinstance(body, kind) for body, kind in zip(bodies, _KINDS, strict=False)):
        return None
    return Greeting(hello, *proofs)
