"""`tela operators`: successors of the charter, whose word they need, and what counts nowhere."""

import asyncio
import json
import os

import msgspec
import pytest

from console import charters
from console.commands.operators import operators
from console.naming import added, granted, hub_added, hub_removed, issuer_added, removed, scope_of, verbs_of
from console.recovery import recovery_text
from console.revoking import revocable
from node.fabricdir import find
from registry.charter import VERBS, Chartered, charter_in_force, found, offer, succeed
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Act, Charter, Hub, Invite, Operator, read_body
from tests.console.founded import account, config, fabric, node_here, run, run_beside
from tests.node.control import HUB, NOW, WORKER, Shown
from tests.people import FABRIC, FOUNDING, MEMBER, OPERATOR, Person

__all__ = ["account"]
KIM, LEE = Person(5), Person(6)
ADA_LINE = Operator(key=OPERATOR.key, name="ada", verbs=VERBS)
KIM_LINE = Operator(key=KIM.key, name="kim", verbs=("fleet",))
KIM_OWNER = Operator(key=KIM.key, name="kim", verbs=("owner",))
BASE = Charter(name="testfabric", operators=(ADA_LINE,), hubs=())


def refused(what, *args):
    with pytest.raises(TelaError) as caught:
        what(*args)
    return caught.value


def failed(done):
    assert isinstance(done.exception, TelaError), done.output
    return done.exception


def in_force(account):
    held = find(config(account), "testfabric")
    read = [(record, read_body(record)) for record in held.records()]
    found = charter_in_force(FABRIC, [Chartered(record, body) for record, body in read if isinstance(body, Charter)])
    assert found is not None
    return found.current.charter


def lines(charter):
    return [(each.name, each.verbs, each.scope) for each in charter.operators]


def succeeded(charter, *, signer=OPERATOR, of=FOUNDING.charter):
    body = read_body(of)
    assert isinstance(body, Charter)
    return succeed(Chartered(of, body), charter, signer.key, signer.sign)


# --- the lists of a charter


def test_a_new_operator_is_one_more_line():
    assert added(BASE, "kim", KIM.key, ("fleet",), "provider:chem").operators[1:] == (
        Operator(key=KIM.key, name="kim", verbs=("fleet",), scope="provider:chem"),
    )


@pytest.mark.parametrize(("name", "key"), [("ada", KIM.key), ("kim", OPERATOR.key)])
def test_a_name_and_a_key_are_one_operators(name, key):
    assert refused(added, BASE, name, key, ("fleet",), "fabric").code == "operator_exists"


def test_verbs_add_up_in_one_scope_and_stay_apart_in_two():
    charter = added(BASE, "kim", KIM.key, ("placement",), "fabric")
    both = granted(granted(charter, "kim", ("fleet",), "fabric"), "kim", ("keys",), "project:x")
    assert lines(both)[1:] == [("kim", ("fleet", "placement"), "fabric"), ("kim", ("keys",), "project:x")]
    assert refused(granted, both, "kim", ("fleet",), "fabric").code == "nothing_to_do"
    assert "there is ada, kim" in refused(granted, both, "lee", ("fleet",), "fabric").hint


def test_what_is_removed_is_what_was_named():
    charter = granted(added(BASE, "kim", KIM.key, ("fleet", "keys"), "fabric"), "kim", ("keys",), "project:x")
    assert lines(removed(charter, "kim", ("keys",), "fabric"))[1:] == [
        ("kim", ("fleet",), "fabric"),
        ("kim", ("keys",), "project:x"),
    ]
    assert lines(removed(charter, "kim", ("keys",), None))[1:] == [("kim", ("fleet",), "fabric")]
    assert lines(removed(charter, key_id(KIM.key), None, None)) == lines(BASE)
    assert refused(removed, charter, "kim", ("placement",), None).code == "nothing_to_do"


def test_the_last_owner_cannot_be_removed():
    half = granted(added(BASE, "kim", KIM.key, ("fleet",), "fabric"), "kim", ("owner",), "provider:chem")
    assert refused(removed, half, "ada", None, None).code == "last_owner"
    assert refused(removed, half, "ada", ("owner",), None).code == "last_owner"
    assert removed(granted(half, "kim", ("owner",), "fabric"), "ada", None, None).operators[0].name == "kim"


def test_a_hub_gets_new_addresses_in_its_place_and_the_last_one_stays():
    one = hub_added(BASE, HUB.key, ("ws://a:1",))
    two = hub_added(hub_added(one, WORKER.key, ("ws://b:1",)), HUB.key, ("ws://c:1",))
    assert two.hubs == (Hub(key=HUB.key, urls=("ws://c:1",)), Hub(key=WORKER.key, urls=("ws://b:1",)))
    assert refused(hub_removed, hub_removed(two, HUB.key), WORKER.key).code == "last_hub"


def test_an_issuer_is_named_once():
    assert refused(issuer_added, issuer_added(BASE, HUB.key), HUB.key).code == "nothing_to_do"


def test_verbs_and_scopes_are_those_that_exist():
    assert verbs_of(("owner,fleet", "fleet")) == ("fleet", "owner")
    assert scope_of("provider:chem") == "provider:chem"
    for what in ("boss", ""):
        assert refused(verbs_of, (what,)).code == "usage"
    for what in ("chem", "provider:", "provider:a b", "team:x", ""):
        assert refused(scope_of, what).code == "usage"


# --- without a node


def test_a_key_is_made_once_and_shown_again(account):
    held = fabric(account, operator=None)
    first = run(operators, "request", "--operator", "kim", "--no-passphrase")
    assert first.exit_code == 0, first.output
    assert first.stdout == run(operators, "request", "--operator", "kim").stdout
    words = first.stdout.split()
    assert words[:5] == ["tela", "operators", "add", "kim", "--key"]
    assert "(ada)" in first.stderr
    assert held.operator_path.stat().st_mode & 0o777 == 0o600
    assert json.loads(run(operators, "request", "--operator", "kim", "--json").stdout)["key"] == words[5]


def test_what_a_request_prints_an_owner_can_type(account):
    fabric(account)
    done = run(operators, "add", "kim", "--key", KIM.key.hex(), "--verbs", "fleet,keys", "--scope", "provider:chem")
    assert done.exit_code == 0, done.output
    assert lines(in_force(account))[1:] == [("kim", ("fleet", "keys"), "provider:chem")]
    assert "it waits in this account until a node of yours carries it" in done.stderr


def test_a_change_keeps_the_other_records(account):
    held = fabric(account)
    before = held.records()
    run(operators, "add", "kim", "--key", KIM.key.hex())
    assert held.records()[: len(before)] == before
    assert held.member_seed() == MEMBER.seed


@pytest.mark.parametrize("key", ["", "zz", "ab" * 31, "ada"])
def test_a_key_that_is_none_is_refused(account, key):
    fabric(account)
    assert failed(run(operators, "add", "kim", "--key", key)).code == "usage"


def test_whoever_is_no_owner_changes_nothing(account):
    held = fabric(account, operator=KIM, who="kim")
    before = held.records()
    error = failed(run(operators, "add", "lee", "--key", LEE.key.hex()))
    assert error.code == "not_entitled"
    assert "ada" in error.hint
    assert held.records() == before


def test_an_owner_of_a_provider_may_not_change_the_charter(account):
    line = Operator(key=KIM.key, name="kim", verbs=("owner",), scope="provider:chem")
    newer = succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, line)))
    fabric(account, operator=KIM, who="kim", records=[newer])
    assert failed(run(operators, "grant", "kim", "--verbs", "fleet")).code == "not_entitled"


def test_a_removal_without_a_terminal_wants_a_yes(account):
    fabric(account, records=[succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, KIM_LINE)))])
    assert failed(run(operators, "remove", "kim")).code == "usage"
    assert run(operators, "remove", "kim", "--yes").exit_code == 0
    assert lines(in_force(account)) == lines(BASE)


def test_too_many_lines_are_refused_with_the_reason(account):
    many = tuple(Operator(key=Person(100 + at).key, name=f"o{at}", verbs=("fleet",)) for at in range(15))
    fabric(account, records=[succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, *many)))])
    error = failed(run(operators, "add", "kim", "--key", KIM.key.hex()))
    assert error.code == "bad_charter"
    assert "at most 16" in error.hint


def test_the_recovery_key_makes_a_new_owner_when_every_operator_key_is_lost(account):
    recovery, held = Person(9), fabric(account, operator=None)
    founding = found("testfabric", "ada", OPERATOR.key, OPERATOR.sign, recovery=recovery.key)
    held.save_records([founding.charter])
    words = ("add", "kim", "--key", KIM.key.hex(), "--verbs", "owner", "--recovery")
    done = run(operators, *words, stdin=recovery_text(recovery.seed).lower())
    assert done.exit_code == 0, done.output
    shown = json.loads(run(operators, "list", "--json").stdout)
    assert shown["signed_by"] == "the recovery key"
    assert [each["name"] for each in shown["operators"]] == ["ada", "kim"]
    assert failed(run(operators, *words, stdin=recovery_text(LEE.seed))).code in {"operator_exists", "not_entitled"}


def test_hubs_and_issuers_are_named_by_a_node_that_runs_here(account):
    fabric(account)
    for words in (("hub", "add", "host10@lab"), ("issuer", "add", "host10@lab"), ("revoke", "abc", "--yes")):
        error = failed(run(operators, *words))
        assert error.code == "no_node"
        assert "tela start" in error.hint


def test_the_list_without_a_node_says_how_old_it_is(account):
    fabric(account, records=[succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, KIM_LINE)))])
    done = run(operators, "list")
    assert done.exit_code == 0
    assert "charter   1 of testfabric, signed by ada" in done.stdout
    assert [line.endswith("you") for line in done.stdout.splitlines()[1:3]] == [True, False]
    assert "no node of yours runs here" in done.stderr


# Two owners, and what each makes of their charter at the same moment.
BOTH = succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, KIM_OWNER)))


def rivals(count):
    """Successors that the second owner signs."""
    hubs = [Hub(key=HUB.key, urls=(f"ws://h{at}:1",)) for at in range(count)]
    charter = read_body(BOTH)
    assert isinstance(charter, Charter)
    return [succeeded(msgspec.structs.replace(charter, hubs=(hub,)), signer=KIM, of=BOTH) for hub in hubs]


def test_a_fork_is_shown_until_it_is_settled(account):
    charter = read_body(BOTH)
    assert isinstance(charter, Charter)
    one = succeeded(msgspec.structs.replace(charter, issuers=(HUB.key,)), of=BOTH)
    (two,) = rivals(1)
    fabric(account, records=[BOTH, one, two])
    lost = max(one, two, key=lambda record: record.order.hash)
    text = run(operators, "list").stdout
    assert f"FORK      charter 2 {lost.order.hash.hex()[:12]} signed by {'kim' if lost is two else 'ada'}" in text


def test_two_charters_of_one_owner_are_one_register_here_as_on_every_node(account):
    one = succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, KIM_LINE)))
    two = succeeded(msgspec.structs.replace(BASE, hubs=(Hub(key=HUB.key, urls=("ws://a:1",)),)))
    held = fabric(account, records=[one, two])
    shown = Shown(one, two)
    judged = shown.views.at(NOW).standing.in_force
    assert judged is not None
    assert charters.known(held, None).in_force.current.record == judged.current.record


# --- beside a node


def beside(account, shown, *words):
    """One command beside a node."""

    async def play():
        async with node_here(account, shown, os.environ):
            return await run_beside(operators, *words)

    return asyncio.run(play())


def test_a_change_goes_to_the_node_and_into_the_account(account):
    fabric(account)
    shown = Shown()
    done = beside(account, shown, "add", "kim", "--key", KIM.key.hex())
    assert done.exit_code == 0, done.output
    judged = shown.views.at(NOW).standing.in_force
    assert judged is not None
    assert lines(judged.current.charter) == lines(in_force(account))
    assert "waits" not in done.stderr


def test_a_node_of_ours_becomes_hub_and_issuer_by_name(account):
    fabric(account)
    shown = Shown()
    assert beside(account, shown, "hub", "add", "host10@lab").exit_code == 0
    assert beside(account, shown, "hub", "add", "host11", "--url", "login1:7481").exit_code == 0
    assert beside(account, shown, "issuer", "add", HUB.id[:8]).exit_code == 0
    charter = in_force(account)
    assert charter.hubs == (
        Hub(key=HUB.key, urls=(f"ws://127.0.0.1:{7000 + HUB.number}",)),
        Hub(key=WORKER.key, urls=("ws://login1:7481",)),
    )
    assert charter.issuers == (HUB.key,)
    assert beside(account, shown, "issuer", "remove", "host10@lab").exit_code == 0
    assert beside(account, shown, "hub", "remove", WORKER.id[:8]).exit_code == 0
    assert [hub.key for hub in in_force(account).hubs] == [HUB.key]


def test_a_leaf_is_no_hub_without_an_address(account):
    fabric(account)
    assert beside(account, Shown(), "hub", "add", "host11").exit_code == 2


def test_a_node_of_another_fabric_of_that_name_is_not_told(account):
    held = fabric(account)
    held.save_records([found("testfabric", "eve", LEE.key, LEE.sign).charter])
    assert failed(beside(account, Shown(), "list")).code == "other_fabric"


def test_an_act_out_of_scope_is_shown_as_refused(account):
    fabric(account)
    act = KIM.write(Act(verb="evict", target=WORKER.id, at=NOW), f"evict/{WORKER.id}", seq=1)
    done = beside(account, Shown(act), "list")
    assert f"REFUSED   act evict/{WORKER.id}" in done.stdout


def test_another_owner_who_was_faster_is_said(account, monkeypatch):
    fabric(account, records=[BOTH])
    first = min(rivals(64), key=lambda record: record.order.hash)  # of 65 hashes the smallest is hardly ever ours
    shown = Shown(BOTH)
    publish = charters.publish

    def late(control, records):
        shown.apply(first)
        publish(control, records)

    monkeypatch.setattr(charters, "publish", late)
    done = beside(account, shown, "add", "lee", "--key", LEE.key.hex())
    assert failed(done).code == "charter_forked"


INVITED = Invite(key=LEE.key, provider="chem", roles=("worker",), accept_by=4e9)


def test_an_invite_and_a_member_are_revoked_by_the_beginning_of_their_id(account):
    fabric(account)
    shown = Shown(offer(INVITED, OPERATOR.key, OPERATOR.sign))
    for target in (LEE.id, MEMBER.id):
        done = beside(account, shown, "revoke", target[:6], "--yes", "--reason", "left")
        assert done.exit_code == 0, done.output
        assert f"revoke/{target}" in shown.views.at(NOW).standing.acts


def test_a_second_act_names_the_first(account):
    fabric(account)
    shown = Shown(offer(INVITED, OPERATOR.key, OPERATOR.sign))
    for target in (LEE.id, MEMBER.id):
        beside(account, shown, "revoke", target, "--yes")
    acts = {body.target: (record, body) for record, body in shown.registry.of_kind("act") if isinstance(body, Act)}
    hashes = {record.order.hash for record, _ in acts.values()}
    assert {body.prev for _, body in acts.values()} & hashes


def test_whom_nobody_is_called_is_not_revoked(account):
    fabric(account)
    assert failed(beside(account, Shown(), "revoke", "zzz", "--yes")).code == "no_such_member"
    assert failed(beside(account, Shown(), "revoke", "", "--yes")).code == "no_such_member"


def test_an_operator_without_the_verb_revokes_nothing(account):
    fabric(account, operator=KIM, who="kim")
    shown = Shown(succeeded(msgspec.structs.replace(BASE, operators=(ADA_LINE, KIM_LINE))))
    assert failed(beside(account, shown, "revoke", MEMBER.id, "--yes")).code == "not_entitled"
    assert not list(shown.registry.of_kind("act"))


def test_a_revocation_needs_a_node(account):
    held = fabric(account)
    assert refused(revocable, charters.known(held, None), MEMBER.id).code == "no_node"
