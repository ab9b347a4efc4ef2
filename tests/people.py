"""Keys, fabrics and records for tests: everything is made from small integers, nothing is random."""

from dataclasses import dataclass, field

from registry.charter import admit, certify, found
from registry.ids import key_id
from registry.kinds import Body, Certificate, Doubt, Membership, Node, Offer, Replica, encode_body, kind_of
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
        draft = Draft(kind_of(body), subject, encode_body(body), run=run, rank=rank, seq=seq)
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
):
    body = Membership(member=member.key, provider="lab", roles=roles, not_after=not_after, max_nodes=max_nodes)
    return admit(body, by.key, by.sign)


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
