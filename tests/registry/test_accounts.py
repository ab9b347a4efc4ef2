import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.accounts import key_rows, may_issue
from registry.ids import account_id
from registry.replica import Replica
from registry.validity import nothing_known, standing
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    act_record,
    certificate,
    key_grant,
    membership,
    minted,
    operator,
    revocation,
    successor,
)

INGRESS, WORKER, ISSUER, STRANGER = Person(20), Person(21), Person(22), Person(99)
LEAD_A, LEAD_B = Person(50), Person(51)  # may give keys for one project each
OPERATORS = (
    operator(OPERATOR, "keys", "owner"), operator(LEAD_A, "keys", scope="project:a"),
    operator(LEAD_B, "keys", scope="project:b"),
)  # fmt: skip
CHARTER = successor(FOUNDING.charter, *OPERATORS)
NODES = (certificate(INGRESS, roles=("ingress",)), certificate(WORKER, roles=("worker",)))
CLAIM = b"c" * 32
PROJECTS = {LEAD_A: "a", LEAD_B: "b", OPERATOR: ""}


def read(*records, issuers=()):
    charter = successor(FOUNDING.charter, *OPERATORS, issuers=issuers) if issuers else CHARTER
    replica = Replica()
    for record in (FOUNDING.charter, charter, membership(), *NODES, *records):
        replica.apply(record)
    return key_rows(replica, standing(replica, FABRIC, 0.0))


def rows(*records, issuers=()):
    return read(*records, issuers=issuers)[0]


def why(record, *records, issuers=()):
    return [reason for refused, reason in read(record, *records, issuers=issuers)[1] if refused == record]


OFFERED = key_grant(claim=CLAIM, claim_by=100.0, project="a", user="u", models=("m",), label="l")
MADE = key_grant(digest=b"s" * 32)


def test_a_key_made_with_its_secret_counts_at_once():
    row = rows(MADE)["k_1"]
    assert (row.digest, row.claimed_at, row.revoked, row.by) == (b"s" * 32, None, False, OPERATOR.key)


def test_a_claimed_key_has_the_secret_of_the_claimer_and_the_rights_of_the_grant():
    before = rows(OFFERED)["k_1"]
    assert (before.digest, before.claimed_at) == (b"", None)
    row = rows(OFFERED, minted(by=INGRESS, at=7.0))["k_1"]
    assert (row.digest, row.claimed_at) == (b"d" * 32, 7.0)
    assert (row.project, row.user, row.models, row.label) == ("a", "u", ("m",), "l")


@pytest.mark.parametrize("by", [STRANGER, LEAD_B])
def test_a_grant_counts_within_its_signers_scope_only(by):
    grant = key_grant(by=by, project="a", digest=b"s" * 32)
    assert rows(grant) == {}
    assert why(grant) == ["its signer may not give keys for this project"]
    assert rows(key_grant(by=LEAD_A, project="a", digest=b"s" * 32))


def test_a_lead_gives_no_key_without_a_project():
    assert rows(key_grant(by=LEAD_A, digest=b"s" * 32)) == {}


# --- issuers


def test_without_issuers_in_the_charter_an_ingress_may_mint():
    for by, counts in ((INGRESS, True), (WORKER, False), (STRANGER, False), (OPERATOR, False)):
        assert bool(rows(OFFERED, minted(by=by))["k_1"].digest) == counts


def test_the_charters_issuers_mint_and_no_other_ingress_does():
    assert rows(OFFERED, minted(by=ISSUER), issuers=(ISSUER,))["k_1"].digest
    word = minted(by=INGRESS)
    assert rows(OFFERED, word, issuers=(ISSUER,))["k_1"].digest == b""
    assert why(word, OFFERED, issuers=(ISSUER,)) == ["its signer is no issuer"]


def test_an_evicted_issuer_mints_nothing_more_and_what_it_minted_before_stays():
    chief = operator(OPERATOR, "keys", "owner", "fleet")
    charter = successor(FOUNDING.charter, chief, issuers=(ISSUER,))
    evicted = act_record("evict", ISSUER.id, at=50.0)

    def claimed(at):
        replica = Replica()
        for record in (FOUNDING.charter, charter, membership(), OFFERED, evicted, minted(by=ISSUER, at=at)):
            replica.apply(record)
        view = standing(replica, FABRIC, 0.0)
        return bool(key_rows(replica, view)[0]["k_1"].digest), may_issue(view, ISSUER.key, at)

    assert claimed(49.0) == (True, True)
    assert claimed(51.0) == (False, False)


def test_may_issue_says_the_same():
    replica = Replica()
    for record in (FOUNDING.charter, CHARTER, membership(), *NODES):
        replica.apply(record)
    view = standing(replica, FABRIC, 0.0)
    assert may_issue(view, INGRESS.key, 0.0)
    assert not may_issue(view, WORKER.key, 0.0)
    assert not may_issue(nothing_known(), INGRESS.key, 0.0)


def test_an_issuer_gives_no_other_secret_to_a_key_that_has_one():
    word = minted(by=INGRESS)
    assert rows(MADE, word)["k_1"].digest == b"s" * 32
    assert why(word, MADE) == ["no key waits for a claim under this id"]


def test_an_issuer_makes_no_key_and_widens_none():
    assert rows(minted(by=INGRESS)) == {}
    wider = key_grant(by=INGRESS, claim=CLAIM, claim_by=100.0)
    row = rows(OFFERED, wider, minted(by=INGRESS))["k_1"]
    assert (row.models, row.by) == (("m",), OPERATOR.key)
    assert why(wider, OFFERED) == ["its signer may not give keys for this project"]


def test_a_claim_counts_until_its_time_with_leeway():
    assert rows(OFFERED, minted(by=INGRESS, at=220.0))["k_1"].digest
    late = minted(by=INGRESS, at=221.0)
    assert rows(OFFERED, late)["k_1"].digest == b""
    assert why(late, OFFERED) == ["it was claimed too late"]


def test_of_two_claims_the_earlier_one_counts():
    first = minted(by=ISSUER, at=1.0, digest=b"1" * 32)
    second = minted(by=INGRESS, at=2.0, digest=b"2" * 32)
    row = rows(OFFERED, second, first, issuers=(ISSUER, INGRESS))["k_1"]
    assert (row.digest, row.claimed_at) == (b"1" * 32, 1.0)
    assert why(second, OFFERED, first, issuers=(ISSUER, INGRESS)) == ["it was claimed before"]


# --- revoked


@pytest.mark.parametrize(("by", "counts"), [
    (OPERATOR, True), (LEAD_A, True), (INGRESS, True), (LEAD_B, False), (WORKER, False), (STRANGER, False),
])  # fmt: skip
def test_a_key_is_revoked_by_its_operators_and_by_issuers(by, counts):
    assert rows(OFFERED, revocation(by=by))["k_1"].revoked == counts
    if not counts:
        assert why(revocation(by=by), OFFERED) == ["its signer may not revoke this key"]


def test_a_revocation_is_not_taken_back_by_granting_again():
    again = key_grant(claim=CLAIM, claim_by=100.0, project="a", seq=2)
    assert rows(OFFERED, revocation(), again)["k_1"].revoked


# --- two of a kind


@pytest.mark.parametrize(("mine", "copier"), [(LEAD_A, LEAD_B), (LEAD_B, LEAD_A), (OPERATOR, LEAD_A)])
def test_a_copied_id_changes_nothing_about_the_key_that_had_it(mine, copier):
    for number in range(8):  # some hash is smaller, some is greater
        name = account_id(mine.key, bytes((number,)) * 8)
        own = key_grant(name, by=mine, project=PROJECTS[mine], digest=b"s" * 32)
        copy = key_grant(name, by=copier, project=PROJECTS[copier], digest=b"s" * 32, models=())
        assert rows(copy, own)[name].by == mine.key
        assert why(copy, own) == ["another operator's key has this id"]


def test_the_whole_fabrics_operator_has_the_last_word_on_an_id():
    for name in (f"k_{number}" for number in range(8)):
        copy = key_grant(name, by=LEAD_A, project="a", digest=b"s" * 32)
        assert rows(copy, key_grant(name, digest=b"t" * 32))[name].by == OPERATOR.key


@pytest.mark.parametrize(("mine", "copier"), [(LEAD_A, LEAD_B), (LEAD_B, LEAD_A), (OPERATOR, LEAD_A)])
def test_a_copied_digest_takes_no_claimed_key_over(mine, copier):
    own = key_grant("k_5", by=mine, project=PROJECTS[mine], claim=CLAIM, claim_by=100.0)
    claimed = minted("k_5", by=INGRESS, at=7.0, digest=b"s" * 32)
    for name in ("k_1", "k_9"):
        copy = key_grant(name, by=copier, project=PROJECTS[copier], digest=b"s" * 32, models=())
        assert list(rows(copy, own, claimed)) == ["k_5"]
        assert why(copy, own, claimed) == ["another key has this secret"]


def test_of_two_claimed_keys_with_one_secret_the_one_that_was_claimed_first_counts():
    both = [key_grant(name, by=by, project=project, claim=CLAIM, claim_by=100.0) for name, by, project in (
        ("k_1", LEAD_A, "a"), ("k_2", LEAD_B, "b"),
    )]  # fmt: skip
    for first, second in (("k_1", "k_2"), ("k_2", "k_1")):
        words = (minted(first, by=INGRESS, at=1.0), minted(second, by=INGRESS, at=2.0))
        assert list(rows(*both, *words)) == [first]


def test_a_projects_operator_takes_no_key_over_from_the_whole_fabrics():
    for secret in (bytes((number,)) * 32 for number in range(8)):
        mine = key_grant("k_5", digest=secret)
        for name in ("k_1", "k_9"):
            assert list(rows(mine, key_grant(name, by=LEAD_A, project="a", digest=secret))) == ["k_5"]


def test_who_is_named_first_in_the_charter_makes_no_difference():
    shelf = (key_grant("k_1", by=LEAD_A, project="a", digest=b"s" * 32),
             key_grant("k_2", by=LEAD_B, project="b", digest=b"s" * 32))  # fmt: skip

    def counting(*operators):
        replica = Replica()
        for record in (FOUNDING.charter, successor(FOUNDING.charter, *operators), membership(), *NODES, *shelf):
            replica.apply(record)
        return list(key_rows(replica, standing(replica, FABRIC, 0.0))[0])

    assert counting(*OPERATORS) == counting(*reversed(OPERATORS))


SHELF = (
    OFFERED, key_grant("k_2", by=LEAD_A, project="a", digest=b"d" * 32), key_grant(by=LEAD_A, project="a"),
    key_grant("k_3", by=LEAD_B, project="b", claim=CLAIM, claim_by=9.0), minted(by=INGRESS), minted(by=ISSUER),
    minted("k_3", by=INGRESS, at=3.0), minted("k_3", by=ISSUER, at=2.0), revocation("k_2", by=LEAD_B),
    revocation("k_3", by=ISSUER), revocation(by=STRANGER),
)  # fmt: skip


@given(st.permutations(SHELF))
def test_no_order_of_arrival_changes_a_key(records):
    assert read(*records, issuers=(ISSUER, INGRESS)) == read(*SHELF, issuers=(ISSUER, INGRESS))


def test_without_a_charter_no_key_counts():
    replica = Replica()
    replica.apply(MADE)
    assert key_rows(replica, standing(replica, FABRIC, 0.0)) == ({}, [])
