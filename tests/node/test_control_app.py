"""The control API on a real socket: what each question is answered with, and what is refused."""

import asyncio
import base64

import pytest

from node.control.streams import MAX_STREAMS
from node.control.viewer import MAX_REFUSED, MAX_REFUSED_EACH
from node.events import Event
from registry.charter import offer
from registry.errors import TelaError
from registry.kinds import Act, Invite, KeyGrant, Outcome, encode_body
from registry.lifecycle import Rank
from registry.record import Audience, Draft, seal
from tests.node.control import HUB, NOW, WORKER, Gauge, Shown, log_of, serving
from tests.people import MEMBER, OPERATOR, Person, certificate, node_record, replica_record

STRANGER = Person(99)


def act(verb="drain", target=WORKER, *, by=OPERATOR, seq=1, reason=""):
    aspect = {"undrain": "drain", "readmit": "evict"}.get(verb, verb)
    return by.write(Act(verb=verb, target=target.id, reason=reason, at=NOW), f"{aspect}/{target.id}", seq=seq)


def outcome(of, state="done", *, by=WORKER, reason=""):
    return by.write(Outcome(act=of.order.hash, state=state, reason=reason, at=NOW), of.key.id, seq=1)


def key(**more):
    body = KeyGrant(**more)
    draft = Draft("key", "k_abc", encode_body(body), Audience.ACCOUNTS, seq=1)
    return seal(draft, OPERATOR.key, OPERATOR.sign)


def encoded(*records):
    return {"records": [base64.b64encode(record.raw).decode() for record in records]}


def run(main, shown=None):
    """Run a test's coroutine with a face at a served node."""

    async def whole():
        async with asyncio.timeout(30.0), serving(shown or Shown()) as face:
            return await main(face)

    return asyncio.run(whole())


def test_self_is_what_the_node_says_of_itself():
    async def main(face):
        said = await face.get("/self")
        assert said["node"]["name"] == "host10@lab"
        assert said["node"]["until"] is None

    run(main)


def test_the_view_holds_nodes_replicas_and_models():
    async def main(face):
        view = await face.get("/view")
        nodes = {row["name"]: row for row in view["nodes"]}
        assert set(nodes) == {"host10@lab", "host11@lab"}
        assert nodes["host11@lab"]["session"] == "host11@lab/1"
        assert nodes["host11@lab"]["state"] == "SERVING"
        assert nodes["host10@lab"]["hub"]
        (replica,) = view["replicas"]
        assert (replica["node"], replica["slot"], replica["routable"], replica["why_not"]) == (
            WORKER.id,
            "e0",
            True,
            "",
        )
        (model,) = view["models"]
        assert (model["id"], model["state"], model["routable"], model["wanted"]) == ("m", "UP", 1, 1)
        assert view["operators"][0]["name"] == "ada"
        assert view["fabric"]["name"] == "testfabric"
        assert base64.b64decode(view["charter"]["record"])

    run(main)


def test_a_replica_that_is_not_routable_says_why():
    async def main(face):
        face.shown.apply(replica_record(WORKER, seq=2, draining=True))
        (replica,) = (await face.get("/view"))["replicas"]
        assert not replica["routable"]
        assert replica["why_not"] == "draining"

    run(main)


def test_gauges_come_with_their_age():
    async def main(face):
        face.shown.gauges[WORKER.id] = Gauge({"in_flight": 3}, asyncio.get_running_loop().time() - 5.0)
        rows = {row["id"]: row for row in (await face.get("/view"))["nodes"]}
        assert rows[WORKER.id]["gauges"] == {"in_flight": 3}
        assert 5.0 <= rows[WORKER.id]["gauges_age_s"] < 6.0
        assert rows[HUB.id]["gauges_age_s"] is None

    run(main)


def test_text_of_other_nodes_is_clean():
    async def main(face):
        body = face.shown.views.at(NOW).nodes[WORKER.id].node
        from msgspec.structs import replace

        face.shown.apply(
            WORKER.write(replace(body, prev="\u202e\x1b[2Jgone"), WORKER.id, run=1, rank=Rank.SERVING, seq=5)
        )
        rows = {row["id"]: row for row in (await face.get("/view"))["nodes"]}
        assert "\x1b" not in rows[WORKER.id]["prev"]
        assert "\u202e" not in rows[WORKER.id]["prev"]

    run(main)


# --- watch


async def read_until(lines, condition, held=None):
    """Apply lines of a watch until the tables fulfil a condition."""
    held = {} if held is None else held
    while True:
        line = await asyncio.to_thread(next, lines)
        for table in ("nodes", "replicas", "models", "acts", "gauges"):
            rows = held.setdefault(table, {})
            if line["reset"]:
                rows.clear()
            for key, row in line[table].items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        held["last"] = line
        if condition(held):
            return held


def test_watch_begins_with_everything_and_goes_on_with_what_changes():
    async def main(face):
        lines = face.control.stream("/watch")
        held = await read_until(lines, lambda held: True)
        assert held["last"]["reset"]
        assert set(held["nodes"]) == {HUB.id, WORKER.id}
        face.shown.apply(node_record(WORKER, rank=Rank.LEFT, seq=2))
        await read_until(lines, lambda held: held["nodes"][WORKER.id]["state"] == "LEFT", held)
        assert not held["last"]["reset"]
        assert HUB.id not in held["last"]["nodes"]
        lines.close()

    run(main)


def test_watch_resumes_where_a_view_was_taken():
    async def main(face):
        view = await face.get("/view")
        face.shown.apply(node_record(WORKER, seq=2, draining=True))
        lines = face.control.stream(f"/watch?since={view['epoch']}:{view['version']}")
        line = await asyncio.to_thread(next, lines)
        assert not line["reset"]
        assert set(line["nodes"]) == {WORKER.id}
        lines.close()

    run(main)


def test_watch_of_another_start_begins_anew():
    async def main(face):
        lines = face.control.stream("/watch?since=6:1")
        assert (await asyncio.to_thread(next, lines))["reset"]
        lines.close()

    run(main)


def test_gauges_do_not_repeat_the_rows_of_nodes():
    async def main(face):
        lines = face.control.stream("/watch")
        held = await read_until(lines, lambda held: True)
        face.shown.gauges[WORKER.id] = Gauge({"in_flight": 1}, 0.0)
        await read_until(lines, lambda held: WORKER.id in held["gauges"], held)
        assert held["last"]["nodes"] == {}
        lines.close()

    run(main)


def test_a_reader_that_stops_reading_gets_one_merged_line():
    async def main(face):
        lines = face.control.stream("/watch")
        held = await read_until(lines, lambda held: True)
        for seq in range(2, 200):
            face.shown.apply(node_record(WORKER, seq=seq, draining=bool(seq % 2)))
            await asyncio.sleep(0)
        face.shown.apply(node_record(WORKER, seq=500, rank=Rank.LEFT))
        count = 0

        def seen(held):
            nonlocal count
            count += 1
            return held["nodes"][WORKER.id]["state"] == "LEFT"

        await read_until(lines, seen, held)
        assert count <= 3
        lines.close()

    run(main)


def test_streams_end_with_the_node_and_with_the_reader():
    async def main(face):
        lines = face.control.stream("/watch")
        await asyncio.to_thread(next, lines)
        lines.close()
        async with asyncio.timeout(10.0):
            while face.shown.app._streams._wakes:
                await asyncio.sleep(0.01)
        lines = face.control.stream("/watch")
        await asyncio.to_thread(next, lines)
        face.server.close()
        assert await asyncio.to_thread(list, lines) == []

    run(main)


def test_too_many_streams_are_refused():
    async def main(face):
        face.shown.app._streams._wakes.update(asyncio.Event() for _ in range(MAX_STREAMS))
        assert (await face.refused("/watch")).code == "too_many"

    run(main)


# --- records and acts


def test_a_record_that_is_handed_in_counts():
    async def main(face):
        order = act()
        (result,) = (await face.post("/records", encoded(order)))["results"]
        assert result == {"hash": order.order.hash.hex(), "news": True, "counts": True, "why": ""}
        (row,) = (await face.get("/view"))["acts"]
        assert (row["verb"], row["by_name"], row["in_force"], row["seq"]) == ("drain", "ada", True, 1)

    run(main)


def test_a_record_that_is_held_already_is_no_news_but_counts():
    async def main(face):
        order = act()
        await face.post("/records", encoded(order))
        (result,) = (await face.post("/records", encoded(order)))["results"]
        assert (result["news"], result["counts"]) == (False, True)

    run(main)


def test_an_act_of_somebody_who_may_not_says_why_it_counts_nowhere():
    async def main(face):
        order = act(by=STRANGER)
        (result,) = (await face.post("/records", encoded(order)))["results"]
        assert result["news"]
        assert not result["counts"]
        assert result["why"]
        said = await face.get(f"/act?hash={result['hash']}")
        assert (said["state"], said["detail"]) == ("REFUSED", result["why"])
        assert result["hash"] in {row["hash"] for row in (await face.get("/view"))["refused"]}

    run(main)


def test_a_stranger_who_writes_much_hides_nothing_that_an_operator_wrote():
    async def main(face):
        flood = [
            STRANGER.write(Act(verb="drain", target=f"n{at}", at=NOW), f"drain/n{at}", seq=1)
            for at in range(MAX_REFUSED)
        ]
        void = certificate(STRANGER, by=OPERATOR)
        other = act("evict", by=Person(98))
        face.shown.apply(*flood, void, other)
        view = await face.get("/view")
        shown = [row["hash"] for row in view["refused"]]
        assert view["refused_count"] == MAX_REFUSED + 2
        assert len(shown) == MAX_REFUSED_EACH + 2
        assert shown[0] == void.order.hash.hex()
        assert other.order.hash.hex() in shown

    run(main)


def test_an_act_that_was_overtaken_says_so():
    async def main(face):
        old = act(seq=1)
        await face.post("/records", encoded(old, act("undrain", seq=2)))
        (result,) = (await face.post("/records", encoded(old)))["results"]
        assert not result["counts"]
        assert "later record" in result["why"]
        assert (await face.refused(f"/act?hash={result['hash']}")).code == "no_such_act"

    run(main)


def test_what_is_no_record_is_said_one_by_one():
    async def main(face):
        good = act()
        broken = base64.b64encode(good.raw[:-1] + b"\0").decode()
        answer = await face.post("/records", {"records": ["?!", broken, *encoded(good)["records"]]})
        assert [each["counts"] for each in answer["results"]] == [False, False, True]
        assert all(each["why"] for each in answer["results"][:2])

    run(main)


def test_a_key_is_not_taken_by_a_node_without_the_shelf():
    async def main(face):
        grant = key(label="x", digest=b"d" * 32)
        (result,) = (await face.post("/records", encoded(grant)))["results"]
        assert not result["news"]
        assert "accounts" in result["why"]
        assert not list(face.shown.registry.of_kind("key"))
        assert (await face.refused("/accounts")).code == "no_accounts"
        assert (await face.refused("/records?kind=key")).code == "no_accounts"

    run(main, Shown(accounts=False))


def test_records_can_be_read_by_kind_and_id():
    async def main(face):
        order = act()
        face.shown.apply(order)
        answer = await face.get("/records?kind=act")
        assert (answer["records"], answer["complete"]) == (encoded(order)["records"], True)
        assert (await face.get("/records?kind=act&id=other"))["records"] == []
        assert (await face.refused("/records?kind=secrets")).code == "bad_question"

    run(main)


def test_an_act_is_pending_until_its_hub_holds_it_then_accepted_then_done():
    async def main(face):
        order = act()
        face.shown.apply(order)
        target = f"/act?hash={order.order.hash.hex()}"
        face.shown.held_by = set()
        assert (await face.get(target))["state"] == "PENDING"
        face.shown.held_by = {HUB.id}
        said = await face.get(target)
        assert (said["state"], said["hubs"]) == ("ACCEPTED", ["host10@lab"])
        face.shown.apply(outcome(order, reason="2 requests ended"))
        said = await face.get(target)
        assert (said["state"], said["detail"]) == ("DONE", "2 requests ended")

    run(main)


def test_two_hubs_have_to_hold_an_act_where_there_are_two():
    async def main(face):
        from tests.people import certificate

        second = Person(12)
        order = act()
        face.shown.apply(certificate(second, seq=9), node_record(second, hub=True), order)
        target = f"/act?hash={order.order.hash.hex()}"
        assert (await face.get(target))["state"] == "PENDING"
        face.shown.held_by = {HUB.id, STRANGER.id}
        assert (await face.get(target))["state"] == "PENDING"
        face.shown.held_by = {HUB.id, second.id}
        assert (await face.get(target))["state"] == "ACCEPTED"

    run(main)


def test_only_the_target_says_what_became_of_an_act():
    async def main(face):
        order = act()
        face.shown.apply(order, outcome(order, by=HUB), outcome(order, "refused", by=STRANGER))
        assert (await face.get(f"/act?hash={order.order.hash.hex()}"))["state"] == "ACCEPTED"
        face.shown.apply(outcome(order, "refused", reason="it wraps no engine"))
        said = await face.get(f"/act?hash={order.order.hash.hex()}")
        assert (said["state"], said["detail"]) == ("REFUSED", "it wraps no engine")

    run(main)


def test_an_evict_is_done_when_the_hubs_did_it():
    async def main(face):
        order = act("evict")
        face.shown.apply(order, outcome(order))  # the target's own word does not matter here
        target = f"/act?hash={order.order.hash.hex()}"
        assert (await face.get(target))["state"] == "ACCEPTED"
        face.shown.apply(outcome(order, by=HUB))
        assert (await face.get(target))["state"] == "DONE"

    run(main)


# --- events, accounts


def test_events_are_the_newest_ones_or_those_after_a_number(tmp_path):
    events = log_of(tmp_path)
    for number in range(1, 6):
        events.add(Event(at=float(number), kind="node.joined", subject="n", text=f"event {number}"))

    async def main(face):
        async def texts(target):
            return [each["text"] for each in await asyncio.to_thread(lambda: list(face.control.stream(target)))]

        assert await texts("/events?limit=2") == ["event 4", "event 5"]
        assert await texts("/events?since=1&limit=2") == ["event 2", "event 3"]
        assert await texts("/events?since=99") == []

    run(main, Shown(events=events))


def test_events_are_followed_as_they_come(tmp_path):
    events = log_of(tmp_path)

    async def main(face):
        lines = face.control.stream("/events?follow=1")
        reading = asyncio.ensure_future(asyncio.to_thread(next, lines))
        events.add(Event(at=1.0, kind="model.up", subject="m", text="m is UP"))
        face.shown.app.notice()
        assert (await reading)["text"] == "m is UP"
        lines.close()

    run(main, Shown(events=events))


def test_a_node_without_a_journal_says_so():
    async def main(face):
        assert (await face.refused("/events")).code == "no_events"

    run(main)


def test_accounts_show_keys_without_their_digests():
    async def main(face):
        face.shown.apply(key(label="ci", digest=b"d" * 32, models=("m",)))
        answer = await face.get("/accounts")
        (row,) = answer["keys"]
        assert (row["id"], row["label"], row["models"], row["state"]) == ("k_abc", "ci", ["m"], "active")
        assert "digest" not in row

    run(main)


# --- ask


async def asked(face, node=WORKER.id, question=b"q"):
    body = {"node": node, "question": base64.b64encode(question).decode()}
    return await asyncio.to_thread(lambda: b"".join(face.control.raw("/ask", body)))


def test_an_answer_passes_byte_for_byte():
    async def main(face):
        face.shown.answers[WORKER.id] = lambda question: [b"", b"\x00\xff\n", question * 1000]
        assert await asked(face) == b"\x00\xff\n" + b"q" * 1000
        face.shown.answers[WORKER.id] = lambda question: []
        assert await asked(face) == b""

    run(main)


def test_a_refusal_of_the_asked_node_is_an_error():
    async def main(face):
        face.shown.answers[WORKER.id] = lambda question: [TelaError("not for you", hint="ask ada", code="forbidden")]
        with pytest.raises(TelaError) as caught:
            await asked(face)
        assert (caught.value.code, caught.value.hint) == ("forbidden", "ask ada")

    run(main)


def test_an_answer_that_breaks_is_not_taken_for_whole():
    async def main(face):
        face.shown.answers[WORKER.id] = lambda question: [b"half", TelaError("broke")]
        with pytest.raises(TelaError, match="ended early"):
            await asked(face)

    run(main)


def test_whoever_hangs_up_ends_the_question():
    async def main(face):
        def endless(question):
            while True:
                yield b"more"

        face.shown.answers[WORKER.id] = endless
        body = {"node": WORKER.id, "question": ""}
        parts = face.control.raw("/ask", body)
        await asyncio.to_thread(next, parts)
        parts.close()
        async with asyncio.timeout(10.0):
            while not face.shown.closed:
                await asyncio.sleep(0.01)

    run(main)


# --- bad questions


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/nothing", "not_found"),
        ("/view?x=1", "bad_question"),
        ("/view?%zz&&=", "bad_question"),
        ("/watch?since=7:x", "bad_question"),
        ("/watch?since=1:2&since=1:2", "bad_question"),
        ("/watch?" + "&".join(f"a{n}=1" for n in range(20)), "bad_question"),
        ("/act", "no_such_act"),
        ("/act?hash=zz", "bad_question"),
        ("/act?hash=00", "no_such_act"),
        ("/events?limit=-1", "bad_question"),
        ("/events?limit=99999", "bad_question"),
        ("/ask", "method_not_allowed"),
    ],
)
def test_a_bad_question_is_answered_in_words(target, code):
    async def main(face):
        error = await face.refused(target)
        assert error.code == code
        assert error.message

    run(main)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"records": "x"},
        {"records": [1]},
        {"records": [], "force": True},
        {"records": ["eA=="] * 65},
        {"records": ["A" * 2_000_000]},
    ],
)
def test_a_bad_body_is_answered_in_words(body):
    async def main(face):
        assert (await face.refused("/records", body)).code in {"bad_question", "too_large"}
        assert (await face.get("/self"))["version"] == "0"

    run(main)


def test_an_invite_is_published_like_any_record():
    async def main(face):
        token = Person(50)
        invite = offer(
            Invite(key=token.key, provider="lab", roles=("worker",), accept_by=NOW + 1), OPERATOR.key, OPERATOR.sign
        )
        (result,) = (await face.post("/records", encoded(invite)))["results"]
        assert result["counts"]

    run(main)


def test_a_member_may_drain_the_own_node():
    async def main(face):
        (result,) = (await face.post("/records", encoded(act(by=MEMBER))))["results"]
        assert result["counts"]

    run(main)
