"""What the bodies of records mean: typed, strict, and open to additions through an extension map.

A body is a JSON object. Its named fields are the critical core: an unknown one, a wrong type or an
impossible value refuses the record. `ext` may hold anything; readers keep it (records travel as raw bytes)
and ignore it. A kind that is not listed here is opaque: stored and forwarded, never interpreted.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from registry.errors import RecordRefused
from registry.ids import key_id
from registry.lifecycle import Rank
from registry.record import Audience, Record

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=256)]
PublicKey = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Url = Annotated[str, msgspec.Meta(pattern=r"^wss?://[A-Za-z0-9\[\]._:/-]{1,200}\Z")]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Role = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,16}\Z")]
Few = msgspec.Meta(max_length=16)

HUB_ROLES = frozenset({"ingress", "relay"})


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every body has."""

    ext: dict[str, msgspec.Raw] = {}


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value inside a body."""


class Operator(_Part, frozen=True, kw_only=True):
    """Who may sign what: verbs (fleet, keys, placement, owner) within a scope."""

    key: PublicKey
    name: Name
    verbs: Annotated[tuple[Role, ...], Few]
    scope: Name = "fabric"  # or provider:P, project:J


class Hub(_Part, frozen=True, kw_only=True):
    """A node that accepts links, and where."""

    key: PublicKey
    urls: Annotated[tuple[Url, ...], Few]


class Charter(Body, frozen=True, kw_only=True):
    """The founding record (no `prev`) or a successor naming the hash of the charter it follows."""

    name: Name
    prev: bytes = b""
    operators: Annotated[tuple[Operator, ...], Few]
    hubs: Annotated[tuple[Hub, ...], Few]
    issuers: Annotated[tuple[PublicKey, ...], Few] = ()  # ingresses that may mint claimed keys
    recovery: bytes = b""  # public half of the recovery key
    defaults: dict[str, str] = {}


class Membership(Body, frozen=True, kw_only=True):
    """An operator's grant to a person's key: whose provider, which roles, how many nodes, until when."""

    member: PublicKey
    provider: Name
    roles: Annotated[tuple[Role, ...], Few]
    not_after: Seconds  # unix seconds, fabric time
    max_nodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Certificate(Body, frozen=True, kw_only=True):
    """A member's word that a node key is theirs."""

    node: PublicKey
    roles: Annotated[tuple[Role, ...], Few]
    not_after: Seconds


class Node(Body, frozen=True, kw_only=True):
    """One run of the agent on one host and slot. Its provider is in the membership, never here."""

    host: Name
    slot: int = 0
    member: PublicKey  # whose node it is; a certificate by anybody else says nothing about it
    roles: Annotated[tuple[Role, ...], Few]
    urls: Annotated[tuple[Url, ...], Few] = ()  # where it accepts links; empty for a leaf
    hubs: Annotated[tuple[Name, ...], Few] = ()  # ids of the hubs it holds links to now
    draining: bool = False
    capability: int = 1
    release: Text = ""
    started: Seconds = 0.0  # unix seconds on its own clock, for display
    prev: Text = ""  # how its last run ended, as far as it knows


class Offer(_Part, frozen=True, kw_only=True):
    """A model a replica serves."""

    id: Name
    families: Annotated[tuple[Role, ...], Few] = ("chat", "completions")
    context_tokens: int | None = None  # None: the engine does not say
    created: int = 0


class Cause(_Part, frozen=True, kw_only=True):
    """Why a replica is down. Never text from a log: that is asked for, not gossiped."""

    reason: Name  # exited, killed, unhealthy, stopped
    exit_code: int | None = None
    signal: int | None = None


class Replica(Body, frozen=True, kw_only=True):
    """One run of an engine on a node."""

    node_run: int  # the run of the node that started it: an older one is a ghost
    engine: Name
    models: Annotated[tuple[Offer, ...], Few]
    phase: Text = ""
    draining: bool = False
    cause: Cause | None = None  # None: it is not down
    started: Seconds = 0.0


class Doubt(Body, frozen=True, kw_only=True):
    """A prober's word that it cannot reach a node; void against any newer record of that node."""

    run: int
    seq: int
    path: Name  # which way it tried
    since: Seconds
    cleared: bool = False


class Opaque(msgspec.Struct, frozen=True):
    """The body of a kind this release does not know."""


class _Spec(NamedTuple):
    body: type[Body]
    subject: Callable[[Record, Body], bool]  # whether the record's id is proven by the record itself
    ranked: bool = False


def _of_owner(record: Record, _: Body) -> bool:
    return record.key.id == key_id(record.key.owner)


def _slot_of_owner(record: Record, _: Body) -> bool:
    return record.key.id.startswith(key_id(record.key.owner) + "/")


def _of_member(record: Record, body: Body) -> bool:
    return isinstance(body, Membership) and record.key.id == key_id(body.member)


def _of_node(record: Record, body: Body) -> bool:
    return isinstance(body, Certificate) and record.key.id == key_id(body.node)


def _of_other(record: Record, _: Body) -> bool:
    return record.key.id != key_id(record.key.owner)


def _height(record: Record, _: Body) -> bool:
    return record.key.id.isdigit() and int(record.key.id) == record.order.seq


KINDS: dict[str, _Spec] = {
    "charter": _Spec(Charter, _height),
    "membership": _Spec(Membership, _of_member),
    "certificate": _Spec(Certificate, _of_node),
    "node": _Spec(Node, _of_owner, ranked=True),
    "replica": _Spec(Replica, _slot_of_owner, ranked=True),
    "doubt": _Spec(Doubt, _of_other),
}
_DECODERS = {kind: msgspec.json.Decoder(spec.body) for kind, spec in KINDS.items()}
_KIND_OF = {spec.body: kind for kind, spec in KINDS.items()}


def kind_of(body: Body) -> str:
    """The kind a body belongs to."""
    return _KIND_OF[type(body)]


def encode_body(body: Body) -> bytes:
    """The bytes of a body, as they are signed; defaults are left out."""
    return msgspec.json.encode(body)


def read_body(record: Record) -> Body | Opaque:
    """The typed body of a record, or Opaque for an unknown kind.

    Raises:
        RecordRefused: when a known kind has a wrong body, subject, rank or shelf.
    """
    spec = KINDS.get(record.key.kind)
    if spec is None:
        return Opaque()
    try:
        body: Body = _DECODERS[record.key.kind].decode(record.body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordRefused(f"{record.key.kind}: {error}") from None
    if record.key.audience is not Audience.PUBLIC:
        raise RecordRefused(f"{record.key.kind}: wrong shelf")
    if not spec.subject(record, body):
        raise RecordRefused(f"{record.key.kind}: the id is not its owner's to write")
    if record.order.rank > (Rank.LEFT if spec.ranked else 0):
        raise RecordRefused(f"{record.key.kind}: no such rank")
    return body
