"""`tela status`, `nodes`, `models`, `events` and `logs` at a node's real control socket."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from console.cli import cli
from node.events import Event
from node.fabricdir import seed_line
from registry.errors import TelaError
from registry.lifecycle import Rank
from tests.console.founded import account, fabric, node_here, run, run_beside
from tests.node.control import HUB, NOW, WORKER, Gauge, Shown, log_of
from tests.people import node_record, replica_record

__all__ = ["account"]


def shown_by(account, *words, shown=None):
    """One command beside a node."""
    fabric(account)

    async def main():
        async with asyncio.timeout(30.0), node_here(account, shown or Shown(), os.environ):
            return await run_beside(cli, *words)

    done = asyncio.run(main())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_status_is_a_page_about_this_node_and_the_fabric(account):
    done = shown_by(account, "status")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "testfabric · this node host10@lab/1 SERVING, pid 1"
    assert "nodes     2 SERVING" in done.stdout
    assert "m UP 1/1" in done.stdout
    assert not done.stderr


def test_status_as_json_is_what_the_node_says_and_what_it_sees(account):
    (said,) = objects(shown_by(account, "status", "--json"))
    assert said["self"]["node"]["name"] == "host10@lab"
    assert len(said["view"]["nodes"]) == 2


def test_nodes_are_a_table_with_what_each_serves(account):
    shown = Shown()
    shown.gauges[WORKER.id] = Gauge({"in_flight": 3}, 0.0)
    lines = shown_by(account, "nodes", shown=shown).stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "ROLES", "SERVES", "LOAD"]
    assert lines[1].split() == ["host10@lab", "SERVING", "ingress,relay", "-", "-"]
    assert lines[2].split() == ["host11@lab", "SERVING", "worker", "m", "3", "req"]


def test_nodes_that_left_are_shown_when_asked_for(account):
    shown = Shown(node_record(WORKER, rank=Rank.LEFT))
    assert "host11@lab" not in shown_by(account, "nodes", shown=shown).stdout


def test_all_nodes_as_json_are_one_object_a_line(account):
    rows = objects(shown_by(account, "nodes", "--all", "--json", shown=Shown(node_record(WORKER, rank=Rank.LEFT))))
    assert {row["name"]: row["state"] for row in rows} == {"host10@lab": "SERVING", "host11@lab": "LEFT"}


def test_models_are_a_table(account):
    lines = shown_by(account, "models").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["MODEL", "STATE", "READY", "FAMILIES"],
        ["m", "UP", "1/1", "chat,", "completions"],
    ]


def test_replicas_say_why_they_take_nothing(account):
    done = shown_by(account, "models", "--replicas", shown=Shown(replica_record(WORKER, draining=True, seq=2)))
    assert done.stdout.splitlines()[1].split() == ["host11@lab/1", "e0", "DRAINING", "m", "draining"]


def test_where_there_is_no_model_it_says_how_there_will_be_one(account):
    shown = Shown(replica_record(WORKER, rank=Rank.LEFT))
    done = shown_by(account, "models", shown=shown)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "tela start --process" in done.stderr


def test_without_rows_json_is_empty(account):
    assert shown_by(account, "models", "--json", shown=Shown(replica_record(WORKER, rank=Rank.LEFT))).stdout == ""


# --- events


def journal(tmp_path, *texts):
    log = log_of(tmp_path)
    for text in texts:
        log.add(Event(at=NOW, kind="x", subject="host11@lab", text=text))
    return log


def test_events_are_lines_with_their_time_and_whom_they_are_about(account, tmp_path):
    log = journal(tmp_path, "joined as worker", "drain by a member of lab")
    lines = shown_by(account, "events", shown=Shown(events=log)).stdout.splitlines()
    log.close()
    assert lines[1] == "2027-01-15 08:00:00 UTC  host11@lab  drain by a member of lab"


def test_the_latest_events_are_shown_and_can_be_objects(account, tmp_path):
    log = journal(tmp_path, "one", "two", "three")
    done = shown_by(account, "events", "--limit", "2", "--json", shown=Shown(events=log))
    log.close()
    assert [each["text"] for each in objects(done)] == ["two", "three"]


def test_no_event_is_said_and_is_no_failure(account, tmp_path):
    log = journal(tmp_path)
    done = shown_by(account, "events", shown=Shown(events=log))
    log.close()
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "nothing has happened yet\n")


def test_what_an_event_says_cannot_drive_the_terminal(account, tmp_path):
    log = journal(tmp_path, "\x1b[2J\n\u202e")
    lines = shown_by(account, "events", shown=Shown(events=log)).stdout.splitlines()
    log.close()
    assert len(lines) == 1
    assert lines[0].isprintable()


def test_ctrl_c_ends_following_quietly(account, tmp_path):
    fabric(account)
    log = journal(tmp_path, "one")

    async def main():
        async with asyncio.timeout(30.0), node_here(account, Shown(events=log), os.environ):
            return await asyncio.to_thread(follow)

    def follow():
        words = [sys.executable, "-m", "console", "events", "--follow"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return first, process.wait(20.0), process.stderr.read()

    first, code, err = asyncio.run(main())
    log.close()
    assert first.endswith("one\n")
    assert (code, err) == (130, "")


# --- logs


def asked(text=b"", error=None):
    """A worker that answers a question for its log."""
    shown, questions = Shown(), []

    def answer(question):
        questions.append(question)
        yield error or text

    shown.answers[WORKER.id] = answer
    return shown, questions


def test_a_log_is_asked_for_and_shown_line_by_line_without_what_drives_a_terminal(account):
    shown, questions = asked(b"loading\n\x1b[2Jweights\xff\nlast")
    done = shown_by(account, "logs", "host11@lab", shown=shown)
    assert done.stdout.splitlines()[0] == "loading"
    assert len(done.stdout.splitlines()) == 3
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert len(questions) == 1


def test_a_log_as_json_is_one_object_a_line(account):
    done = shown_by(account, "logs", "host11@lab", "--json", shown=asked(b"a\nb\n")[0])
    assert objects(done) == [{"line": "a"}, {"line": "b"}]


def test_a_node_that_refuses_says_why(account):
    error = TelaError("this log is for the owner of the node", hint="tela whoami", code="forbidden")
    done = shown_by(account, "logs", "host11@lab", shown=asked(error=error)[0])
    assert done.exit_code == 1
    assert "for the owner of the node" in done.stderr


def test_a_node_without_a_link_to_here_is_told_with_where_to_ask(account):
    shown, _ = asked(error=TelaError("no link", code="not_linked"))
    shown.apply(node_record(WORKER, hubs=(HUB.id,), seq=2))
    done = shown_by(account, "logs", "host11@lab", shown=shown)
    assert done.exit_code == 1
    assert "no link to host11@lab" in done.stderr
    assert "it says it is linked to host10@lab: ask there" in done.stderr


def own_state(account, **logs):
    """The directory of the worker, on a home that this host shares with it."""
    path = account / "state" / "testfabric" / "host11-0"
    path.mkdir(parents=True)
    (path / "node.key").write_bytes(seed_line(WORKER.seed))
    (path / "node.key").chmod(0o600)
    for slot, text in logs.items():
        (path / f"{slot}.log").write_text(text)
    return path


def test_the_log_of_an_own_node_is_read_from_the_home_it_shares(account):
    own_state(account, e0="one\ntwo\nthree\n", node="{}\n")
    assert shown_by(account, "logs", "host11@lab", "-n", "2").stdout == "two\nthree\n"


def test_telas_own_log_has_a_name_too(account):
    own_state(account, e0="engine\n", node="tela\n")
    assert shown_by(account, "logs", "host11@lab", "--slot", "node").stdout == "tela\n"


def test_a_slot_there_is_not_is_answered_with_those_there_are(account):
    own_state(account, e0="", node="")
    done = shown_by(account, "logs", "host11@lab", "--slot", "e7")
    assert done.exit_code == 1
    assert "there is e0, node" in done.stderr


def test_a_directory_with_another_nodes_key_is_not_that_nodes(account):
    path = own_state(account, e0="of another\n")
    (path / "node.key").write_bytes(seed_line(HUB.seed))
    assert shown_by(account, "logs", "host11@lab", shown=asked(b"its own\n")[0]).stdout == "its own\n"


@pytest.mark.parametrize("slot", ["../../x", "a/b", ".", ""])
def test_no_name_leads_out_of_the_directory(account, slot):
    own_state(account, e0="engine\n")
    (account / "state" / "x.log").write_text("secret\n")
    assert "secret" not in shown_by(account, "logs", "host11@lab", "--slot", slot, shown=asked(b"")[0]).stdout


def test_a_log_is_followed_as_it_is_written(account):
    fabric(account)
    path = own_state(account, e0="one\n") / "e0.log"

    def follow():
        words = [sys.executable, "-m", "console", "logs", "host11@lab", "-f"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            first = process.stdout.readline()
            with path.open("a") as log:
                log.write("two\n")
            second = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return first, second, process.wait(20.0), process.stderr.read()

    async def main():
        async with asyncio.timeout(60.0), node_here(account, Shown(), os.environ):
            return await asyncio.to_thread(follow)

    assert asyncio.run(main()) == ("one\n", "two\n", 130, "")


# --- nobody to ask


@pytest.mark.parametrize("command", ["status", "nodes", "models", "events", "logs"])
def test_without_a_fabric_every_one_says_how_to_come_by_one(account, command):
    done = run(cli, command)
    assert done.exit_code == 1
    for way in ("tela init", "tela join", "tela demo"):
        assert way in done.stderr


@pytest.mark.parametrize("command", ["status", "nodes", "models", "events", "logs"])
def test_without_a_node_every_one_says_how_to_start_one(account, command):
    fabric(account)
    done = run(cli, command)
    assert done.exit_code == 1
    assert "no node of fabric testfabric runs here" in done.stderr
    assert "tela start" in done.stderr


def test_without_a_node_it_is_said_where_the_own_logs_are(account):
    fabric(account)
    assert f"{account / 'state'}/testfabric/HOST-SLOT" in run(cli, "logs").stderr


@pytest.mark.parametrize(("words", "offered"), [(["logs"], "host11@lab"), (["drain"], "host11@lab"), (["try"], "m")])
def test_names_of_nodes_and_models_are_completed(account, words, offered):
    fabric(account)
    source = "import sys; from click.shell_completion import ShellComplete; from console.cli import cli\n"
    source += "print(*[c.value for c in ShellComplete(cli, {}, 'tela', '_X').get_completions(sys.argv[1:], '')])"

    async def main():
        async with asyncio.timeout(30.0), node_here(account, Shown(), os.environ):
            words_ = [sys.executable, "-c", source, *words]
            return await asyncio.to_thread(subprocess.run, words_, capture_output=True, text=True, check=True)

    assert offered in asyncio.run(main()).stdout.split()
