"""`tela invite`: what the token gives, where it may be used, and who may not make one."""

import asyncio
import json
import os

from console.commands.invite import invite
from console.tokens import read_token
from node.config import HubAddress
from node.fabricdir import find
from registry.charter import Chartered, succeed
from registry.errors import TelaError
from registry.kinds import Charter, Hub, Operator, read_body
from registry.record import decode
from tests.console.founded import HUB, HUBS, account, config, fabric, node_here, run, run_beside
from tests.node.control import Shown
from tests.people import FOUNDING, OPERATOR, Person

__all__ = ["account"]
LOOPBACK = (HubAddress(key=HUB.key, urls=("ws://127.0.0.1:7481", "ws://[::1]:7481", "ws://localhost:7481")),)
KIM = Person(5)


def token_of(done):
    assert done.exit_code == 0, done.output
    return read_token(done.stdout)


def refused(done):
    assert isinstance(done.exception, TelaError), done.output
    return done.exception


def charter(**fields):
    """A successor of the founding charter, by its operator."""
    body = read_body(FOUNDING.charter)
    assert isinstance(body, Charter)
    current = Chartered(FOUNDING.charter, body)
    return succeed(current, Charter(**{"name": body.name, "operators": body.operators, "hubs": (), **fields}), *signs())


def signs():
    return OPERATOR.key, OPERATOR.sign


def test_the_token_carries_what_it_gives_and_where_to_dial(account):
    fabric(account)
    asked = ("--provider", "chem", "--roles", "worker,observer", "--max-nodes", "8", "--days", "30", "--hours", "2")
    told = token_of(run(invite, *asked))
    body = told.invite
    assert (body.provider, body.roles, body.max_nodes, body.days) == ("chem", ("worker", "observer"), 8, 30)
    assert (told.name, told.hubs, told.door) == ("testfabric", HUBS, "https://llm.example.org")
    assert told.by == "ada"


def test_it_says_until_when_and_how_it_is_used(account):
    fabric(account)
    done = run(invite, "--provider", "chem", "--max-nodes", "1")
    assert "one node at one time for chem, as worker" in done.stderr
    assert "tela join @FILE" in done.stderr
    assert f"tela operators revoke {token_of(done).record.key.id}" in done.stderr


def test_a_file_is_new_and_for_its_owner_alone(account):
    fabric(account)
    path = account / "invite.txt"
    done = run(invite, "--provider", "chem", "--out", path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path.read_text()).invite.provider == "chem"
    assert refused(run(invite, "--provider", "chem", "--out", path)).code == "file_exists"


def test_a_program_gets_it_as_json(account):
    fabric(account)
    told = json.loads(run(invite, "--provider", "chem", "--json").stdout)
    assert read_token(told["token"]).record.key.id == told["id"]
    assert told["hubs"] == ["ws://hub.example.org:7481"]


def test_it_refuses_while_nobody_on_another_host_could_join(account, monkeypatch):
    monkeypatch.setattr("console.thishost.host_names", lambda: ("login1.example.org", "10.1.2.3"))
    fabric(account, hubs=LOOPBACK)
    error = refused(run(invite, "--provider", "chem"))
    assert error.code == "loopback_hubs"
    assert "--hub ws://login1.example.org:7481 or --hub ws://10.1.2.3:7481" in error.hint
    assert "--advertise" in error.hint
    assert "tela operators hub" in error.hint


def test_on_one_host_loopback_may_be_said_to_do(account):
    fabric(account, hubs=LOOPBACK)
    assert token_of(run(invite, "--provider", "chem", "--loopback")).hubs == LOOPBACK


def test_an_address_may_be_named_for_one_invite(account):
    fabric(account, hubs=LOOPBACK)
    told = token_of(run(invite, "--provider", "chem", "--hub", "login1:7481"))
    assert [(hub.key, hub.urls) for hub in told.hubs] == [(HUB.key, ("ws://login1:7481",))]


def test_of_several_hubs_the_one_meant_is_named(account):
    other = Hub(key=Person(30).key, urls=("ws://b.example.org:1",))
    fabric(account, records=[charter(hubs=(other,))])
    assert run(invite, "--provider", "chem", "--hub", "ws://c:1").exit_code == 2
    told = token_of(run(invite, "--provider", "chem", "--hub", f"{Person(30).id}=ws://c:1"))
    assert told.hubs[0] == HubAddress(key=Person(30).key, urls=("ws://c:1",))
    assert told.hubs[1] == HUBS[0]


def test_without_any_hub_it_refuses(account):
    fabric(account, hubs=())
    assert refused(run(invite, "--provider", "chem")).code == "loopback_hubs"


def test_an_unknown_role_is_named(account):
    fabric(account)
    error = refused(run(invite, "--provider", "chem", "--roles", "worker,boss"))
    assert (error.code, "'boss'" in error.message) == ("usage", True)


def test_whose_nodes_they_are_has_to_be_said(account):
    fabric(account)
    assert run(invite).exit_code == 2


def test_an_owner_of_one_provider_invites_for_that_one_alone(account):
    kim = Operator(key=KIM.key, name="kim", verbs=("owner",), scope="provider:chem")
    body = read_body(FOUNDING.charter)
    assert isinstance(body, Charter)
    fabric(account, operator=KIM, who="kim", records=[charter(operators=(*body.operators, kim))])
    assert token_of(run(invite)).invite.provider == "chem"
    error = refused(run(invite, "--provider", "bio"))
    assert error.code == "not_entitled"
    assert "ada may" in error.hint


def test_roles_that_reach_beyond_a_provider_are_for_an_owner_of_the_whole_fabric(account):
    kim = Operator(key=KIM.key, name="kim", verbs=("owner",), scope="provider:chem")
    body = read_body(FOUNDING.charter)
    assert isinstance(body, Charter)
    fabric(account, operator=KIM, who="kim", records=[charter(operators=(*body.operators, kim))])
    error = refused(run(invite, "--roles", "worker,relay,ingress", "--out", account / "f"))
    assert (error.code, "as relay, ingress:" in error.message) == ("not_entitled", True)
    assert "ada" in error.hint
    assert not (account / "f").exists()
    assert token_of(run(invite, "--roles", "worker,observer")).invite.roles == ("worker", "observer")


def test_whoever_may_not_invite_makes_nothing(account):
    fabric(account, operator=KIM)
    assert refused(run(invite, "--provider", "chem", "--out", account / "f")).code == "not_entitled"
    assert not (account / "f").exists()


def test_without_a_fabric_it_says_what_to_do(account):
    error = refused(run(invite, "--provider", "chem"))
    assert error.code == "no_fabric"
    for way in ("tela init", "tela join", "tela demo"):
        assert way in error.hint


def test_a_node_here_spreads_it_and_knows_the_newest_charter(account):
    fabric(account)
    newer = charter(hubs=(Hub(key=Person(30).key, urls=("ws://b.example.org:1",)),))

    async def play():
        async with node_here(account, Shown(newer), os.environ) as shown:
            told = token_of(await run_beside(invite, "--provider", "chem"))
            assert shown.registry.get(told.record.key) is not None
            return told

    told = asyncio.run(play())
    assert [record.raw for record in told.charters] == [FOUNDING.charter.raw, newer.raw]
    assert Person(30).key in {hub.key for hub in told.hubs}
    kept = find(config(account), "testfabric").records()
    assert newer.raw in {record.raw for record in kept}
    assert decode(told.record.raw) == told.record
