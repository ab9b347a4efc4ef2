"""`tela keys`, `tela login` and `tela try`."""

import asyncio
import json
import os

import msgspec
import pytest

from accounting.claims import claim_digest, looks_like_claim, mint_claim
from accounting.keys import digest, looks_valid, mint
from console.accounts import key_states
from console.cli import cli
from console.credentials import Credential, keep, read
from registry.kinds import KeyGrant, Revocation
from tests.console.door import open_door
from tests.console.founded import account, config, fabric, node_here, run, run_beside
from tests.node.control import NOW, Shown, about
from tests.people import key_grant, revocation

__all__ = ["account"]
KEY = mint(b"k" * 32)


def beside(account, *words, shown=None, held=True):
    if held:
        fabric(account)
    shown = shown or Shown()

    async def main():
        async with asyncio.timeout(30.0), node_here(account, shown, os.environ):
            return await run_beside(cli, *words)

    return asyncio.run(main()), shown


def grants(shown):
    return [(record, body) for record, body in shown.registry.of_kind("key") if isinstance(body, KeyGrant)]


# --- create


def test_an_offer_is_a_claim_on_stdout_and_what_to_do_with_it_on_stderr(account):
    done, shown = beside(
        account, "keys", "create", "--for", "kim", "--project", "chem", "--label", "laptop", "--model", "m"
    )
    claim = done.stdout.strip()
    assert looks_like_claim(claim)
    assert f"tela keys claim {claim} --url https://llm.example.org" in done.stderr
    ((_record, body),) = grants(shown)
    assert (body.user, body.project, body.label, body.models) == ("kim", "chem", "laptop", ("m",))
    assert body.claim == claim_digest(claim)
    assert (body.digest, body.claim_by, body.expires_at) == (b"", NOW + 7 * 86_400, NOW + 90 * 86_400)


def test_a_programs_key_is_made_here_and_shown_once(account):
    done, shown = beside(account, "keys", "create", "--show-secret", "--no-expiry", "--json")
    said = json.loads(done.stdout)
    assert looks_valid(said["secret"])
    ((record, body),) = grants(shown)
    assert (body.digest, body.claim, body.expires_at) == (digest(said["secret"]), b"", None)
    assert said["id"] == record.key.id


def test_a_model_nobody_serves_may_be_mistyped(account):
    done, _ = beside(account, "keys", "create", "--model", "n")
    assert done.exit_code == 0
    assert "nobody serves n now" in done.stderr


@pytest.mark.parametrize(
    "words", [("--for", "two words"), ("--project", "a\nb"), ("--model", ""), ("--label", "\x1b[2J")]
)
def test_names_that_no_rule_could_name_are_used_wrongly(account, words):
    done, shown = beside(account, "keys", "create", *words)
    if words[1]:
        assert done.exit_code == 2
        assert words[0] in done.stderr
        assert not grants(shown)


def test_a_node_without_the_accounts_shelf_says_where_to_go(account):
    shown = Shown(accounts=False)
    shown.source = shown.source._replace(about=lambda: msgspec.structs.replace(about(), accounts=False))
    shown.app = type(shown.app)(shown.source)
    done, _ = beside(account, "keys", "create", shown=shown)
    assert done.exit_code == 1
    assert "--role observer,accounts" in done.stderr


# --- list


def test_keys_are_listed_without_those_that_hold_no_more(account):
    shown = Shown(key_grant("k_a", user="kim", digest=b"a" * 32), key_grant("k_b", digest=b"b" * 32), revocation("k_b"))
    lines = beside(account, "keys", "list", shown=shown)[0].stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "USER", "MODELS", "EXPIRES", "BY"]
    assert lines[1].split() == ["k_a", "active", "kim", "all", "never", "ada"]
    assert len(lines) == 2


def test_all_keys_as_json_are_what_the_node_says(account):
    shown = Shown(key_grant("k_b", digest=b"b" * 32), revocation("k_b"))
    (row,) = [
        json.loads(line)
        for line in beside(account, "keys", "list", "--all", "--json", shown=shown)[0].stdout.splitlines()
    ]
    assert (row["id"], row["state"], row["models"]) == ("k_b", "revoked", None)


def test_without_keys_it_says_how_to_offer_one(account):
    done, _ = beside(account, "keys", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "tela keys create" in done.stderr


def test_a_key_that_may_call_nothing_is_told_from_one_that_may_call_all():
    row = {"id": "k", "state": "active", "user": "", "project": "", "label": "", "expires_at": 0.0, "by": "ada"}
    states = key_states([{**row, "models": None}, {**row, "models": []}, {**row, "models": ["a", "b"]}])
    assert [each["models"] for each in states] == ["all", "none", "a, b"]
    assert states[0]["expires"] == "1970-01-01 00:00 UTC"


# --- revoke


def test_a_key_is_revoked_by_the_beginning_of_its_id(account):
    shown = Shown(key_grant("k_abc", digest=b"a" * 32), key_grant("k_xyz", digest=b"b" * 32))
    done, _ = beside(account, "keys", "revoke", "k_a", "--reason", "lost", "--yes", "--json", shown=shown)
    assert json.loads(done.stdout)["id"] == "k_abc"
    ((record, body),) = shown.registry.of_kind("revocation")
    assert (record.key.id, body) == ("k_abc", Revocation(reason="lost", at=NOW))


@pytest.mark.parametrize(
    ("text", "says"), [("k_", "means 2 keys"), ("k_q", "no key is called k_q"), ("", "no key is called")]
)
def test_what_means_no_one_key_revokes_none(account, text, says):
    shown = Shown(key_grant("k_abc", digest=b"a" * 32), key_grant("k_abd", digest=b"b" * 32))
    done, _ = beside(account, "keys", "revoke", text, "--yes", shown=shown)
    assert done.exit_code == 1
    assert says in done.stderr
    assert not list(shown.registry.of_kind("revocation"))


def test_an_id_that_is_whole_wins_over_those_that_begin_so(account):
    shown = Shown(key_grant("k_a", digest=b"a" * 32), key_grant("k_ab", digest=b"b" * 32))
    done, _ = beside(account, "keys", "revoke", "k_a", "--yes", shown=shown)
    assert done.stdout == "k_a is revoked\n"


# --- without an operator


def test_an_own_key_revokes_itself_at_its_door(account):
    with open_door() as door:
        door.answers["POST", "/v1/keys/self/revoke"] = 200, {"id": "k_own", "revoked": True}
        keep(config(account), Credential(door.url, "k_own", KEY))
        keep(config(account), Credential("https://other.example.org", "k_last", "s"))
        done = run(cli, "keys", "revoke", "k_o", "--self")
        assert door.asked[0][2]["Authorization"] == f"Bearer {KEY}"
    assert (done.exit_code, done.stdout) == (0, "k_own is revoked\n")


def test_a_key_that_is_not_kept_here_cannot_revoke_itself(account):
    keep(config(account), Credential("https://x.example.org", "k_own", KEY))
    done = run(cli, "keys", "revoke", "k_other", "--self")
    assert done.exit_code == 1
    assert "no key k_other is kept here" in done.stderr


CLAIM_ANSWER = {
    "id": "k_1",
    "label": "laptop",
    "base_url": "https://llm.example.org/v1",
    "models": ["org/m"],
    "expires_at": None,
}


def claim_text():
    return mint_claim(b"c" * 32)


def test_a_claimed_key_is_kept_and_shown_as_an_env_file_and_a_command(account):
    with open_door() as door:
        door.answers["POST", "/v1/keys/claim"] = 200, CLAIM_ANSWER
        done = run(cli, "keys", "claim", "-", "--url", door.url, stdin=claim_text())
    (kept,) = read(config(account))
    assert done.stdout == f"OPENAI_BASE_URL=https://llm.example.org/v1\nOPENAI_API_KEY={kept.secret}\n"
    assert "tela try org/m" in done.stderr
    assert "curl https://llm.example.org/v1/chat/completions" in done.stderr


def test_a_claim_is_not_used_up_when_the_key_could_not_be_kept(account):
    path = keep(config(account), Credential("https://x.example.org", "k", KEY))
    path.chmod(0o644)
    with open_door() as door:
        done = run(cli, "keys", "claim", claim_text(), "--url", door.url)
        assert not door.asked
    assert done.exit_code == 1
    assert "chmod 600" in done.stderr


def test_a_key_need_not_be_kept(account):
    with open_door() as door:
        door.answers["POST", "/v1/keys/claim"] = 200, {**CLAIM_ANSWER, "models": []}
        done = run(cli, "keys", "claim", claim_text(), "--url", door.url, "--no-keep", "--json")
    assert json.loads(done.stdout)["kept"] is None
    assert read(config(account)) == []


# --- login and try


def test_a_key_is_kept_after_the_door_said_that_it_is_one(account):
    with open_door() as door:
        door.answers["GET", "/v1/keys/self"] = 200, {"id": "k_1", "label": "laptop"}
        done = run(cli, "login", f"{door.url}/v1", stdin=f"{KEY}\n")
        assert (done.exit_code, done.stdout) == (0, "k_1 laptop\n")
        assert read(config(account)) == [Credential(door.url, "k_1", KEY, "laptop")]


def test_a_key_the_door_refuses_is_not_kept(account):
    with open_door() as door:
        door.answers["GET", "/v1/keys/self"] = 401, {"error": {"message": "No valid API key was presented."}}
        assert run(cli, "login", door.url, stdin=KEY).exit_code == 1
    assert read(config(account)) == []


@pytest.mark.parametrize(
    ("given", "says"), [("", "nothing was given"), ("tela_invite_x", "tela join"), (claim_text(), "tela keys claim")]
)
def test_what_is_no_key_is_named_and_sent_nowhere(account, given, says):
    with open_door() as door:
        done = run(cli, "login", door.url, stdin=given)
        assert not door.asked
    assert done.exit_code == 2
    assert says in done.stderr


def stream(*texts, usage=7):
    parts = [{"choices": [{"delta": {"content": text}}]} for text in texts] + [
        {"choices": [], "usage": {"completion_tokens": usage}}
    ]
    return b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts) + b"data: [DONE]\n\n"


def test_a_model_is_called_once_and_its_words_are_shown_as_they_come(account):
    with open_door() as door:
        keep(config(account), Credential(door.url, "k", KEY))
        door.answers["POST", "/v1/chat/completions"] = 200, stream("hel", "lo\n\x1b[2J")
        done = run(cli, "try", "org/m", "say hello")
        assert door.asked[0][3]["messages"] == [{"role": "user", "content": "say hello"}]
    assert done.stdout.startswith("hello\n")
    assert "\x1b" not in done.stdout
    assert "7 tokens" in done.stderr


def test_a_call_as_json_has_text_and_times(account):
    with open_door() as door:
        keep(config(account), Credential(door.url, "k", KEY))
        door.answers["POST", "/v1/chat/completions"] = 200, stream("hello")
        said = json.loads(run(cli, "try", "org/m", "--json").stdout)
    assert (said["text"], said["completion_tokens"]) == ("hello", 7)
    assert 0 <= said["first_s"] <= said["total_s"]


def test_without_a_model_those_that_may_be_called_are_listed(account):
    with open_door() as door:
        keep(config(account), Credential(door.url, "k", KEY))
        door.answers["GET", "/v1/models"] = 200, {"data": [{"id": "org/m"}, {"id": "a\x1bb"}, 3]}
        lines = run(cli, "try").stdout.splitlines()
    assert lines[0] == "org/m"
    assert all(line.isprintable() for line in lines)


def test_an_unknown_model_fails_with_what_the_door_says(account):
    with open_door() as door:
        keep(config(account), Credential(door.url, "k", KEY))
        door.answers["POST", "/v1/chat/completions"] = 404, {"error": {"message": "The model 'x' does not exist"}}
        done = run(cli, "try", "x")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "The model 'x' does not exist" in done.stderr


def test_without_a_key_it_says_how_to_come_by_one(account):
    done = run(cli, "try")
    assert done.exit_code == 1
    assert "tela login URL" in done.stderr
