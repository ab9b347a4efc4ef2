"""Questions over real links: what is answered to whom, and answers that are endless, slow or garbage."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from gossip.memory import MemoryNetwork
from node.ask import answer, asking
from node.ask.answer import Answers
from node.ask.asking import Asker
from node.ask.judge import Whom
from node.ask.question import ASK, Question, blob_hash, encode
from node.eventlog import EventLog
from node.events import Event
from registry.errors import TelaError
from registry.kinds import Act
from tests.mesh import MeshNode, started, until
from tests.people import MEMBER, OPERATOR, Person

HUB, LEAF, STRANGER = Person(60), Person(61), Person(99)
NOW = 1_800_000_000.0
BLOB = b"a blob" * 1000


class Asked:
    """A hub that asks and a leaf that answers."""

    def __init__(self, tmp_path):
        network = MemoryNetwork()
        self.hub = MeshNode(HUB, network.host("hub"), listen="hub:0")
        self.leaf = MeshNode(LEAF, network.host("leaf"), hubs=[])
        self.log = tmp_path / "e0.log"
        self.log.write_bytes(b"".join(b"line %d\n" % number for number in range(5000)))
        self.events = EventLog.open(tmp_path / "events")
        self.answers = self._answers(self.leaf)
        self.asker = Asker(
            mesh=self.hub.mesh,
            answers=self._answers(self.hub),
            hubs=lambda: frozenset((HUB.id, LEAF.id)),
            fabric=lambda: NOW,
            rng=Random(1),
        )
        self.leaf.mesh.serve(ASK, self.answers.serve)
        self._nonce = 0

    def _answers(self, node):
        return Answers(
            whom=Whom(node.id, MEMBER.key),
            standing=lambda: node.view().standing,
            fabric=lambda: NOW,
            replica=node.replica,
            logs=lambda slot: self.log if slot == "e0" else None,
            events=self.events,
            blobs={
                blob_hash(BLOB): BLOB,
                bytes(32): bytes(4_000_000),
            },  # the second is a lie, and more than buffers hold
        )

    def question(self, q, *, by=None, to=LEAF, at=NOW, nonce=None, **args):
        self._nonce += 1
        told = Question(q=q, args=args, node=to.id, at=at, nonce=nonce or self._nonce.to_bytes(16))
        return encode(told, by.key, by.sign) if by else encode(told)

    async def ask(self, raw, *, to=LEAF):
        return b"".join([part async for part in self.asker.ask(to.id, raw)])

    async def refused(self, raw, *, to=LEAF):
        with pytest.raises(TelaError) as caught:
            await self.ask(raw, to=to)
        return caught.value.code

    def answer_with(self, serve):
        """Let the leaf answer as it should not."""
        self.leaf.mesh.serve(ASK, serve)


def run(tmp_path, main):
    @asynccontextmanager
    async def linked():
        both = Asked(tmp_path)
        async with started(both.hub, both.leaf):
            both.leaf.hubs.append(both.hub.address())
            await until(lambda: both.hub.mesh.is_linked(LEAF.id))
            yield both

    async def whole():
        async with asyncio.timeout(30.0), linked() as both:
            await main(both)

    asyncio.run(whole())


def test_the_owner_and_operators_read_a_log(tmp_path):
    async def main(both):
        for who in (MEMBER, OPERATOR):
            text = await both.ask(both.question("log", by=who, slot="e0", lines=2))
            assert text == b"line 4998\nline 4999\n"

    run(tmp_path, main)


def test_a_tail_of_everything_comes_whole_over_many_frames(tmp_path):
    async def main(both):
        both.log.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 5000)
        text = await both.ask(both.question("log", by=MEMBER, slot="e0", lines=2000))
        assert text == (b"y" * 99 + b"\n") * 2000

    run(tmp_path, main)


def test_nobody_else_reads_a_log(tmp_path):
    async def main(both):
        assert await both.refused(both.question("log", slot="e0")) == "unsigned"
        assert await both.refused(both.question("log", by=STRANGER, slot="e0")) == "forbidden"
        assert await both.refused(both.question("log", by=HUB, slot="e0")) == "forbidden"

    run(tmp_path, main)


def test_a_slot_there_is_not_has_no_log(tmp_path):
    async def main(both):
        assert await both.refused(both.question("log", by=MEMBER, slot="e9")) == "no_log"
        assert await both.refused(both.question("log", by=MEMBER)) == "no_log"

    run(tmp_path, main)


def test_a_log_is_followed_until_the_reader_leaves(tmp_path):
    async def main(both):
        parts = both.asker.ask(LEAF.id, both.question("log", by=MEMBER, slot="e0", lines=1, follow=True))
        text = b""
        async for part in parts:
            text += part
            if text == b"line 4999\n":
                with both.log.open("ab") as file:
                    file.write(b"and then\n")
            if text.endswith(b"and then\n"):
                break
        await parts.aclose()
        await until(lambda: both.answers._following == 0)

    run(tmp_path, main)


def test_followers_leave_room_for_other_questions(tmp_path):
    async def main(both):
        followers = [
            both.asker.ask(LEAF.id, both.question("log", by=MEMBER, slot="e0", lines=1, follow=True))
            for _ in range(answer.MAX_FOLLOWING)
        ]
        for follower in followers:
            await anext(follower)
        assert await both.refused(both.question("log", by=MEMBER, slot="e0", follow=True)) == "busy"
        assert await both.ask(both.question("log", by=MEMBER, slot="e0", lines=1)) == b"line 4999\n"
        for follower in followers:
            await follower.aclose()

    run(tmp_path, main)


def test_a_signed_question_is_answered_once(tmp_path):
    async def main(both):
        raw = both.question("log", by=MEMBER, slot="e0", lines=1)
        await both.ask(raw)
        assert await both.refused(raw) == "replayed"

    run(tmp_path, main)


@pytest.mark.parametrize("at", [NOW - 121, NOW + 121])
def test_an_old_or_early_question_is_refused(tmp_path, at):
    async def main(both):
        assert await both.refused(both.question("log", by=MEMBER, slot="e0", at=at)) == "stale"

    run(tmp_path, main)


def test_a_question_for_another_node_is_not_passed_off(tmp_path):
    async def main(both):
        raw = both.question("log", by=MEMBER, to=HUB, slot="e0")
        assert await both.refused(raw, to=LEAF) == "bad_question"
        stream = both.hub.mesh.open(LEAF.id, ASK, raw)
        stream.end()
        assert b"not_for_us" in await stream.reply_head()
        stream.close()

    run(tmp_path, main)


def test_events_are_told_to_nodes_of_the_fabric(tmp_path):
    async def main(both):
        for number in range(3):
            both.events.add(Event(at=NOW, kind="model.up", subject="m", text=f"event {number}"))
        lines = (await both.ask(both.question("events", limit=2))).splitlines()
        assert [msgspec.json.decode(line)["text"] for line in lines] == ["event 1", "event 2"]
        lines = (await both.ask(both.question("events", since=0, limit=1))).splitlines()
        assert [msgspec.json.decode(line)["seq"] for line in lines] == [1]
        assert await both.refused(both.question("events", by=STRANGER)) == "not_admitted"

    run(tmp_path, main)


def test_a_blob_comes_by_its_hash(tmp_path):
    async def main(both):
        assert await both.ask(both.question("blob", hash=blob_hash(BLOB).hex())) == BLOB
        assert await both.refused(both.question("blob", hash="11" * 32)) == "no_blob"

    run(tmp_path, main)


def test_hubs_say_whether_they_hold_a_record(tmp_path):
    async def main(both):
        record = OPERATOR.write(Act(verb="drain", target=LEAF.id, at=NOW), f"drain/{LEAF.id}", seq=1)
        assert await both.asker.holders(record.order.hash) == frozenset()
        both.hub.mesh.tell(lambda peer: peer.publish(record))
        await until(lambda: both.leaf.replica.get(record.key) is not None)
        assert await both.asker.holders(record.order.hash) == {HUB.id, LEAF.id}

    run(tmp_path, main)


def test_a_node_s_own_face_asks_without_a_link(tmp_path):
    async def main(both):
        raw = both.question("log", by=MEMBER, to=HUB, slot="e0", lines=1)
        assert await both.ask(raw, to=HUB) == b"line 4999\n"

    run(tmp_path, main)


def test_a_node_without_a_link_is_not_waited_for(tmp_path):
    async def main(both):
        assert await both.refused(both.question("events", to=STRANGER), to=STRANGER) == "not_linked"

    run(tmp_path, main)


# --- answers that are not what they should be


async def endless(stream):
    stream.reply(b'{"ok": true}')
    while True:
        stream.write(b"x" * 16_384)
        await stream.drain()


async def silent(stream):
    stream.reply(b'{"ok": true}')
    await asyncio.Event().wait()


async def mute(stream):
    await asyncio.Event().wait()


async def garbage(stream):
    stream.reply(b"\xff\x00{")
    stream.end()


async def lying(stream):
    stream.reply(b'{"ok": true}')
    stream.write(b"something else")
    stream.end()


async def breaking(stream):
    stream.reply(b'{"ok": true}')
    stream.write(b"half")
    stream.reset()


@pytest.mark.parametrize(
    ("serve", "q", "code"),
    [
        (endless, "log", "bad_answer"),
        (endless, "events", "bad_answer"),
        (endless, "blob", "bad_answer"),
        (endless, "holds", "bad_answer"),
        (silent, "log", "no_answer"),
        (silent, "blob", "no_answer"),
        (mute, "events", "no_answer"),
        (garbage, "log", "bad_answer"),
        (lying, "blob", "bad_answer"),
        (breaking, "log", "broken"),
        (breaking, "blob", "broken"),
    ],
)
def test_an_answer_that_is_none_ends_in_words(tmp_path, monkeypatch, serve, q, code):
    monkeypatch.setattr(asking, "ANSWER_S", 0.3 if serve in {silent, mute} else 20.0)
    args = {"log": {"slot": "e0"}, "events": {}, "blob": {"hash": "00" * 32}, "holds": {"hash": "00" * 32}}[q]

    async def main(both):
        both.answer_with(serve)
        by = MEMBER if q == "log" else None
        assert await both.refused(both.question(q, by=by, **args)) == code

    run(tmp_path, main)


@pytest.mark.parametrize("serve", [endless, silent, mute, garbage, lying, breaking])
def test_a_hub_that_answers_wrongly_holds_nothing(tmp_path, monkeypatch, serve):
    monkeypatch.setattr(asking, "HOLDS_S", 0.3)

    async def main(both):
        both.answer_with(serve)
        assert await both.asker.holders(b"h" * 32) == frozenset()

    run(tmp_path, main)


def test_garbage_on_a_link_is_answered_with_a_refusal(tmp_path):
    async def main(both):
        for head in (b"", b"\xff" * 100, b"\x93\xc4\x00\xc4\x00\xc4\x00"):
            stream = both.hub.mesh.open(LEAF.id, ASK, head)
            stream.end()
            assert b"bad_question" in await stream.reply_head()
            stream.close()
        assert both.hub.mesh.is_linked(LEAF.id)

    run(tmp_path, main)


def test_an_asker_that_does_not_read_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(answer, "DEADLINE_S", 0.3)

    async def main(both):
        stream = both.hub.mesh.open(LEAF.id, ASK, both.question("blob", hash="00" * 32))
        stream.end()
        await until(lambda: both.answers._at_once == 1)
        await until(lambda: both.answers._at_once == 0)
        stream.close()

    run(tmp_path, main)
