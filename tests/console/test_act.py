"""Orders to the fleet: who signs, what is published, and what becomes of it."""

import asyncio
import json
import os

import pytest

from console.acting import signer_for
from console.cli import cli
from registry.errors import TelaError
from registry.kinds import Act, Outcome
from tests.console.founded import account, fabric, node_here, run_beside
from tests.node.control import HUB, NOW, WORKER, Shown
from tests.people import MEMBER, OPERATOR, Person, act_record

__all__ = ["account"]
STRANGER = Person(99)


def acts(shown):
    return [(record, body) for record, body in shown.registry.of_kind("act") if isinstance(body, Act)]


async def answer(shown, state, reason):
    """What the worker says once it holds an order."""
    while not acts(shown):
        await asyncio.sleep(0.01)
    (record, _), *_ = acts(shown)
    said = Outcome(act=record.order.hash, state=state, reason=reason, at=NOW)
    shown.apply(WORKER.write(said, record.key.id, seq=1))


def ordered(account, *words, shown=None, outcome=None):
    """One order beside a node; the worker answers it when an outcome is given."""
    fabric(account)
    shown = shown or Shown()

    async def main():
        async with asyncio.timeout(30.0), node_here(account, shown, os.environ), asyncio.TaskGroup() as tasks:
            if outcome:
                tasks.create_task(answer(shown, *outcome))
            return await run_beside(cli, *words)

    return asyncio.run(main()), shown


def test_an_order_is_followed_until_it_is_done(account):
    done, shown = ordered(account, "drain", "host11@lab", "--reason", "driver", outcome=("done", "3 requests ended"))
    assert (done.exit_code, done.stdout) == (0, "drain host11@lab: DONE\n")
    assert "DONE      3 requests ended" in done.stderr
    ((_record, act),) = acts(shown)
    assert (act.verb, act.target, act.run, act.reason) == ("drain", WORKER.id, 0, "driver")


def test_the_member_signs_for_the_own_nodes(account):
    _, shown = ordered(account, "drain", "host11", "--wait", "0")
    assert acts(shown)[0][0].key.owner == MEMBER.key


def test_an_eviction_is_the_operators(account):
    done, shown = ordered(account, "evict", "host11@lab", "--yes", "--wait", "0")
    ((record, act),) = acts(shown)
    assert (record.key.owner, act.verb) == (OPERATOR.key, "evict")
    assert done.stdout == "evict host11@lab: ACCEPTED\n"
    assert "tela events" in done.stderr


def test_an_eviction_is_taken_back_by_name(account):
    _, shown = ordered(account, "evict", "host11@lab", "--lift", shown=Shown(act_record("evict", WORKER)))
    assert acts(shown)[0][1].verb == "readmit"
    assert acts(shown)[0][0].order.seq == 2


def test_a_restart_is_meant_for_the_run_that_was_seen(account):
    _, shown = ordered(account, "restart", "host11@lab", "--wait", "0")
    assert acts(shown)[0][1].run == 1


def test_an_order_that_is_declined_fails_with_the_reason(account):
    done, _ = ordered(account, "restart", "host11@lab", outcome=("refused", "no engine\x1b[2J"))
    assert (done.exit_code, done.stdout) == (1, "restart host11@lab: REFUSED\n")
    assert "no engine" in done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())


def test_as_json_there_is_one_object_and_no_narration(account):
    done, shown = ordered(account, "ack", "host11@lab", "--json")
    said = json.loads(done.stdout)
    assert (said["verb"], said["node"], said["id"], said["state"]) == ("ack", "host11@lab", WORKER.id, "DONE")
    assert said["act"] == acts(shown)[0][0].order.hash.hex()
    assert not done.stderr


def test_an_eviction_is_asked_about_and_without_a_terminal_refused(account):
    done, shown = ordered(account, "evict", "host11@lab")
    assert done.exit_code == 2
    assert "which serves 1 model" in done.stderr
    assert "--yes" in done.stderr
    assert not acts(shown)


def test_a_name_nobody_has_is_said_before_anything_is_signed(account):
    done, shown = ordered(account, "drain", "hots11@lab")
    assert done.exit_code == 1
    assert "did you mean host11@lab" in done.stderr
    assert not acts(shown)


def test_a_node_that_does_not_hold_the_order_yet_leaves_it_pending(account):
    shown = Shown()
    shown.held_by = set()
    done, _ = ordered(account, "drain", "host11@lab", "--wait", "0", shown=shown)
    assert (done.exit_code, done.stdout) == (1, "drain host11@lab: PENDING\n")


def test_an_order_of_somebody_who_may_not_counts_nowhere_and_says_so(account):
    fabric(account, operator=STRANGER, who="eve")
    shown = Shown()

    async def main():
        async with asyncio.timeout(30.0), node_here(account, shown, os.environ):
            return await run_beside(cli, "evict", "host11@lab", "--yes")

    done = asyncio.run(main())
    assert done.exit_code == 1
    assert "counts nowhere" in done.stderr
    assert "tela whoami" in done.stderr


def test_whoever_has_neither_key_cannot_sign(account):
    held = fabric(account, operator=None)
    with pytest.raises(TelaError) as caught:
        signer_for("drain", STRANGER.id, held, None)
    assert caught.value.code == "no_operator_key"


def test_a_members_key_does_not_reach_what_only_operators_do(account):
    held = fabric(account)
    assert signer_for("drain", MEMBER.id, held, None).key == MEMBER.key
    assert signer_for("evict", MEMBER.id, held, None).key == OPERATOR.key
    assert signer_for("drain", HUB.id, held, None).name == "ada"
