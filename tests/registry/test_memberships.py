import pytest

from registry.replica import Replica
from registry.validity import standing
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    acceptance,
    act_record,
    certificate,
    invite,
    membership,
    operator,
    successor,
)

MOST, DAY_S = 2**64 - 1, 86_400.0
HUB, NODE, INVITE, ANN, STRANGER = Person(20), Person(21), Person(30), Person(40), Person(99)
OWNER_A, OWNER_B = Person(50), Person(51)  # owners of one provider each
CHARTER = successor(
    FOUNDING.charter,
    operator(OPERATOR, "fleet", "owner"),
    operator(OWNER_A, "owner", scope="provider:a"),
    operator(OWNER_B, "owner", "fleet", scope="provider:b"),
    hubs=(HUB,),
)


def verdict(*records, now=0.0):
    replica = Replica()
    for record in (FOUNDING.charter, CHARTER, *records):
        replica.apply(record)
    return standing(replica, FABRIC, now)


def reasons(view):
    return {(record.key.kind, why) for record, why in view.refused}


def joined(*, by=OPERATOR, provider="lab", offered=None, **taken):
    """An invite, the membership ANN made of it, and the word of the charter's hub."""
    return (
        invite(INVITE, by=by, provider=provider, **(offered or {})),
        membership(ANN, by=INVITE, **{"provider": provider, "not_after": None, **taken}),
        acceptance(INVITE, ANN, by=HUB),
    )


def test_an_invite_signed_by_somebody_else_admits_nobody():
    view = verdict(*joined(by=STRANGER))
    assert view.admissions == {}
    assert ("invite", "signed by nobody who may invite for this provider") in reasons(view)
    assert ("membership", "signed by no owner of this fabric") in reasons(view)


def test_a_providers_owner_invites_for_that_provider_only():
    assert verdict(*joined(by=OWNER_A, provider="a")).admissions[ANN.key].by == OWNER_A.key
    assert verdict(*joined(by=OWNER_A, provider="b")).admissions == {}


def test_an_operator_without_the_verb_may_not_invite():
    charter = successor(CHARTER, operator(OPERATOR, "owner"), operator(STRANGER, "fleet", "keys"), hubs=(HUB,))
    assert verdict(charter, *joined(by=STRANGER)).admissions == {}


@pytest.mark.parametrize("said", [
    {"provider": "other"}, {"roles": ("worker", "launcher")}, {"roles": ()}, {"max_nodes": 3}, {"max_nodes": 1},
    {"not_after": 1.0},
])  # fmt: skip
def test_a_member_has_what_the_invite_says_whatever_its_membership_does(said):
    given = {"offered": {"roles": ("worker",), "max_nodes": 2, "days": 5}, "roles": ("worker",), "max_nodes": 2}
    plain = verdict(*joined(**given)).admissions[ANN.key]
    assert (plain.provider, plain.roles, plain.max_nodes) == ("lab", {"worker"}, 2)
    assert plain.not_after == 5 * DAY_S
    again = membership(ANN, by=INVITE, seq=MOST, **{"not_after": None, **said})  # whoever has the token signs with it
    assert verdict(*joined(**given), again).admissions[ANN.key] == plain


def test_whoever_else_holds_a_used_token_cannot_take_its_member_out():
    mine = (*joined(), certificate(NODE, by=ANN, roles=("worker",)))
    for said in ({"roles": (), "not_after": 1.0}, {"provider": "elsewhere"}):
        thief = membership(ANN, by=INVITE, seq=MOST, **{"not_after": None, **said})
        assert verdict(*mine, thief, now=500.0).grants == verdict(*mine, now=500.0).grants != {}


# --- what one provider's owner gives

EVERY_ROLE = ("worker", "ingress", "relay", "accounts", "launcher", "placer", "observer")


def test_an_owner_for_one_provider_gives_no_role_that_reaches_beyond_it():
    signed = membership(ANN, by=OWNER_A, provider="a", roles=EVERY_ROLE)
    invited = joined(by=OWNER_A, provider="a", offered={"roles": EVERY_ROLE})
    for records in ((signed,), invited):
        view = verdict(*records, certificate(NODE, by=ANN, roles=EVERY_ROLE))
        assert view.grants[NODE.id, ANN.key].roles == {"worker", "observer"}
        assert NODE.key not in view.accepters
    wide = membership(ANN, provider="a", roles=EVERY_ROLE)
    assert verdict(wide, certificate(NODE, by=ANN, roles=EVERY_ROLE)).grants[NODE.id, ANN.key].roles == set(EVERY_ROLE)


def test_the_whole_fabrics_invite_comes_before_a_providers_for_the_same_key():
    wide = joined(provider="a", offered={"roles": EVERY_ROLE})
    for days in range(1, 9):  # whatever their hashes
        for provider, by in (("a", OWNER_A), ("b", OWNER_B)):
            also = invite(INVITE, by=by, provider=provider, days=days, roles=("worker",))
            said = membership(ANN, by=INVITE, provider="b", not_after=None, seq=2)
            for records in ((also,), (also, said)):
                assert verdict(*wide, *records).admissions[ANN.key] == verdict(*wide).admissions[ANN.key]


def test_an_invite_for_an_owners_own_key_changes_nothing_about_what_that_one_signed():
    signed = (membership(ANN, provider="a"), certificate(NODE, by=ANN))
    also = invite(OPERATOR, by=OWNER_A, provider="a", roles=())
    assert verdict(*signed, also).grants == verdict(*signed).grants != {}


def test_anothers_invite_of_the_same_key_gives_no_more_time_to_use_it():
    late = (invite(INVITE, accept_by=100.0), joined()[1], acceptance(INVITE, ANN, by=HUB, at=500.0))
    assert verdict(*late, invite(INVITE, by=OWNER_B, provider="b")).admissions == {}


def test_an_owner_has_to_say_until_when():
    view = verdict(membership(ANN, not_after=None))
    assert view.admissions == {}
    assert ("membership", "it says no end, and no invite does") in reasons(view)


def test_anothers_invite_of_the_same_key_takes_nothing_away():
    mine = joined(by=OWNER_A, provider="a")
    theirs = [invite(INVITE, by=OWNER_B, provider="b", days=days) for days in range(1, 9)]  # whatever their hashes
    for each in theirs:
        assert verdict(*mine, each).admissions[ANN.key] == verdict(*mine).admissions[ANN.key]


# --- revoked


@pytest.mark.parametrize("target", [INVITE, ANN])
def test_a_revoked_invite_or_member_counts_nowhere(target):
    view = verdict(*joined(), certificate(NODE, by=ANN), act_record("revoke", target))
    assert (view.admissions, view.grants) == ({}, {})
    assert ("membership", "revoked") in reasons(view)
    assert f"revoke/{target.id}" in view.acts


def test_an_owners_own_member_can_be_revoked():
    view = verdict(membership(ANN), act_record("revoke", ANN))
    assert view.admissions == {}


@pytest.mark.parametrize("by", [OWNER_B, STRANGER, ANN, HUB])
def test_only_an_owner_of_its_provider_revokes(by):
    view = verdict(
        *joined(by=OWNER_A, provider="a"), act_record("revoke", INVITE, by=by), act_record("revoke", ANN, by=by)
    )
    assert ANN.key in view.admissions
    assert not view.acts


def test_a_providers_owner_revokes_its_own():
    view = verdict(*joined(provider="a"), act_record("revoke", INVITE, by=OWNER_A))
    assert view.admissions == {}
    assert f"revoke/{INVITE.id}" in view.acts


def test_an_invite_that_is_revoked_before_it_is_known_never_counts():
    assert verdict(act_record("revoke", INVITE), *joined()).admissions == {}


def test_a_revoked_member_does_not_free_the_invite():
    second = membership(STRANGER, by=INVITE, not_after=None)
    view = verdict(*joined(), second, act_record("revoke", ANN))
    assert view.admissions == {}
    assert ("membership", "its invite was accepted by another key") in reasons(view)


def test_one_providers_owner_cannot_shut_out_anothers_member():
    mine = joined(by=OWNER_A, provider="a")
    grab = membership(ANN, by=OWNER_B, provider="b")
    view = verdict(*mine, grab, act_record("revoke", ANN, by=OWNER_B))
    assert view.admissions[ANN.key].provider == "a"
    assert f"revoke/{ANN.id}" not in view.acts  # or every door would turn them away
    assert f"revoke/{ANN.id}" in verdict(*mine, grab, act_record("revoke", ANN, by=OWNER_A)).acts


def test_a_member_cannot_get_out_of_a_revocation_with_an_unused_invite_of_another_provider():
    spare = Person(31)
    other = (invite(spare, by=OWNER_B, provider="b"), membership(ANN, by=spare, provider="b", not_after=None))
    view = verdict(*joined(by=OWNER_A, provider="a"), *other, act_record("revoke", ANN, by=OWNER_A))
    assert view.admissions == {}
    assert f"revoke/{ANN.id}" in view.acts


def test_an_operator_that_was_removed_has_invited_nobody():
    invited = joined(by=OWNER_A, provider="a")
    without = successor(CHARTER, operator(OPERATOR, "fleet", "owner"), hubs=(HUB,))
    assert ANN.key in verdict(*invited).admissions
    assert verdict(*invited, without).admissions == {}
    signed_again = invite(INVITE, provider="a")  # by an owner who is still there
    assert ANN.key in verdict(*invited, without, signed_again).admissions
