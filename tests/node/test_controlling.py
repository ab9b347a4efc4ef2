"""A node's control API put together from its parts: the logs it answers for, and records it takes in."""

import asyncio
from random import Random

from node.ask.question import ASK, Question, encode, read_head
from node.controlling import NODE_LOG, Controlling
from node.selfview import self_view
from tests.node.fabric import fabric


def asked(tmp_path, slot, prepare=lambda worker: None):
    """The head and the text of the answer to a member who asks a worker for a log, over the ingress's link."""

    async def main():
        async with asyncio.timeout(60.0), fabric(tmp_path) as door:
            (worker,) = door.workers
            Controlling(worker, lambda: self_view(worker, (), ""), Random(1))
            prepare(worker)
            question = Question(
                q="log", args={"slot": slot}, node=worker.id, at=worker.mesh.fabric_now(), nonce=b"n" * 16
            )
            raw = encode(question, door.authority.member, door.authority.member_sign)
            stream = door.ingress.mesh.open(worker.id, ASK, raw)
            stream.end()
            try:
                head = read_head(await stream.reply_head())
                return head, b"" if not head.ok else await stream.read()
            finally:
                stream.close()

    return asyncio.run(main())


def test_a_node_that_writes_to_a_terminal_has_no_log_of_its_own_to_show(tmp_path):
    head, _ = asked(tmp_path, "")
    assert (head.ok, head.code) == (False, "no_log")
    assert "terminal" in head.message


def test_the_log_of_a_node_in_the_background_is_shown(tmp_path):
    head, text = asked(tmp_path, "", lambda worker: (worker.state / NODE_LOG).write_text("{}\n"))
    assert (head.ok, text) == (True, b"{}\n")


def test_a_slot_there_is_not_has_no_log(tmp_path):
    head, _ = asked(tmp_path, "e7")
    assert "e7" in head.message
