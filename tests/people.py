"""Keys, fabrics and records for tests: everything is made from small integers, nothing is random."""

from dataclasses import dataclass, field

from registry.acts import subject
from registry.charter import Chartered, admit, certify, found, offer, succeed
from registry.ids import key_id
from registry.kinds import (
    Acceptance,
    Act,
    Body,
    Certificate,
    Charter,
    Doubt,
    Hub,
    Invite,
    KeyGrant,
    Membership,
    Minted,
    Node,
    Offer,
    Operator,
    Replica,
    Revocation,
    audience_of,
    encode_body,
    kind_of,
    read_body,
)
from registry.lifecycle import Rank
from registry.record import Draft, Record, Sign, seal, seed_signer
from registry.replica import Replica as Registry

FAR_S = 4e9  # long after any test's clock


@dataclass(frozen=True)
class Person:
    """A key pair made from a number."""

    number: int
    seed: bytes = field(init=False)
    key: bytes = field(init=False)
    sign: Sign = field(init=False)

    def __post_init__(self):
        seed = self.number.to_bytes(32, "big")
        key, sign = seed_signer(seed)
        object.__setattr__(self, "seed", seed)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "sign", sign)

    @property
    def id(self) -> str:
        return key_id(self.key)

    def write(self, body: Body, subject: str, *, run=0, rank=Rank.JOIN, seq=0) -> Record:
        draft = Draft(kind_of(body), subject, encode_body(body), audience_of(body), run=run, rank=rank, seq=seq)
        return seal(draft, self.key, self.sign)


OPERATOR = Person(1)
MEMBER = Person(2)


def membership(
    member: Person = MEMBER,
    *,
    by=OPERATOR,
    not_after=FAR_S,
    max_nodes=100,
    roles=("worker", "ingress", "relay"),
    provider="lab",
    seq=1,
):
    body = Membership(member=member.key, provider=provider, roles=roles, not_after=not_after, max_nodes=max_nodes)
    return admit(body, by.key, by.sign, seq=seq)


def invite(
    key: Person,
    *,
    by=OPERATOR,
    provider="lab",
    roles=("worker", "ingress", "relay"),
    accept_by=FAR_S,
    days=90,
    max_nodes=100,
    seq=1,
):
    """An operator's invite for whoever holds `key`; a membership of it is `membership(..., by=key, not_after=None)`."""
    body = Invite(key=key.key, provider=provider, roles=roles, accept_by=accept_by, days=days, max_nodes=max_nodes)
    return offer(body, by.key, by.sign, seq=seq)


def acceptance(key: Person, member: Person, *, by: Person, at=0.0, renewed=None, seq=1):
    """A hub's word that it saw a membership of `member` made with the invite `key`."""
    body = Acceptance(member=member.key, at=at, renewed=at if renewed is None else renewed)
    return by.write(body, key.id, seq=seq)


def act_record(verb, target: Person | str, *, by=OPERATOR, run=0, seq=1, at=0.0, reason=""):
    name = target if isinstance(target, str) else target.id
    return by.write(Act(verb=verb, target=name, run=run, at=at, reason=reason), subject(verb, name), seq=seq)


def key_grant(key="k_1", *, by=OPERATOR, seq=1, **fields):
    return by.write(KeyGrant(**fields), key, seq=seq)


def minted(key="k_1", *, by: Person, digest=b"d" * 32, at=0.0, seq=1):
    return by.write(Minted(digest=digest, at=at), key, seq=seq)


def revocation(key="k_1", *, by=OPERATOR, at=0.0, seq=1):
    return by.write(Revocation(at=at), key, seq=seq)


def operator(person: Person, *verbs, scope="fabric"):
    return Operator(key=person.key, name=f"op{person.number}", verbs=verbs, scope=scope)


def successor(of: Record, *operators: Operator, by=OPERATOR, hubs=(), issuers=(), recovery=b"", name="testfabric"):
    """A charter that follows another one."""
    body = read_body(of)
    assert isinstance(body, Charter)
    named = tuple(Hub(key=hub.key, urls=(f"ws://127.0.0.1:{7000 + hub.number}",)) for hub in hubs)
    issuing = tuple(issuer.key for issuer in issuers)
    new = Charter(name=name, operators=operators, hubs=named, issuers=issuing, recovery=recovery)
    return succeed(Chartered(of, body), new, by.key, by.sign)


def certificate(node: Person, *, by=MEMBER, not_after=FAR_S, roles=("worker", "ingress", "relay"), seq=1):
    return certify(Certificate(node=node.key, roles=roles, not_after=not_after), by.key, by.sign, seq=seq)


def node_record(
    node: Person, *, run=1, rank=Rank.SERVING, seq=1, hub=False, hubs=(), draining=False, host=None, member=MEMBER
):
    body = Node(
        host=host or f"host{node.number}",
        member=member.key,
        roles=("ingress", "relay") if hub else ("worker",),
        urls=(f"ws://127.0.0.1:{7000 + node.number}",) if hub else (),
        hubs=tuple(hubs),
        draining=draining,
    )
    return node.write(body, node.id, run=run, rank=rank, seq=seq)


def replica_record(node: Person, model="m", *, slot="e0", node_run=1, run=1, rank=Rank.SERVING, seq=1, draining=False):
    body = Replica(node_run=node_run, engine="demo", models=(Offer(id=model),), draining=draining)
    return node.write(body, f"{node.id}/{slot}", run=run, rank=rank, seq=seq)


def doubt_record(prober: Person, target: Person, *, run=1, target_seq=1, seq=1, cleared=False):
    body = Doubt(run=run, seq=target_seq, path="link", since=0.0, cleared=cleared)
    return prober.write(body, target.id, seq=seq)


FOUNDING = found("testfabric", "ada", OPERATOR.key, OPERATOR.sign)
FABRIC = FOUNDING.fabric_id


def registry_of(*records: Record, nodes: tuple[Person, ...] = ()) -> Registry:
    """A registry with the founding charter, one membership, certificates for `nodes`, and `records`."""
    registry = Registry()
    for record in (FOUNDING.charter, membership(), *(certificate(node) for node in nodes), *records):
        registry.apply(record)
    return registry
