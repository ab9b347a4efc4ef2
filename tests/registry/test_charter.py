from registry.charter import Chartered, charter_in_force, holds
from registry.kinds import Charter, Operator
from registry.replica import Replica
from registry.validity import standing
from tests.people import FABRIC, FOUNDING, MEMBER, OPERATOR, Person, certificate, membership, registry_of

NODE = Person(20)


def successor(name, of, by=OPERATOR, *, operators=(OPERATOR,)):
    body = Charter(
        name=name,
        prev=of.order.hash,
        operators=tuple(Operator(key=each.key, name="op", verbs=("owner",)) for each in operators),
        hubs=(),
    )
    seq = of.order.seq + 1
    return by.write(body, str(seq), seq=seq)


def in_force(*records):
    replica = Replica()
    for record in (FOUNDING.charter, *records):
        replica.apply(record)
    return charter_in_force(FABRIC, [Chartered(record, body) for record, body in replica.of_kind("charter")])


def test_the_founding_charter_names_its_operator():
    charter = in_force().current.charter
    assert holds(charter, OPERATOR.key, "owner")
    assert not holds(charter, MEMBER.key, "owner")


def test_without_the_founding_charter_nothing_is_in_force():
    assert charter_in_force(FABRIC, []) is None
    assert standing(Replica(), FABRIC, 0.0).grants == {}


def test_an_owners_successor_is_followed_and_a_strangers_is_not():
    heir = successor("second", FOUNDING.charter)
    stranger = successor("stolen", FOUNDING.charter, by=MEMBER)
    assert in_force(heir, stranger).current.charter.name == "second"


def test_a_removed_operator_cannot_follow_on():
    handed_over = successor("second", FOUNDING.charter, operators=(MEMBER,))
    late = successor("third", handed_over, by=OPERATOR)
    assert in_force(handed_over, late).current.charter.name == "second"


def test_a_fork_is_decided_alike_and_shown():
    other = Person(3)
    handed = successor("second", FOUNDING.charter, operators=(OPERATOR, other))
    one, two = successor("a", handed), successor("b", handed, by=other)
    verdict = in_force(two, handed, one)
    assert verdict == in_force(one, two, handed)
    assert len(verdict.forks) == 1


def test_the_chain_grants_a_node_its_members_provider_and_common_roles():
    registry = registry_of(certificate(NODE, roles=("worker", "placer")))
    grant = standing(registry, FABRIC, 0.0).grants[NODE.id, MEMBER.key]
    assert (grant.provider, grant.roles) == ("lab", {"worker"})


def test_order_of_arrival_does_not_matter():
    records = [FOUNDING.charter, membership(), certificate(NODE)]
    for order in (records, records[::-1]):
        replica = Replica()
        for record in order:
            replica.apply(record)
        assert (NODE.id, MEMBER.key) in standing(replica, FABRIC, 0.0).grants


def test_what_its_signer_was_not_entitled_to_counts_nowhere_and_is_shown():
    stranger = Person(9)
    registry = registry_of(
        membership(stranger, by=stranger),
        certificate(NODE, by=stranger),
        certificate(Person(21), not_after=5.0),
    )
    verdict = standing(registry, FABRIC, 1000.0)
    assert verdict.grants == {}
    reasons = sorted(reason for _, reason in verdict.refused)
    assert reasons == [
        "certificate expired",
        "signed by no member of this fabric",
        "signed by no owner of this fabric",
    ]


def test_an_expiry_is_honoured_with_leeway():
    registry = registry_of(certificate(NODE, not_after=1000.0))
    assert (NODE.id, MEMBER.key) in standing(registry, FABRIC, 1119.0).grants
    assert (NODE.id, MEMBER.key) not in standing(registry, FABRIC, 1121.0).grants
    assert standing(registry, FABRIC, 0.0).valid_until == 1120.0


def test_an_expired_membership_takes_its_nodes_with_it():
    replica = Replica()
    for record in (FOUNDING.charter, membership(not_after=10.0), certificate(NODE)):
        replica.apply(record)
    assert standing(replica, FABRIC, 1000.0).grants == {}


def test_no_more_nodes_than_the_membership_allows_and_the_first_ones_stay():
    nodes = [Person(30 + n) for n in range(3)]
    replica = Replica()
    for record in (FOUNDING.charter, membership(max_nodes=2)):
        replica.apply(record)
    for at, node in enumerate(nodes):
        replica.apply(certificate(node, seq=at + 1))
    assert standing(replica, FABRIC, 0.0).grants.keys() == {(nodes[0].id, MEMBER.key), (nodes[1].id, MEMBER.key)}
