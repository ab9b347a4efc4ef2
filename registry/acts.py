"""Acts: one register for each aspect of a target and each signer, and which of several signers' acts stands. Pure.

Who may sign what is `registry.mandate`; here is only how acts are numbered, written, compared and answered.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from registry.ids import key_id
from registry.kinds import ASPECTS, Act, Outcome, Verb, encode_body
from registry.record import Draft, Record, Sign, seal
from registry.replica import Entry, Replica

RESTRICTIVE = frozenset({"drain", "evict", "revoke"})  # of two acts with one number, these stand
# Numbers above are as good as this one, or whoever takes the greatest there is would have the last word for ever.
MAX_NUMBER = 2**53

_CARRIED_OUT: dict[str, Literal["target", "hubs"]] = {
    "drain": "target",
    "undrain": "target",
    "restart": "target",
    "evict": "hubs",
    "readmit": "hubs",
    "revoke": "hubs",
}


class Ordered(NamedTuple):
    """An act and the record that carries it."""

    record: Record
    act: Act


def subject(verb: str, target: str) -> str:
    """The id of the register an act is written to."""
    return f"{ASPECTS[verb]}/{target}"


def needs(verb: str) -> Literal["target", "hubs", "nobody"]:
    """Who carries an act out: the node it is about, every hub, or nobody, since it is there to be read."""
    return _CARRIED_OUT.get(verb, "nobody")


def standing_order(ordered: Ordered, authority: int) -> tuple[int, int, bool, bytes]:
    """What is compared between acts of several signers on one subject: the greatest stands, everywhere alike.

    Args:
        ordered: the act.
        authority: its signer's on this subject: the greater one has the last word on a number.
    """
    number, is_strict = min(ordered.record.order.seq, MAX_NUMBER), ordered.act.verb in RESTRICTIVE
    return number, authority, is_strict, ordered.record.order.hash


def acts_of(held: Iterable[Entry]) -> list[Ordered]:
    """Every act among records."""
    entries = held.of_kind("act") if isinstance(held, Replica) else held
    return [Ordered(record, body) for record, body in entries if isinstance(body, Act)]


def next_seq(held: Iterable[Entry], name: str) -> int:
    """The number of the next act on a subject: above every signer's, up to the greatest that matters.

    Leave out acts that count nowhere, but for the signer's own: anybody may write any number.
    """
    highest = max((each.record.order.seq for each in acts_of(held) if each.record.key.id == name), default=0)
    return min(highest + 1, MAX_NUMBER)


def previous(held: Iterable[Entry], owner: bytes) -> bytes:
    """The hash of a key's latest act; empty when it signed none that is still held."""
    own = [each for each in acts_of(held) if each.record.key.owner == owner]
    latest = max(own, key=lambda each: (each.act.at, each.record.order.hash), default=None)
    return latest.record.order.hash if latest else b""


def write_act(
    held: Iterable[Entry],
    verb: Verb,
    target: str,
    *,
    owner: bytes,
    sign: Sign,
    at: float,
    run: int = 0,
    reason: str = "",
) -> Record:
    """Sign an act above all that is held on its subject.

    Args:
        held: a replica, or its acts: those that count and the signer's own.
        verb: what to do.
        target: to whom: a node's id; of a revocation an invite's or a member's.
        owner: the signer's public key.
        sign: signs with it.
        at: unix seconds, fabric time.
        run: the target's run it is meant for; 0: whichever.
        reason: shown to everybody.

    Raises:
        TelaError: when the signer has no greater number left.
    """
    acts = [Entry(record, act) for record, act in acts_of(held)]
    body = Act(verb=verb, target=target, run=run, reason=reason, prev=previous(acts, owner), at=at)
    name = subject(verb, target)
    own = [each.record.order.seq for each in acts if each.record.key.id == name and each.record.key.owner == owner]
    seq = max(next_seq(acts, name), 1 + max(own, default=0))  # a register takes nothing that is not above what it holds
    return seal(Draft("act", name, encode_body(body), seq=seq), owner, sign)


def outcome_of(replica: Replica, act: Record) -> list[tuple[str, Outcome]]:
    """What nodes say became of an act, each by its id. Whose word counts is told by `needs`."""
    return [
        (key_id(record.key.owner), body)
        for record, body in replica.of_kind("outcome")
        if isinstance(body, Outcome) and body.act == act.order.hash and record.key.id == act.key.id
    ]
