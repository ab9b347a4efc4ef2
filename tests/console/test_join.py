"""`tela join`: from a token to a membership a hub accepted, and clear words for every way that fails."""

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from console.commands.init import init
from console.commands.invite import invite
from console.commands.join import join
from console.commands.operators import operators
from console.commands.whoami import whoami
from console.joining import FINAL, Joining, refusal_of
from console.tokens import Invitation, read_token, write_token
from gossip.hello import REFUSALS
from node.config import HubAddress
from node.fabricdir import FabricDir, find, names
from node.joining import Knock
from node.places import Places
from registry.charter import offer
from registry.errors import TelaError
from registry.kinds import Acceptance, Invite, Membership, read_body
from registry.record import seed_signer
from tests.console.founded import account, config, fabric, run
from tests.people import FOUNDING, OPERATOR, Person, membership

__all__ = ["account"]
FAR_S = 4e9
GUEST, HUB = Person(20), Person(10)


def invitation(*, key=GUEST, accept_by=FAR_S, url="ws://127.0.0.1:1", roles=("worker",)):
    body = Invite(key=key.key, provider="chem", roles=roles, accept_by=accept_by, max_nodes=8)
    record = offer(body, OPERATOR.key, OPERATOR.sign)
    hubs = (HubAddress(key=HUB.key, urls=(url,)),)
    return Invitation("testfabric", (FOUNDING.charter,), record, body, key.seed, hubs, "https://llm.example.org")


def written(account, **fields):
    path = account / "invite.txt"
    path.write_text(write_token(invitation(**fields)) + "\n")
    return f"@{path}"


def refused(done):
    assert isinstance(done.exception, TelaError), done.output
    return done.exception


def member_of(fabric):
    seed = fabric.member_seed()
    assert seed is not None
    return seed_signer(seed)[0]


def memberships(fabric):
    return [body for record in fabric.records() if isinstance(body := read_body(record), Membership)]


@pytest.fixture
def free_port():
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # bound and not listening: it refuses at once


# --- without a hub


def test_offline_makes_a_membership_of_all_the_invite_gives(account):
    done = run(join, written(account), "--offline")
    assert done.exit_code == 0, done.output
    held = find(config(account), None)
    (body,) = memberships(held)
    assert (body.member, body.provider, body.roles, body.max_nodes) == (member_of(held), "chem", ("worker",), 8)
    assert body.not_after is None
    assert (held.name, held.door) == ("testfabric", "https://llm.example.org")
    assert held.hubs() == invitation().hubs
    assert "no hub has accepted it yet" in done.stderr


def test_the_next_commands_are_on_stdout(account):
    done = run(join, written(account), "--offline")
    assert done.stdout.splitlines()[0] == 'tela start --process "vllm serve MODEL --port {port}"'


def test_stdin_may_hold_the_invite(account):
    assert run(join, "-", "--offline", stdin=write_token(invitation())).exit_code == 0


def test_a_bare_token_on_a_host_of_many_earns_a_warning(account, monkeypatch):
    monkeypatch.setattr("console.thishost.others_here", lambda: 3)
    token = write_token(invitation())
    assert "3 other people have processes on this host" in run(join, token, "--offline").stderr
    assert "warning" not in run(join, written(account), "--offline").stderr


def test_a_bare_token_on_a_host_of_ones_own_earns_none(account, monkeypatch):
    monkeypatch.setattr("console.thishost.others_here", lambda: 0)
    assert "warning" not in run(join, write_token(invitation()), "--offline").stderr


def test_a_file_without_its_sign_is_pointed_out(account):
    done = run(join, written(account).removeprefix("@"))
    assert done.exit_code == 2
    assert "tela join @" in done.output


def test_a_file_that_is_not_there_is_named(account):
    assert "gone.txt" in refused(run(join, "@gone.txt")).message


@pytest.mark.parametrize("word", ["tela_sk_" + "a" * 49, "tela_claim_" + "a" * 49, "tela_invite_AAAA", "nonsense"])
def test_what_is_no_invite_makes_nothing(account, word):
    assert refused(run(join, word)).code == "bad_invite"
    assert names(config(account)) == ()


def test_a_name_that_is_taken_gets_a_number(account):
    FabricDir.create(config(account), "testfabric", [Person(3).write(read_body(FOUNDING.charter), "0")])
    run(join, written(account), "--offline")
    assert names(config(account)) == ("testfabric", "testfabric-2")


def test_a_name_may_be_chosen(account):
    run(join, written(account), "--offline", "--name", "cluster")
    assert names(config(account)) == ("cluster",)


def test_joining_again_uses_the_key_that_is_there(account):
    run(join, written(account), "--offline")
    key = member_of(find(config(account), None))
    assert run(join, written(account), "--offline").exit_code == 0
    held = find(config(account), None)
    assert member_of(held) == key
    assert len(memberships(held)) == 1


def test_offline_a_membership_that_counts_is_not_replaced(account):
    held = fabric(account)
    before = held.records()
    assert refused(run(join, written(account), "--offline")).code == "already_member"
    assert held.records() == before


# --- no hub answers


def test_a_hub_that_does_not_answer_is_named_and_the_key_is_kept(account, free_port):
    url = f"ws://127.0.0.1:{free_port}"
    error = refused(run(join, written(account, url=url), "--wait", "0.3"))
    assert error.code == "unreachable"
    assert url in error.message
    assert "Join again before" in error.hint
    assert member_of(find(config(account), None))


def test_an_invite_that_lapsed_and_no_hub_is_said_to_have_lapsed(account, free_port):
    url = f"ws://127.0.0.1:{free_port}"
    error = refused(run(join, written(account, url=url, accept_by=1e9), "--wait", "0.3"))
    assert "had to be used by 2001-09-09" in error.message
    assert "ask ada for a new one" in error.hint


# --- what hubs may say


@pytest.mark.parametrize(
    "code", sorted(REFUSALS.keys() - {"bad_hello", "too_old", "no_charter", "not_certified", "expired"})
)
def test_every_refusal_that_can_meet_an_invite_has_words_of_its_own(account, code):
    error = refusal_of(code, invitation(), fabric(account), 0.0)
    assert error.code == code
    assert error.hint
    assert not error.message.startswith("the hub refused")


def test_a_refusal_of_a_newer_hub_is_shown_as_it_is(account):
    assert "moon_phase" in refusal_of("moon_phase", invitation(), fabric(account), 0.0).message


class Answers(Joining):
    """Joining, with hubs that answer what a test says."""

    def __init__(self, told, account, *answers):
        super().__init__(told, Places(config(account), account / "state", account / "run"))
        self.answers = list(answers)
        self.lasted = []

    def _knock(self, fabric, seed, records, within_s, lasts_s):
        self.lasted.append(lasts_s)
        answer = self.answers.pop(0)
        return answer(seed) if callable(answer) else answer

    def now(self):
        return self.join(None, offline=False, within_s=1.0)


def accepted(told, seq=1, renewed=2e9):
    def word(seed):
        member, _ = seed_signer(seed)
        body = Acceptance(member=member, at=1e9, renewed=renewed)
        return Knock(HUB.write(body, told.record.key.id, seq=seq), None, 0.0)

    return word


def test_a_hubs_word_is_kept_and_says_until_when(account):
    told = invitation()
    joined = Answers(told, account, accepted(told)).now()
    assert joined.until == 2e9 + 90 * 86_400
    assert any(record.key.kind == "acceptance" for record in joined.fabric.records())


@pytest.mark.parametrize("code", sorted(FINAL))
def test_an_invite_that_will_never_count_leaves_nothing(account, code):
    with pytest.raises(TelaError) as caught:
        Answers(invitation(), account, Knock(None, code, 0.0)).now()
    assert caught.value.code == code
    assert names(config(account)) == ()
    assert not list(config(account).rglob("*.key"))


def test_a_refusal_that_may_pass_keeps_the_key(account):
    with pytest.raises(TelaError):
        Answers(invitation(), account, Knock(None, "not_accepted", 0.0)).now()
    assert names(config(account)) == ("testfabric",)


def test_a_clock_that_is_a_little_off_is_met_with_a_longer_certificate(account):
    told = invitation()
    joining = Answers(told, account, Knock(None, "expired", 0.0), accepted(told))
    assert joining.now().until is not None
    brief, long = joining.lasted
    assert brief < 0 < long


def test_a_clock_that_is_far_off_is_named(account):
    with pytest.raises(TelaError) as caught:
        Answers(invitation(), account, Knock(None, "clock_off", 900.0), Knock(None, "clock_off", 900.0)).now()
    assert "more than ten minutes apart" in caught.value.message


def test_a_new_invite_takes_the_place_of_an_older_membership_once_it_is_accepted(account):
    held, told = fabric(account), invitation(roles=("worker", "ingress"))
    joined = Answers(told, account, accepted(told)).now()
    assert joined.fabric.path == held.path
    (body,) = memberships(held)
    assert (body.member, body.roles) == (member_of(held), ("worker", "ingress"))
    assert held.operator_key() is not None


def test_a_refused_invite_leaves_the_older_membership(account):
    held = fabric(account)
    before = held.records()
    with pytest.raises(TelaError):
        Answers(invitation(), account, Knock(None, "exhausted", 0.0)).now()
    assert held.records() == before
    assert membership().raw in {record.raw for record in before}


# --- a real hub


@contextmanager
def hub(*words):
    """A node in a process of its own; its link address."""
    command = [sys.executable, "-m", "console", "start", "--json", "--listen", "127.0.0.1:0", *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    try:
        events = (json.loads(line) for line in child.stdout)
        yield next(event for event in events if event["event"] == "ready")["links"][0]
    finally:
        child.terminate()
        child.communicate(timeout=30)


def test_a_fabric_is_founded_a_person_invited_and_their_invite_revoked(account, monkeypatch):
    quiet = ("--no-passphrase", "--host", "h1")
    assert run(init, "lab", "--listen", "127.0.0.1:7481", "--operator", "ada", *quiet).exit_code == 0
    with hub("--role", "ingress,relay", "--http", "127.0.0.1:0", "--host", "h1") as url:
        invited = run(invite, "--provider", "chem", "--hub", url, "--loopback", "--max-nodes", "1")
        assert invited.exit_code == 0, invited.output
        name = read_token(invited.stdout).record.key.id
        (account / "invite.txt").write_text(invited.stdout)

        def person(name):
            monkeypatch.setenv("XDG_CONFIG_HOME", str(account / name))
            monkeypatch.setenv("TELA_HOME", str(account / f"{name}-state"))

        runtime = os.environ["XDG_RUNTIME_DIR"]
        person("kim")
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{runtime}/kim")
        joined = run(join, f"@{account}/invite.txt", "--json")
        assert joined.exit_code == 0, joined.output
        assert json.loads(joined.stdout)["accepted"]
        assert "until" in run(whoami).stdout
        person("lee")
        late = refused(run(join, f"@{account}/invite.txt"))
        assert (late.code, names(account / "lee" / "tela")) == ("exhausted", ())
        person("config")
        monkeypatch.setenv("TELA_HOME", str(account / "state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        revoked = run(operators, "revoke", name[:8], "--yes", "--reason", "left the group")
        assert revoked.exit_code == 0, revoked.output
        person("kim")
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{runtime}/kim")
        assert refused(run(join, f"@{account}/invite.txt")).code == "revoked"
