"""`tela whoami`: every fabric, key and file of an account, also when one of them is broken."""

import asyncio
import json
import os

import msgspec
import pytest

from console import credentials
from console.commands.whoami import whoami
from console.sealed import encode, held_by_agent, seal
from registry.charter import admit, offer
from registry.errors import TelaError
from registry.kinds import Acceptance, Invite, Membership
from tests.console.founded import ENTROPY, account, config, fabric, node_here, run, run_beside
from tests.console.test_agent_keys import add, needs_ssh, ssh_agent
from tests.node.control import HUB, Shown, about
from tests.people import FABRIC, MEMBER, OPERATOR, Person

__all__ = ["account"]
GUEST = Person(20)


def told(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def the(account, *words):
    (row,) = told(run(whoami, "--json", *words))["fabrics"]
    return row


def test_the_member_the_operator_and_their_files_are_shown(account):
    held = fabric(account)
    row = the(account)
    assert (row["name"], row["id"], row["charter"], row["trouble"]) == ("testfabric", FABRIC.hex(), 0, [])
    assert (row["member"]["id"], row["member"]["provider"], row["member"]["until"]) == (MEMBER.id, "lab", 4e9)
    assert row["operator"]["may"] == [{"verbs": ["fleet", "keys", "placement", "owner"], "scope": "fabric"}]
    assert row["credentials"] == [
        {"path": str(held.member_path), "mode": "0600"},
        {"path": str(held.operator_path), "mode": "0600"},
    ]


def test_people_read_the_same(account):
    held = fabric(account)
    text = run(whoami).stdout
    for said in ("fabric     testfabric", MEMBER.id, OPERATOR.id, "may fleet, keys, placement, owner (fabric)"):
        assert said in text
    assert held.member_path.name in text
    assert "no node of yours runs here" in text


def test_no_secret_is_shown(account):
    fabric(account)
    credentials.keep(config(account), credentials.Credential("https://llm", "k_1", "tela_sk_secret", "laptop"))
    for done in (run(whoami), run(whoami, "--json")):
        for secret in (MEMBER.seed.hex(), OPERATOR.seed.hex(), "tela_sk_secret"):
            assert secret not in done.output


def test_an_api_key_is_shown_with_its_door_and_file(account):
    fabric(account)
    path = credentials.keep(config(account), credentials.Credential("https://llm", "k_1", "s", "laptop"))
    assert told(run(whoami, "--json"))["api_keys"] == [
        {"id": "k_1", "label": "laptop", "url": "https://llm", "path": str(path), "mode": "0600"}
    ]
    assert "k_1 laptop, for https://llm" in run(whoami).stdout


@pytest.mark.parametrize(
    ("sealed", "locked", "said"),
    [
        (seal("ada", OPERATOR.seed, b"x", ENTROPY), True, "locked; its passphrase"),
        (seal("ada", OPERATOR.seed, b"", ENTROPY), False, "unlocked: no passphrase"),
        (held_by_agent("ada", OPERATOR.key), True, "SSH_AUTH_SOCK is not set"),
    ],
)
def test_whether_the_operator_key_is_locked_is_said(account, sealed, locked, said):
    fabric(account).save_operator_key(encode(sealed))
    operator = the(account)["operator"]
    assert operator["locked"] is locked
    assert said in operator["state"]


@needs_ssh
def test_a_key_in_a_real_agent_is_said_to_be_there(account, monkeypatch):
    held = fabric(account)
    with ssh_agent(account) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        held.save_operator_key(encode(held_by_agent("ada", OPERATOR.key)))
        add(path, account, "other")
        assert "does not hold it" in the(account)["operator"]["state"]


def test_a_key_the_charter_does_not_name_may_nothing(account):
    fabric(account, operator=Person(5), who="kim")
    assert the(account)["operator"]["may"] == []
    assert "may NOTHING by charter 0" in run(whoami).stdout


def test_a_membership_of_an_invite_ends_days_after_a_hub_last_saw_it(account):
    invite = Invite(key=GUEST.key, provider="chem", roles=("worker",), accept_by=1e9, days=10, max_nodes=1)
    body = Membership(member=MEMBER.key, provider="chem", roles=("worker",), not_after=None, max_nodes=1)
    records = [offer(invite, OPERATOR.key, OPERATOR.sign), admit(body, GUEST.key, GUEST.sign)]
    held = fabric(account)
    held.save_records([held.records()[0], *records])
    row = the(account)["member"]
    assert (row["accepted"], row["until"]) == (False, None)
    assert "NOT ACCEPTED" in run(whoami).stdout
    word = HUB.write(Acceptance(member=MEMBER.key, at=1e9, renewed=1.5e9), GUEST.id, seq=1)
    held.save_records([*held.records(), word])
    assert the(account)["member"]["until"] == 1.5e9 + 10 * 86_400


def test_a_broken_file_is_trouble_and_the_rest_is_shown(account):
    held = fabric(account)
    held.member_path.chmod(0o644)
    done = run(whoami)
    assert done.exit_code == 0
    assert "chmod 600" in done.stdout
    assert OPERATOR.id in done.stdout
    (trouble,) = the(account)["trouble"]
    assert "can be read by others" in trouble["text"]
    (held.path / "records").write_bytes(b"nonsense")
    assert "is broken" in run(whoami).stdout


def test_every_fabric_is_shown_unless_one_is_named(account, monkeypatch):
    fabric(account)
    fabric(account, name="other", operator=None)
    assert [row["name"] for row in told(run(whoami, "--json"))["fabrics"]] == ["other", "testfabric"]
    assert the(account, "--fabric", "other")["operator"] is None
    monkeypatch.setenv("TELA_FABRIC", "other")
    assert the(account)["name"] == "other"


def test_without_a_fabric_it_says_what_founds_or_joins_one(account):
    done = run(whoami)
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "no_fabric"
    for way in ("tela init", "tela join", "tela demo"):
        assert way in done.exception.hint


def test_who_only_calls_models_is_shown_the_key_all_the_same(account):
    credentials.keep(config(account), credentials.Credential("https://llm", "k_1", "s"))
    done = run(whoami)
    assert "k_1, for https://llm" in done.stdout
    assert isinstance(done.exception, TelaError)


def test_a_node_here_is_named_and_knows_until_when(account, monkeypatch):
    fabric(account)
    shown = Shown()
    shown.source = shown.source._replace(about=lambda: msgspec.structs.replace(about(), member=MEMBER.id))

    async def play():
        async with node_here(account, shown, os.environ):
            return await run_beside(whoami, "--json")

    (row,) = told(asyncio.run(play()))["fabrics"]
    assert row["node"]["name"] == "host10@lab"
