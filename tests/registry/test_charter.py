import pytest

from registry.charter import Chartered, charter_in_force, found, may, offer, succeed
from registry.ids import key_id
from registry.kinds import Charter, Hub, Invite, Operator, read_body
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
    assert may(charter, OPERATOR.key, "owner")
    assert not may(charter, MEMBER.key, "owner")


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


# --- scopes


def charter_of(*operators):
    return Charter(name="f", operators=operators, hubs=())


@pytest.mark.parametrize(("scope", "provider", "project", "counts"), [
    ("fabric", "", "", True), ("fabric", "p", "j", True),
    ("provider:p", "p", "", True), ("provider:p", "q", "", False), ("provider:p", "", "", False),
    ("provider:p", "", "p", False), ("project:j", "", "j", True), ("project:j", "j", "", False),
    ("project:j", "", "k", False), ("project:j", "", "", False),
])  # fmt: skip
def test_a_verb_reaches_as_far_as_its_scope(scope, provider, project, counts):
    charter = charter_of(Operator(key=MEMBER.key, name="op", verbs=("fleet",), scope=scope))
    assert may(charter, MEMBER.key, "fleet", provider=provider, project=project) == counts
    assert not may(charter, MEMBER.key, "keys", provider=provider, project=project)
    assert not may(charter, OPERATOR.key, "fleet", provider=provider, project=project)


def test_one_key_may_have_several_scopes():
    entries = (("provider:p", ("fleet",)), ("provider:q", ("owner",)))
    charter = charter_of(*(Operator(key=MEMBER.key, name="op", verbs=verbs, scope=at) for at, verbs in entries))
    assert may(charter, MEMBER.key, "fleet", provider="p")
    assert not may(charter, MEMBER.key, "fleet", provider="q")
    assert may(charter, MEMBER.key, "owner", provider="q")


# --- succession

RECOVERY, REMOVED = Person(7), Person(8)


def heir_of(of, by, *operators, name="next", recovery=RECOVERY.key):
    body = read_body(of)
    assert isinstance(body, Charter)
    named = tuple(Operator(key=each.key, name="op", verbs=("owner",)) for each in operators)
    new = Charter(name=name, operators=named, hubs=(), recovery=recovery)
    return succeed(Chartered(of, body), new, by.key, by.sign)


def followed(founding, *records):
    charters = [Chartered(record, read_body(record)) for record in (founding.charter, *records)]
    return charter_in_force(founding.fabric_id, charters)


RECOVERABLE = found("f", "ada", OPERATOR.key, OPERATOR.sign, recovery=RECOVERY.key)


def test_a_founding_charter_says_what_it_was_given():
    hub = Hub(key=MEMBER.key, urls=("ws://h:1",))
    made = found("f", "ada", OPERATOR.key, OPERATOR.sign, (hub,), issuers=(MEMBER.key,), recovery=RECOVERY.key)
    body = read_body(made.charter)
    assert isinstance(body, Charter)
    assert (body.hubs, body.issuers, body.recovery) == ((hub,), (MEMBER.key,), RECOVERY.key)
    assert may(body, OPERATOR.key, "keys")


def test_a_successor_names_what_it_follows():
    heir = heir_of(RECOVERABLE.charter, OPERATOR, OPERATOR)
    body = read_body(heir)
    assert isinstance(body, Charter)
    assert (heir.key.id, heir.order.seq, body.prev) == ("1", 1, RECOVERABLE.fabric_id)
    verdict = followed(RECOVERABLE, heir)
    assert verdict.current.record == heir
    assert [each.name for each in verdict.former] == ["f"]


def test_the_recovery_key_may_write_a_successor():
    heir = heir_of(RECOVERABLE.charter, RECOVERY, MEMBER)
    assert followed(RECOVERABLE, heir).current.record == heir


def test_no_key_at_all_is_no_recovery_key():
    heir = heir_of(FOUNDING.charter, RECOVERY, MEMBER)
    assert followed(FOUNDING, heir).current.record == FOUNDING.charter


def test_an_owner_of_one_provider_writes_no_successor():
    limited = succeed(
        Chartered(RECOVERABLE.charter, read_body(RECOVERABLE.charter)),
        charter_of(Operator(key=MEMBER.key, name="op", verbs=("owner",), scope="provider:p")),
        OPERATOR.key,
        OPERATOR.sign,
    )
    assert followed(RECOVERABLE, limited, heir_of(limited, MEMBER, MEMBER)).current.record == limited


def test_the_recovery_key_settles_a_fork_by_a_removed_owner():
    both = heir_of(RECOVERABLE.charter, OPERATOR, OPERATOR, REMOVED)
    out = heir_of(both, RECOVERY, OPERATOR)
    takeovers = [heir_of(both, REMOVED, REMOVED, name=f"take{n}") for n in range(8)]  # some hash is the smallest
    for takeover in takeovers:
        verdict = followed(RECOVERABLE, takeover, both, out, heir_of(takeover, REMOVED, REMOVED))
        assert verdict.current.record == out
        assert verdict.forks == (takeover,)


def test_a_removed_owner_gets_nowhere_from_what_followed():
    out = heir_of(heir_of(RECOVERABLE.charter, OPERATOR, OPERATOR, REMOVED), OPERATOR, OPERATOR)
    both = heir_of(RECOVERABLE.charter, OPERATOR, OPERATOR, REMOVED)
    assert followed(RECOVERABLE, both, out, heir_of(out, REMOVED, REMOVED)).current.record == out


def test_a_successor_at_another_height_is_none():
    body = read_body(heir_of(RECOVERABLE.charter, OPERATOR, OPERATOR))
    skipped = OPERATOR.write(body, "5", seq=5)
    assert followed(RECOVERABLE, skipped).current.record == RECOVERABLE.charter


def test_an_invite_lies_where_its_key_says():
    body = Invite(key=MEMBER.key, provider="p", roles=(), accept_by=1.0)
    record = offer(body, OPERATOR.key, OPERATOR.sign, seq=3)
    assert (record.key.kind, record.key.id, record.order.seq) == ("invite", key_id(MEMBER.key), 3)
    assert read_body(record) == body
