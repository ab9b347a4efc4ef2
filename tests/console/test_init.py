"""`tela init`: what a new admin is told, what lies where afterwards, and that a refusal leaves nothing behind."""

import json
import shlex

import pytest

from console import signer as signer_module
from console.cli import cli
from console.commands.init import init
from console.recovery import recovery_seed
from console.sealed import read, unseal
from node.fabricdir import find
from node.identity import identify
from node.statedir import StateDir, boot_id, process_start
from registry.clock import LEEWAY_S
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Charter, read_body
from registry.record import seed_signer
from registry.replica import Replica
from registry.validity import standing
from tests.console.founded import account, config, run
from tests.console.test_agent_keys import add, needs_ssh, ssh_agent

__all__ = ["account"]
HUB_URL = "ws://login1.example.org:7481"
USUAL = ("lab", "--listen", "0.0.0.0:7481", "--advertise", HUB_URL, "--operator", "ada")


def founded(account, *words):
    done = run(init, *USUAL, "--no-passphrase", *words)
    assert done.exit_code == 0, done.output
    return done, find(config(account), "lab")


def replica_of(fabric):
    replica = Replica()
    for record in fabric.records():
        replica.apply(record)
    return replica


def charter_of(fabric):
    body = read_body(next(each for each in fabric.records() if each.key.kind == "charter"))
    assert isinstance(body, Charter)
    return body


def slot_of(account, fabric, host):
    pid = 1
    return StateDir.claim(
        account / "state", fabric.name, host, slot=0, boot_id=boot_id(), pid=pid, start=process_start(pid)
    )


def recovery_in(text):
    lines = [line.strip() for line in text.splitlines() if line.count("-") == 7 and line.strip().isupper()]
    return recovery_seed(" ".join(lines))


def test_the_founder_is_operator_and_accepted_member_at_once(account):
    _, fabric = founded(account, "--host", "login1")
    now = next(float(json.loads(each.body)["at"]) for each in fabric.records() if each.key.kind == "acceptance")
    judged = standing(replica_of(fabric), fabric.fabric_id, now + LEEWAY_S)
    seed = fabric.member_seed()
    assert seed is not None
    admission = judged.admissions[seed_signer(seed)[0]]
    assert (admission.provider, judged.refused) == ("lab", ())
    assert {"worker", "ingress", "relay"} <= admission.roles
    (operator,) = charter_of(fabric).operators
    assert (operator.name, operator.scope) == ("ada", "fabric")
    assert "owner" in operator.verbs


def test_this_host_is_hub_and_issuer_and_its_key_is_where_start_looks(account):
    _, fabric = founded(account, "--host", "login1")
    state = slot_of(account, fabric, "login1")
    mine = identify(fabric, state, ("ingress", "relay"), now=2e9)
    charter = charter_of(fabric)
    assert [(hub.key, hub.urls) for hub in charter.hubs] == [(mine.key, (HUB_URL,))]
    assert charter.issuers == (mine.key,)
    assert mine.acceptance is not None
    assert [(hub.key, hub.urls) for hub in fabric.hubs()] == [(mine.key, (HUB_URL,))]


def test_the_slot_is_free_afterwards(account):
    _, fabric = founded(account, "--host", "login1")
    assert slot_of(account, fabric, "login1").slot == 0


def test_every_secret_is_for_its_owner_alone(account):
    founded(account)
    for path in (*config(account).rglob("*"), *(account / "state").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_recovery_key_is_shown_once_and_fits_the_charter(account):
    done, fabric = founded(account)
    key, _ = seed_signer(recovery_in(done.stderr))
    assert charter_of(fabric).recovery == key
    assert "Write it down" in done.stderr
    assert not any(line.count("-") == 7 for line in done.stdout.splitlines())


def test_it_ends_with_the_next_three_commands_filled_in(account):
    done, _ = founded(account, "--http", "127.0.0.1:8080", "--url", "https://llm.example.org")
    start, invite, join = done.stdout.splitlines()
    assert shlex.split(start) == [
        "tela", "start", "--role", "ingress,relay", "--listen", "0.0.0.0:7481", "--advertise", HUB_URL,
        "--http", "127.0.0.1:8080", "--url", "https://llm.example.org", "--detach",
    ]  # fmt: skip
    assert invite == "tela invite --provider lab --out invite.txt"
    assert join.startswith("tela join @invite.txt && tela start --process ")


def test_the_commands_that_come_next_are_commands(account):
    done, _ = founded(account, "--host", "login1", "--slot", "3")
    for line in done.stdout.splitlines():
        for words in (shlex.split(each) for each in line.split("&&")):
            command = cli.get_command(None, words[1])
            command.make_context(words[1], words[2:]).close()


def test_of_several_fabrics_the_next_commands_name_theirs(account):
    founded(account)
    done = run(init, "two", *USUAL[1:], "--no-passphrase")
    assert all("--fabric two" in line for line in done.stdout.splitlines()[:2])


def test_what_was_made_and_where_is_said(account):
    done, fabric = founded(account, "--host", "login1")
    for said in ("operator.key", "member.key", "state/lab/login1-0/node.key", HUB_URL, fabric.fabric_id.hex()):
        assert said in done.stderr
    assert "Nothing runs yet" in done.stderr
    assert "NOT sealed" in done.stderr


def test_a_program_gets_it_as_json_without_the_recovery_key(account):
    done, fabric = founded(account, "--json")
    told = json.loads(done.stdout)
    assert told["fabric"] == {"id": fabric.fabric_id.hex(), "name": "lab"}
    assert told["node"]["id"] == key_id(charter_of(fabric).hubs[0].key)
    assert recovery_in(done.stderr)


def test_a_passphrase_file_seals_the_key(account):
    path = account / "pass"
    path.write_text("open sesame\n")
    path.chmod(0o600)
    assert run(init, *USUAL, "--passphrase-file", path).exit_code == 0
    sealed = read(find(config(account), "lab").operator_key() or b"", "")
    assert sealed.how == "passphrase"
    assert seed_signer(unseal(sealed, b"open sesame"))[0] == sealed.key


@pytest.mark.parametrize(
    ("typed", "code"),
    [(["one", "two"], "wrong_passphrase"), ([""], "usage"), (["one", "one"], None)],
)
def test_a_passphrase_is_typed_twice(account, monkeypatch, typed, code):
    monkeypatch.setattr("console.commands.sealing._is_terminal", lambda: True)
    monkeypatch.setattr(signer_module, "ask_passphrase", lambda prompt: typed.pop(0).encode())
    done = run(init, *USUAL)
    assert getattr(done.exception, "code", 0) == (code or 0)
    assert config(account).joinpath("fabrics").exists() == (code is None)


@needs_ssh
def test_a_key_of_the_ssh_agent_founds_a_fabric(account, monkeypatch):
    with ssh_agent(account) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        add(path, account, "ada")
        done = run(init, *USUAL, "--ssh-agent")
    assert done.exit_code == 0, done.output
    sealed = read(find(config(account), "lab").operator_key() or b"", "")
    assert (sealed.how, charter_of(find(config(account), "lab")).operators[0].key) == ("ssh-agent", sealed.key)


def refused(account, *words):
    done = run(init, *words)
    assert isinstance(done.exception, TelaError), done.output
    assert not list(account.rglob("*.key"))
    return done.exception


def test_without_a_terminal_it_says_how_to_give_a_passphrase(account):
    error = refused(account, *USUAL)
    assert error.code == "usage"
    for way in ("--passphrase-file", "TELA_PASSPHRASE_FILE", "--ssh-agent", "--no-passphrase"):
        assert way in error.hint


def test_every_address_needs_to_be_told_which_one_others_dial(account, monkeypatch):
    monkeypatch.setattr("console.thishost.host_names", lambda: ("login1.example.org", "2001:db8::1"))
    error = refused(account, "lab", "--listen", "0.0.0.0:7481", "--operator", "ada", "--no-passphrase")
    assert error.code == "usage"
    assert "--advertise ws://login1.example.org:7481" in error.hint
    assert "--advertise ws://[2001:db8::1]:7481" in error.hint


@pytest.mark.parametrize(
    "words",
    [
        ("la b", *USUAL[1:]),
        ("../x", *USUAL[1:]),
        ("lab", "--listen", "7481", "--operator", "ada"),
        ("lab", "--listen", "host:0", "--operator", "ada"),
        ("lab", "--listen", "host:99999", "--operator", "ada"),
        (*USUAL, "--advertise", "http://login1:7481"),
        (*USUAL, "--advertise", "ws://0.0.0.0:7481"),
        (*USUAL, "--advertise", "ws://a b"),
        (*USUAL, "--provider", "a@b"),
        (*USUAL, "--url", "ftp://x"),
        (*USUAL[:-1], "a b"),
    ],
)
def test_what_no_record_could_carry_is_refused_before_anything_is_made(account, words):
    assert refused(account, *words, "--no-passphrase").code in {"usage", "bad_name"}


def test_an_address_of_its_own_is_advertised_as_it_is(account):
    done = run(init, "lab", "--listen", "10.1.2.3:7481", "--operator", "ada", "--no-passphrase")
    assert done.exit_code == 0
    assert charter_of(find(config(account), "lab")).hubs[0].urls == ("ws://10.1.2.3:7481",)


def test_a_hub_on_loopback_is_founded_and_said_to_reach_nobody(account):
    done = run(init, "lab", "--listen", "127.0.0.1:7481", "--operator", "ada", "--no-passphrase")
    assert done.exit_code == 0
    assert "Only this host can reach ws://127.0.0.1:7481" in done.stderr


def test_a_door_beyond_this_host_is_said_to_need_tls(account):
    done, _ = founded(account, "--http", "0.0.0.0:7480")
    assert "--tls-cert" in done.stderr


def test_a_name_that_is_taken_changes_nothing(account):
    _, fabric = founded(account)
    before = {path: path.read_bytes() for path in fabric.path.iterdir()}
    done = run(init, *USUAL, "--no-passphrase")
    assert isinstance(done.exception, TelaError)
    assert done.exception.code == "fabric_exists"
    assert {path: path.read_bytes() for path in fabric.path.iterdir()} == before


def test_state_of_an_earlier_fabric_of_that_name_is_not_taken_over(account):
    journal = account / "state" / "lab" / "login1-0" / "journal"
    journal.parent.mkdir(parents=True)
    journal.touch()
    error = refused(account, *USUAL, "--no-passphrase")
    assert error.code == "fabric_exists"
    assert f"mv {account / 'state' / 'lab'}" in error.hint


def test_a_founding_that_broke_off_may_be_done_again(account):
    _, fabric = founded(account, "--host", "login1")
    fabric.path.rename(account / "gone")
    assert run(init, *USUAL, "--no-passphrase", "--host", "login1").exit_code == 0
