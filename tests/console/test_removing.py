"""Removing an operator: whom they let in and what they granted is taken over, or is said to end."""

import asyncio
import os

import msgspec
import pytest

from console import removing
from console.commands.operators import operators
from registry.accounts import key_rows
from registry.charter import VERBS
from registry.errors import TelaError
from registry.kinds import Act, Invite, KeyGrant, Operator
from registry.replica import Replica
from registry.validity import standing
from tests.console.founded import account, fabric, node_here, run, run_beside
from tests.node.control import HUB, NOW, WORKER, Shown, about
from tests.people import (
    FABRIC,
    FOUNDING,
    OPERATOR,
    Person,
    acceptance,
    act_record,
    certificate,
    invite,
    key_grant,
    membership,
    minted,
    node_record,
    revocation,
    successor,
)

__all__ = ["account"]
KIM, LEE = Person(5), Person(6)  # operators beside the founder
PASS, PASS2, OPEN = Person(30), Person(31), Person(32)  # keys of invites
GUEST, SECOND, THIRD = Person(40), Person(41), Person(42)  # members
GUEST_NODE = Person(50)
ADA = Operator(key=OPERATOR.key, name="ada", verbs=VERBS)


def charter(*verbs, ada=VERBS, scope="fabric", of=FOUNDING.charter):
    return successor(
        of,
        Operator(key=KIM.key, name="kim", verbs=verbs, scope=scope),  # first, so that of two equal keys kim's counts
        Operator(key=OPERATOR.key, name="ada", verbs=ada),
        hubs=(HUB,),
    )


def invited(key, member, *, by=KIM, provider="lab"):
    """A member made of an invite and accepted by the hub."""
    return (
        invite(key, by=by, provider=provider),
        membership(member, by=key, not_after=None, provider=provider),
        acceptance(key, member, by=HUB, at=NOW, renewed=NOW),
    )


def both(*records, verbs=("owner", "keys", "fleet"), **options):
    return Shown(charter(*verbs, **options.pop("charter", {})), *records, **options)


def beside(account, shown, *words):
    async def play():
        async with node_here(account, shown, os.environ):
            return await run_beside(operators, *words)

    return asyncio.run(play())


def done(account, shown, *words):
    found = beside(account, shown, "remove", "kim", "--yes", *words)
    assert found.exit_code == 0, found.output
    return found


def failed(found):
    assert isinstance(found.exception, TelaError), found.output
    return found.exception


def judged(shown):
    return standing(shown.registry, FABRIC, NOW)


def rows(shown):
    return key_rows(shown.registry, judged(shown))[0]


def names(shown):
    in_force = judged(shown).in_force
    assert in_force is not None
    return [each.name for each in in_force.current.charter.operators]


def test_members_keep_their_standing(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), certificate(GUEST_NODE, by=GUEST), node_record(GUEST_NODE, member=GUEST))
    before = judged(shown)
    assert GUEST.key in before.admissions
    said = done(account, shown)
    after = judged(shown)
    assert names(shown) == ["ada"]
    assert after.admissions[GUEST.key] == before.admissions[GUEST.key]._replace(by=OPERATOR.key)
    assert after.grants == before.grants
    assert f"taken over from kim: 1 invite: {PASS.id}" in said.stdout


def test_without_it_they_would_end(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST))
    said = done(account, shown, "--void")
    assert GUEST.key not in judged(shown).admissions
    assert "1 member ends" in said.stderr
    assert "taken over" not in said.stdout


def test_nothing_stops_counting_in_between(account):
    """Every question between two writes finds the member in, for what is taken over comes before the charter."""
    fabric(account)
    shown = both(*invited(PASS, GUEST), key_grant(by=KIM, digest=b"d" * 32))
    replica, kinds = Replica(), []
    for entry in shown.registry:
        replica.apply(entry.record)
    publish = shown.source.publish

    def step(records):
        for record in records:
            replica.apply(record)
            kinds.append(record.key.kind)
            now = standing(replica, FABRIC, NOW)
            assert GUEST.key in now.admissions
            assert "k_1" in key_rows(replica, now)[0]
        return publish(records)

    shown.source = shown.source._replace(publish=step)
    shown.app = type(shown.app)(shown.source)
    done(account, shown)
    assert kinds[-1] == "charter"
    assert set(kinds) == {"invite", "key", "charter"}


def test_keys_still_count_with_who_claimed_them_and_for_what(account):
    fabric(account)
    shown = both(
        key_grant("k_1", by=KIM, user="u", project="p", models=("m",), claim=b"c" * 32, claim_by=NOW + 9),
        minted("k_1", by=HUB, digest=b"e" * 32, at=NOW),
        key_grant("k_2", by=KIM, digest=b"f" * 32, expires_at=NOW + 9),
    )
    before = rows(shown)
    said = done(account, shown)
    after = rows(shown)
    for name in ("k_1", "k_2"):
        same = before[name]._replace(by=OPERATOR.key, record=after[name].record)
        assert after[name] == same
    assert "taken over from kim: 2 keys: k_1, k_2" in said.stdout


def test_a_key_that_is_over_is_left_alone(account):
    fabric(account)
    shown = both(
        key_grant("k_1", by=KIM, digest=b"1" * 32, expires_at=NOW - 1000),
        key_grant("k_2", by=KIM, digest=b"2" * 32),
        revocation("k_2", by=OPERATOR),
        key_grant("k_3", by=KIM, claim=b"c" * 32, claim_by=NOW - 1000),
    )
    assert "taken over" not in done(account, shown).stdout


def test_a_key_they_revoked_stays_revoked(account):
    fabric(account)
    shown = both(key_grant("k_1", digest=b"1" * 32), revocation("k_1", by=KIM))
    assert rows(shown)["k_1"].revoked
    said = done(account, shown)
    assert rows(shown)["k_1"].revoked
    assert "1 revocation of keys: k_1" in said.stdout


def test_with_void_a_key_they_revoked_is_said_to_be_valid_again(account):
    fabric(account)
    shown = both(
        key_grant("k_1", digest=b"1" * 32), revocation("k_1", by=KIM), key_grant("k_2", by=KIM, digest=b"2" * 32)
    )
    said = done(account, shown, "--void")
    assert "1 key ends; 1 revoked key is valid again" in said.stderr


def test_a_node_they_evicted_stays_out(account):
    fabric(account)
    shown = both(act_record("evict", WORKER, by=KIM, at=NOW - 50, reason="mining"))
    assert WORKER.id in judged(shown).evicted
    said = done(account, shown)
    after = judged(shown)
    assert WORKER.id in after.evicted
    taken = after.acts[f"evict/{WORKER.id}"]
    assert (taken.record.key.owner, taken.act.at, taken.act.reason) == (OPERATOR.key, NOW - 50, "mining")
    assert f"1 order: evict {WORKER.id}" in said.stdout


def test_what_they_lifted_stays_lifted(account):
    fabric(account)
    shown = both(act_record("evict", WORKER, seq=1), act_record("readmit", WORKER, by=KIM, seq=2))
    done(account, shown)
    assert WORKER.id not in judged(shown).evicted


def test_a_restart_is_not_ordered_twice(account):
    fabric(account)
    shown = both(act_record("restart", WORKER, by=KIM))
    assert "taken over" not in done(account, shown).stdout
    assert [body.verb for _, body in shown.registry.of_kind("act") if isinstance(body, Act)] == ["restart"]


def test_a_member_they_revoked_stays_revoked(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST, by=OPERATOR), act_record("revoke", GUEST, by=KIM))
    assert GUEST.key not in judged(shown).admissions
    done(account, shown)
    assert GUEST.key not in judged(shown).admissions


def test_members_whom_they_signed_for_directly_stay(account):
    fabric(account)
    shown = both(membership(THIRD, by=KIM))
    done(account, shown)
    assert THIRD.key in judged(shown).admissions


def test_an_invite_that_nobody_used_yet_still_can_be_and_is_named(account):
    fabric(account)
    shown = both(invite(OPEN, by=KIM), invite(PASS, by=KIM, accept_by=NOW - 1000))
    said = done(account, shown)
    assert f"1 invite, not used yet (tela operators revoke ID takes one back): {OPEN.id}" in said.stdout
    assert PASS.id not in said.stdout
    shown.apply(*invited(OPEN, GUEST)[1:])
    assert GUEST.key in judged(shown).admissions


def test_what_another_owner_signed_too_needs_no_third_word(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), invite(PASS, by=OPERATOR), invite(OPEN, by=KIM), invite(OPEN, by=OPERATOR))
    assert "taken over" not in done(account, shown).stdout
    assert GUEST.key in judged(shown).admissions


def test_an_invite_of_the_remover_for_the_same_key_that_is_narrower_gives_way(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), invite(PASS, by=OPERATOR, roles=("observer",), seq=7))
    done(account, shown)
    assert GUEST.key in judged(shown).admissions


RELAY = Person(60)
CHAIN = (  # a hub that is only a member of theirs accepted somebody whom the founder invited
    *invited(PASS, GUEST),
    certificate(RELAY, by=GUEST),
    invite(PASS2),
    membership(SECOND, by=PASS2, not_after=None),
    acceptance(PASS2, SECOND, by=RELAY, at=NOW, renewed=NOW),
)


def test_whom_their_members_hub_let_in_stays(account):
    fabric(account)
    shown = both(*CHAIN)
    assert SECOND.key in judged(shown).admissions
    done(account, shown)
    assert SECOND.key in judged(shown).admissions


def test_whom_their_members_hub_let_in_is_counted_among_those_who_end(account):
    fabric(account)
    assert "2 members end" in done(account, both(*CHAIN), "--void").stderr


def test_taking_one_verb_away_takes_over_what_needed_it(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), key_grant(by=KIM, digest=b"1" * 32))
    said = done(account, shown, "--verbs", "keys")
    assert "1 key: k_1" in said.stdout
    assert "invite" not in said.stdout
    assert judged(shown).admissions[GUEST.key].by == KIM.key


def test_an_owner_of_a_provider_is_taken_over_from_too(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST, provider="chem"), verbs=("owner",), charter={"scope": "provider:chem"})
    done(account, shown)
    assert judged(shown).admissions[GUEST.key].provider == "chem"


def test_more_than_a_node_takes_at_once_are_taken_over(account):
    fabric(account)
    shown = both(*(key_grant(f"k_{at}", by=KIM, digest=at.to_bytes(32, "big")) for at in range(1, 80)))
    assert "79 keys" in done(account, shown).stdout
    assert len(rows(shown)) == 79


def test_what_was_taken_over_is_not_listed_as_refused(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), invite(PASS2, by=LEE))
    done(account, shown)
    listed = [line for line in beside(account, shown, "list").stdout.splitlines() if line.startswith("REFUSED")]
    assert [line.split()[2] for line in listed] == [PASS2.id]


# --- what cannot be


def test_who_may_give_no_keys_takes_none_over_and_changes_nothing(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), key_grant(by=KIM, digest=b"1" * 32), charter={"ada": ("owner",)})
    before = len(shown.registry)
    error = failed(beside(account, shown, "remove", "kim", "--yes"))
    assert error.code == "not_entitled"
    assert "tela operators grant ada --verbs keys" in error.hint
    assert "k_1" in error.message
    assert len(shown.registry) == before


def test_nobody_takes_over_from_themselves(account):
    fabric(account, operator=KIM, who="kim")
    shown = both(*invited(PASS, GUEST))
    error = failed(beside(account, shown, "remove", "kim", "--yes"))
    assert "another owner removes them" in error.hint
    assert names(shown) == ["kim", "ada"]


def without_accounts(*records):
    shown = both(*records, accounts=False)
    shown.source = shown.source._replace(about=lambda: msgspec.structs.replace(about(), accounts=False))
    shown.app = type(shown.app)(shown.source)
    return shown


def test_where_keys_are_not_held_it_says_where_they_are(account):
    fabric(account)
    shown = without_accounts(*invited(PASS, GUEST))
    error = failed(beside(account, shown, "remove", "kim", "--yes"))
    assert error.code == "no_accounts"
    assert "none could be looked at" in error.message
    assert "repeat it on host10@lab" in error.hint
    assert names(shown) == ["kim", "ada"]


def test_where_keys_are_not_held_the_other_verbs_can_be_removed(account):
    fabric(account)
    shown = without_accounts(*invited(PASS, GUEST))
    done(account, shown, "--verbs", "owner,fleet")
    assert GUEST.key in judged(shown).admissions


def test_where_keys_are_not_held_void_says_that_they_were_not_counted(account):
    fabric(account)
    said = done(account, without_accounts(*invited(PASS, GUEST)), "--void")
    assert "1 member ends; keys that kim granted, if any, end too" in said.stderr


def test_without_a_node_an_owner_is_not_removed_unless_it_all_may_end(account):
    fabric(account, records=[charter("owner")])
    error = failed(run(operators, "remove", "kim", "--yes"))
    assert error.code == "no_node"
    assert "--void" in error.hint
    assert "could not be looked at" in run(operators, "remove", "kim", "--yes", "--void").stderr


def test_void_without_a_terminal_says_the_numbers_before_it_refuses(account):
    fabric(account)
    shown = both(*invited(PASS, GUEST), key_grant(by=KIM, digest=b"1" * 32))
    error = failed(beside(account, shown, "remove", "kim", "--void"))
    assert "1 member ends; 1 key ends" in error.message
    assert names(shown) == ["kim", "ada"]


def test_what_the_node_refuses_stops_before_the_charter(account, monkeypatch):
    fabric(account)
    shown = both(*invited(PASS, GUEST))
    late = act_record("revoke", PASS, at=NOW)  # somebody else takes the invite back at that moment
    hand = removing._hand_over

    def slow(control, records):
        shown.apply(late)
        hand(control, records)

    monkeypatch.setattr(removing, "_hand_over", slow)
    assert failed(beside(account, shown, "remove", "kim", "--yes")).code == "not_taken_over"
    assert names(shown) == ["kim", "ada"]


@pytest.mark.parametrize("kind", [Invite, KeyGrant])
def test_what_is_taken_over_says_the_very_same(account, kind):
    fabric(account)
    shown = both(invite(OPEN, by=KIM, days=3), key_grant(by=KIM, label="x", digest=b"1" * 32))
    done(account, shown)
    bodies = [entry.body for entry in shown.registry if isinstance(entry.body, kind)]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
