"""Every JSON object of the control API. The published copy is docs/control-api.json; a test holds them together.

Times are unix seconds. Ids are `registry.ids.key_id`, hashes are hex, records are base64. Text that others wrote has
passed `registry.text.clean`. Fields are added, never renamed or removed; readers ignore those they do not know.
"""

from typing import Literal

import msgspec

RankWord = Literal["JOIN", "SERVING", "DOWN", "LEFT"]
ActState = Literal["PENDING", "ACCEPTED", "DONE", "REFUSED"]
Severity = Literal["note", "warning", "error"]


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the API."""


# --- GET /self


class FabricName(_View, frozen=True, kw_only=True):
    """Which fabric."""

    id: str  # hex of the founding charter's hash
    name: str


class SelfNode(_View, frozen=True, kw_only=True):
    """This node as the fabric sees it."""

    id: str
    name: str  # host@provider
    host: str
    slot: int
    run: int
    roles: tuple[str, ...]  # what it does and may do
    rank: RankWord
    draining: bool
    provider: str
    until: float | None  # when its certificate or membership ends; None: it is not entitled to anything now


class Linked(_View, frozen=True, kw_only=True):
    """The other end of a live link."""

    id: str
    name: str
    hub: bool


class HubCount(_View, frozen=True, kw_only=True):
    """How many hubs this node knows of, and to how many it is linked."""

    known: int
    linked: int


class EngineView(_View, frozen=True, kw_only=True):
    """One engine of this node."""

    slot: str
    run: int
    state: RankWord
    phase: str
    pid: int | None  # None: not started here, or not running
    models: tuple[str, ...]
    in_flight: int
    log: str  # path; empty when its output is not ours
    draining: bool


class WarningView(_View, frozen=True, kw_only=True):
    """What somebody should look at."""

    code: str
    severity: Severity
    text: str
    remedy: str


class SelfView(_View, frozen=True, kw_only=True):
    """GET /self: this process."""

    fabric: FabricName
    node: SelfNode
    version: str
    pid: int
    started: float
    state_dir: str
    log: str  # path; empty when it writes to the terminal
    http: str  # where its door listens, as it knows it; empty without one
    url: str  # where people reach its door; empty without one
    links: tuple[str, ...]  # where it accepts links
    linked: tuple[Linked, ...]
    hubs: HubCount
    clock_offset_s: float  # what is added to this host's clock to get fabric time
    engines: tuple[EngineView, ...]
    warnings: tuple[WarningView, ...]
    member: str  # id of the key whose node this is
    accounts: bool  # whether it holds the accounts shelf
    superseded: bool  # another run of its key is alive


# --- GET /view, and the rows of GET /watch


class PlatformView(_View, frozen=True, kw_only=True):
    """What runs a node's host for it."""

    kind: str
    job: str
    partition: str
    ends_at: float | None
    hosts: int


class GpuView(_View, frozen=True, kw_only=True):
    """GPUs of one kind on a host."""

    name: str
    count: int
    memory_b: int
    nvlink: tuple[int, ...]


class NodeView(_View, frozen=True, kw_only=True):
    """One node. In `/watch` its gauges are a table of their own and empty here."""

    id: str
    name: str  # host@provider
    session: str  # host@provider/run
    host: str
    slot: int
    provider: str
    member: str  # id of the key whose node it is
    run: int
    state: RankWord
    draining: bool  # by itself or by an act
    suspect: bool
    evicted: bool
    roles: tuple[str, ...]
    hub: bool
    until: float  # when its grant ends
    url: str
    urls: tuple[str, ...]
    platform: PlatformView | None  # None: an ordinary host
    gpus: tuple[GpuView, ...]
    memory_b: int
    release: str
    started: float
    prev: str
    hubs: tuple[str, ...]  # ids of the hubs it says it is linked to
    gauges: dict[str, int] = {}
    gauges_age_s: float | None = None  # None: nothing was measured, or nobody told us


class CauseView(_View, frozen=True, kw_only=True):
    """Why a replica is down."""

    reason: str
    exit_code: int | None
    signal: int | None


class ReplicaView(_View, frozen=True, kw_only=True):
    """One run of an engine."""

    id: str
    node: str  # id
    name: str  # of the node, host@provider; its id when it is not entitled
    session: str
    slot: str
    run: int
    state: RankWord
    draining: bool
    phase: str
    engine: str
    models: tuple[str, ...]
    cause: CauseView | None  # None: it is not down
    serve_to: tuple[str, ...]  # empty: the whole fabric
    started: float
    routable: bool  # before any question of who calls
    why_not: str  # empty when routable


class ModelView(_View, frozen=True, kw_only=True):
    """One model."""

    id: str
    state: Literal["UP", "DEGRADED", "WAKING", "DOWN"]
    routable: int
    wanted: int
    families: tuple[str, ...]
    context_tokens: int | None


class ActView(_View, frozen=True, kw_only=True):
    """One act: every one that is held, also those that count nowhere."""

    hash: str
    subject: str  # aspect/target
    verb: str
    target: str
    target_name: str
    run: int  # of the target it is meant for; 0: whichever
    by: str  # id of the key that signed it
    by_name: str  # of the operator; else the id
    reason: str
    at: float
    seq: int
    in_force: bool  # it is the one that stands for its subject
    state: ActState  # without asking other hubs: PENDING also when two of them hold it
    detail: str


class RefusedView(_View, frozen=True, kw_only=True):
    """A record that counts nowhere, and why."""

    kind: str
    id: str
    by: str
    why: str
    hash: str


class OperatorView(_View, frozen=True, kw_only=True):
    """One line of the charter."""

    key: str  # hex
    id: str
    name: str
    verbs: tuple[str, ...]
    scope: str


class HubView(_View, frozen=True, kw_only=True):
    """A hub the charter names."""

    key: str  # hex
    id: str
    name: str  # host@provider, or the id while it was not seen
    urls: tuple[str, ...]


class CharterView(_View, frozen=True, kw_only=True):
    """The charter in force."""

    hash: str
    seq: int
    name: str
    record: str  # base64, for whoever signs a successor


class View(_View, frozen=True, kw_only=True):
    """GET /view: everything at one moment."""

    version: int
    epoch: str  # with `version` it is where `/watch` resumes: since=EPOCH:VERSION
    at: float  # fabric time
    fabric: FabricName
    nodes: tuple[NodeView, ...]
    replicas: tuple[ReplicaView, ...]
    models: tuple[ModelView, ...]
    acts: tuple[ActView, ...]
    refused: tuple[RefusedView, ...]  # operators' first, of others some; at most 200
    refused_count: int  # of all there are
    operators: tuple[OperatorView, ...]
    hubs: tuple[HubView, ...]
    forks: tuple[str, ...]  # hashes of successors of the charter that are not followed
    issuers: tuple[str, ...]  # hex keys
    charter: CharterView | None  # None: it is not held yet


class GaugeView(_View, frozen=True, kw_only=True):
    """What a node measures of itself."""

    values: dict[str, int]
    age_s: float


class Delta(_View, frozen=True, kw_only=True):
    """One line of GET /watch: rows that changed, null for those that went. All tables empty is a heartbeat."""

    version: int
    epoch: str
    reset: bool  # forget what was there before: these are all rows
    nodes: dict[str, NodeView | None]
    replicas: dict[str, ReplicaView | None]
    models: dict[str, ModelView | None]
    acts: dict[str, ActView | None]  # by hash
    gauges: dict[str, GaugeView | None]  # by node id


# --- /records, /act


class Publish(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /records: signed records, base64, at most 64."""

    records: tuple[str, ...]


class Published(_View, frozen=True, kw_only=True):
    """What became of one record."""

    hash: str  # empty when it is none
    news: bool  # it was not held before
    counts: bool
    why: str  # why it does not count, or was not taken


class Results(_View, frozen=True, kw_only=True):
    """The answer to POST /records, in the order of the question."""

    results: tuple[Published, ...]


class Held(_View, frozen=True, kw_only=True):
    """GET /records?kind=K[&id=ID]: raw records, base64, for whoever reads them with the registry's own code."""

    records: tuple[str, ...]
    complete: bool  # False: more are held than one answer carries


class ActProgress(_View, frozen=True, kw_only=True):
    """GET /act?hash=HEX: how far an act has come."""

    state: ActState
    detail: str
    hubs: tuple[str, ...]  # names of those known to hold it


# --- /accounts


class KeyView(_View, frozen=True, kw_only=True):
    """One API key. Its digest and its claim are not shown."""

    id: str
    label: str
    user: str
    project: str
    models: tuple[str, ...] | None  # None: every model
    expires_at: float | None
    revoked: bool
    state: Literal["unclaimed", "active", "expired", "revoked", "lapsed"]  # lapsed: not claimed in time
    claimed_at: float | None  # None: not claimed, or made with its secret
    claim_by: float | None  # None: made with its secret
    by: str  # name of the operator who granted it; else the key's id


class Accounts(_View, frozen=True, kw_only=True):
    """GET /accounts."""

    keys: tuple[KeyView, ...]
    refused: tuple[RefusedView, ...]  # as in View
    refused_count: int


# --- /ask, errors


class Ask(_View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /ask: a question as `node.ask.question` encodes it, to a node. The answer's bytes are the body."""

    node: str
    question: str  # base64


class ErrorBody(_View, frozen=True, kw_only=True):
    """What went wrong."""

    code: str
    message: str
    hint: str


class Failure(_View, frozen=True, kw_only=True):
    """The body of every answer with a status of 400 or more."""

    error: ErrorBody


PUBLISHED = (SelfView, View, Delta, Publish, Results, Held, ActProgress, Accounts, Ask, Failure)


def json_schema() -> bytes:
    """The JSON Schema of every object, as docs/control-api.json holds it."""
    _, components = msgspec.json.schema_components(PUBLISHED)
    text = msgspec.json.encode({"$defs": dict(sorted(components.items()))})
    return msgspec.json.format(text, indent=1) + b"\n"
