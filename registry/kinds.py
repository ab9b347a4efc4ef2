"""What the bodies of records mean: typed, strict, and open to additions through an extension map.

A body is a JSON object. Its named fields are the critical core: an unknown one, a wrong type or an
impossible value refuses the record. `ext` may hold anything; readers keep it (records travel as raw bytes)
and ignore it. A kind that is not listed here is opaque: stored and forwarded, never interpreted.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import msgspec

from registry.errors import RecordRefused
from registry.ids import key_id
from registry.lifecycle import Rank
from registry.record import Audience, Record

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=256)]
PublicKey = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Url = Annotated[str, msgspec.Meta(pattern=r"^wss?://[A-Za-z0-9\[\]._:/-]{1,200}\Z")]
HttpUrl = Annotated[str, msgspec.Meta(pattern=r"^(https?://[A-Za-z0-9\[\]._:/-]{1,200})?\Z")]
Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
MaybeHash = Annotated[bytes, msgspec.Meta(max_length=32)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # what every reader of JSON can hold
ExitCode = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Role = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,16}\Z")]
Few = msgspec.Meta(max_length=16)

HUB_ROLES = frozenset({"ingress", "relay"})
ACCOUNTS_ROLES = frozenset({"ingress", "accounts"})  # who may hold the shelf with names and keys


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


class Invite(Body, frozen=True, kw_only=True):
    """An operator's offer to whoever holds the invite's key: one person may make a membership of it."""

    key: PublicKey  # signs that membership; its secret half is in the token
    provider: Name
    roles: Annotated[tuple[Role, ...], Few]
    accept_by: Seconds  # unix seconds, fabric time: a hub must have seen the membership by then
    days: Annotated[int, msgspec.Meta(ge=1, le=3_660)] = 90  # how long it lasts after a hub last renewed it
    max_nodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100


class Membership(Body, frozen=True, kw_only=True):
    """A grant to a person's key: whose provider, which roles, how many nodes, until when.

    Signed by an owner, or by the key of an invite, which limits it.
    """

    member: PublicKey
    provider: Name
    roles: Annotated[tuple[Role, ...], Few]
    not_after: Seconds | None  # unix seconds, fabric time; None: as long as its invite's acceptance lasts
    max_nodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Acceptance(Body, frozen=True, kw_only=True):
    """A hub's word that it saw a membership made of an invite in time, and when it last saw it in use."""

    member: PublicKey
    at: Seconds  # unix seconds, fabric time
    renewed: Seconds


class Certificate(Body, frozen=True, kw_only=True):
    """A member's word that a node key is theirs."""

    node: PublicKey
    roles: Annotated[tuple[Role, ...], Few]
    not_after: Seconds


class GpuGroup(_Part, frozen=True, kw_only=True):
    """GPUs of one kind on a host."""

    name: Text
    count: Annotated[int, msgspec.Meta(ge=1, le=1_024)]
    memory_b: Count
    nvlink: Annotated[
        tuple[Count, ...], msgspec.Meta(max_length=1_024)
    ] = ()  # sizes of the groups joined by NVLink; empty: none, or not known


class Platform(_Part, frozen=True, kw_only=True):
    """What runs this node's host for it: a Slurm job, a Kubernetes pod, or nothing."""

    kind: Name  # slurm, kubernetes
    job: Text = ""  # job id (with _task in an array), or namespace/pod
    partition: Text = ""
    ends_at: Seconds | None = None  # unix seconds; None: no end is known
    hosts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


class Node(Body, frozen=True, kw_only=True):
    """One run of the agent on one host and slot. Its provider is in the membership, never here."""

    host: Name
    slot: Count = 0
    member: PublicKey  # whose node it is; a certificate by anybody else says nothing about it
    roles: Annotated[tuple[Role, ...], Few]
    urls: Annotated[tuple[Url, ...], Few] = ()  # where it accepts links; empty for a leaf
    hubs: Annotated[tuple[Name, ...], Few] = ()  # ids of the hubs it holds links to now
    draining: bool = False
    url: HttpUrl = ""  # where people reach its door; empty without one
    platform: Platform | None = None  # None: an ordinary host
    gpus: Annotated[tuple[GpuGroup, ...], Few] = ()
    memory_b: Count = 0  # of the host, or of its job's share; 0: not known
    capability: Count = 1
    release: Text = ""
    started: Seconds = 0.0  # unix seconds on its own clock, for display
    prev: Text = ""  # how its last run ended, as far as it knows


class Offer(_Part, frozen=True, kw_only=True):
    """A model a replica serves."""

    id: Name
    families: Annotated[tuple[Role, ...], Few] = ("chat", "completions")
    context_tokens: Count | None = None  # None: the engine does not say
    created: Count = 0


class Cause(_Part, frozen=True, kw_only=True):
    """Why a replica is down. Never text from a log: that is asked for, not gossiped."""

    reason: Name  # exited, killed, unhealthy, stopped, or a class such as out-of-memory
    exit_code: ExitCode | None = None
    signal: Count | None = None


class Replica(Body, frozen=True, kw_only=True):
    """One run of an engine on a node."""

    node_run: Count  # the run of the node that started it: an older one is a ghost
    engine: Name
    models: Annotated[tuple[Offer, ...], Few]
    phase: Text = ""
    draining: bool = False
    cause: Cause | None = None  # None: it is not down
    started: Seconds = 0.0
    serve_to: Annotated[tuple[Name, ...], Few] = ()  # project:P or user:U; empty: the whole fabric


class Doubt(Body, frozen=True, kw_only=True):
    """A prober's word that it cannot reach a node; void against any newer record of that node."""

    run: int
    seq: int
    path: Name  # which way it tried
    since: Seconds
    cleared: bool = False


Verb = Literal["drain", "undrain", "restart", "evict", "readmit", "ack", "revoke"]
ASPECTS: dict[str, str] = {  # what an act is about: one register per aspect and target, and per signer
    "drain": "drain",
    "undrain": "drain",
    "restart": "restart",
    "evict": "evict",
    "readmit": "evict",
    "ack": "ack",
    "revoke": "revoke",
}


class Act(Body, frozen=True, kw_only=True):
    """An order of an operator, or of a member about the own nodes. Who may give it is `registry.validity`."""

    verb: Verb
    target: Name  # a node's id; of a revocation that of an invite or a member
    run: Count = 0  # the run of the target it is meant for; 0: whichever
    reason: Text = ""
    prev: MaybeHash = b""  # the hash of this key's act before this one, so that a gap shows
    at: Seconds  # unix seconds, fabric time


class Outcome(Body, frozen=True, kw_only=True):
    """What became of an act, said by the node that carried it out or would not."""

    act: Hash
    state: Literal["done", "refused"]
    reason: Text = ""
    at: Seconds


class KeyGrant(Body, frozen=True, kw_only=True):
    """An API key that may be used once somebody claimed it, or at once when it was made with its secret."""

    label: Text = ""
    user: Text = ""
    project: Text = ""
    models: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] | None = None  # None: every model
    expires_at: Seconds | None = None  # None: it does not expire
    claim: MaybeHash = b""  # SHA-256 of the claim; empty: it was made with its secret
    claim_by: Seconds = 0.0
    digest: MaybeHash = b""  # SHA-256 of the secret; empty: it is claimed


class Minted(Body, frozen=True, kw_only=True):
    """An issuer's word that a key was claimed, and with which secret. It says nothing of what the key may."""

    digest: Hash
    at: Seconds


class Revocation(Body, frozen=True, kw_only=True):
    """An API key that is not valid any more. Nothing takes it back."""

    reason: Text = ""
    at: Seconds


class Opaque(msgspec.Struct, frozen=True):
    """The body of a kind this release does not know."""


class _Spec(NamedTuple):
    body: type[Body]
    subject: Callable[[Record, Body], bool]  # whether the record's id is proven by the record itself
    ranked: bool = False
    audience: Audience = Audience.PUBLIC


def _of_owner(record: Record, _: Body) -> bool:
    return record.key.id == key_id(record.key.owner)


def _slot_of_owner(record: Record, _: Body) -> bool:
    return record.key.id.startswith(key_id(record.key.owner) + "/")


def _of_member(record: Record, body: Body) -> bool:
    return isinstance(body, Membership) and record.key.id == key_id(body.member)


def _of_node(record: Record, body: Body) -> bool:
    return isinstance(body, Certificate) and record.key.id == key_id(body.node)


def _of_invite(record: Record, body: Body) -> bool:
    return isinstance(body, Invite) and record.key.id == key_id(body.key)


def _of_act(record: Record, body: Body) -> bool:
    return isinstance(body, Act) and record.key.id == f"{ASPECTS[body.verb]}/{body.target}"


def _of_outcome(record: Record, _: Body) -> bool:
    return record.key.id.partition("/")[0] in _ASPECT_NAMES


def _of_key(record: Record, _: Body) -> bool:
    return _KEY_ID.match(record.key.id) is not None


def _of_any(_record: Record, _body: Body) -> bool:
    return True  # whose it is, is known only with the record it refers to


def _of_other(record: Record, _: Body) -> bool:
    return record.key.id != key_id(record.key.owner)


def _height(record: Record, _: Body) -> bool:
    return record.key.id.isdigit() and int(record.key.id) == record.order.seq


_ASPECT_NAMES = frozenset(ASPECTS.values())
_KEY_ID = re.compile(r"k_[A-Za-z0-9]{1,64}\Z")

KINDS: dict[str, _Spec] = {
    "charter": _Spec(Charter, _height),
    "invite": _Spec(Invite, _of_invite),
    "membership": _Spec(Membership, _of_member),
    "acceptance": _Spec(Acceptance, _of_any),
    "certificate": _Spec(Certificate, _of_node),
    "node": _Spec(Node, _of_owner, ranked=True),
    "replica": _Spec(Replica, _slot_of_owner, ranked=True),
    "doubt": _Spec(Doubt, _of_other),
    "act": _Spec(Act, _of_act),
    "outcome": _Spec(Outcome, _of_outcome),
    "key": _Spec(KeyGrant, _of_key, audience=Audience.ACCOUNTS),
    "mint": _Spec(Minted, _of_key, audience=Audience.ACCOUNTS),
    "revocation": _Spec(Revocation, _of_key, audience=Audience.ACCOUNTS),
}
_DECODERS = {kind: msgspec.json.Decoder(spec.body) for kind, spec in KINDS.items()}
_KIND_OF = {spec.body: kind for kind, spec in KINDS.items()}


def kind_of(body: Body) -> str:
    """The kind a body belongs to."""
    return _KIND_OF[type(body)]


def audience_of(body: Body) -> Audience:
    """The shelf a body's kind lies on."""
    return KINDS[kind_of(body)].audience


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
    if record.key.audience is not spec.audience:
        raise RecordRefused(f"{record.key.kind}: wrong shelf")
    if not spec.subject(record, body):
        raise RecordRefused(f"{record.key.kind}: the id is not its owner's to write")
    if record.order.rank > (Rank.LEFT if spec.ranked else 0):
        raise RecordRefused(f"{record.key.kind}: no such rank")
    return body
