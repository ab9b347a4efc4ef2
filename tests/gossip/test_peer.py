"""The brain alone: frames and time in, instructions out. Whole fabrics of it are in `test_sim`."""

from contextlib import suppress
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip import line as constants
from gossip.errors import RemoteProtocolError
from gossip.frames import Bye, Entries, Gauges, Ping, Records, Subscribe, Sum, Want, batches, decode, encode
from gossip.instructions import Drop, Instruction, Send
from gossip.line import Contact
from gossip.peer import GRACE_S, LAST_REPAIR_S, MAX_REASONS, PING_S, REFUTE_S, REPAIR_S, SILENT_S, Peer
from registry.author import Author
from registry.digest import BUCKETS, DIGEST_B, slot_of
from registry.kinds import Doubt, Node
from registry.lifecycle import Rank
from registry.record import Audience, Draft, Record, seal
from registry.record import decode as decode_record
from tests.gossip.test_frames import FRAMES
from tests.people import MEMBER, Person, doubt_record, node_record, registry_of, replica_record

WALL = 1_800_000_000.0
ME, HUB, OTHER_HUB, LEAF, OTHER_LEAF = (Person(number) for number in range(600, 605))
HUBS = {HUB, OTHER_HUB}
BODY = Node(host="me", member=MEMBER.key, roles=("worker",))
ZEROS = Sum(0, bytes(BUCKETS * DIGEST_B))


class Brain:
    """One peer under test, its links numbered from 1, and what it said last."""

    def __init__(self, person=ME, *, is_hub=False, accounts=False, knows=(), announced=True):
        self.person = person
        self.replica = registry_of(*knows)
        self.author = Author(person.key, person.sign, 1)
        self.peer = Peer(replica=self.replica, author=self.author, is_hub=is_hub, accounts=accounts)
        self.now = 0.0
        self._numbers = count(1)
        if announced:
            self.peer.announce(BODY, Rank.SERVING)

    def up(self, who: Person, *, accounts=False, dialled_by=None, link=None) -> int:
        link = link or next(self._numbers)
        contact = Contact(who.key, who in HUBS, accounts, (dialled_by or who).key)
        self.said = self.peer.link_up(link, contact, self.now, WALL)
        return link

    def hear(self, link: int, frame) -> list[Instruction]:
        data = frame if isinstance(frame, bytes) else encode(frame)
        return self.peer.receive(link, data, self.now, WALL)

    def learn(self, link: int, *records: Record) -> list[Instruction]:
        return [each for batch in batches(record.raw for record in records) for each in self.hear(link, batch)]

    def wait(self, seconds: float) -> list[Instruction]:
        """Let time pass, each timer at its time."""
        out: list[Instruction] = []
        end = self.now + seconds
        while (due := self.peer.next_deadline()) is not None and due <= end:
            self.now = due
            out += self.peer.tick(due, WALL)
        self.now = end
        return out

    def doubts(self) -> dict[str, bool]:
        """What it holds about whom it doubts: whether the doubt was withdrawn."""
        entries = self.replica.of_kind("doubt")
        return {
            entry.record.key.id: entry.body.cleared
            for entry in entries
            if entry.record.key.owner == self.person.key and isinstance(entry.body, Doubt)
        }


def frames(instructions, kind=None, link=None):
    """The frames of one kind, with their link."""
    sends = [(each.link, decode(each.frame)) for each in instructions if isinstance(each, Send)]
    return [(at, frame) for at, frame in sends if (kind is None or isinstance(frame, kind)) and link in {None, at}]


def pushed(instructions, link=None) -> list[tuple[int, bytes]]:
    return [(at, raw) for at, frame in frames(instructions, Records, link) for raw in frame.raws]


def told(instructions, record: Record) -> set[int]:
    """The links a record was sent on."""
    return {at for at, raw in pushed(instructions) if raw == record.raw}


def drops(instructions) -> list[Drop]:
    return [each for each in instructions if isinstance(each, Drop)]


def opaque(owner: Person, subject="x", *, kind="future-thing", audience=Audience.PUBLIC, body=b"\x00\xffnot json"):
    return seal(Draft(kind, subject, body, audience=audience), owner.key, owner.sign)


def ping(brain: Brain, root: bytes | None = None, *, wall=WALL) -> Ping:
    """A ping that shows the same public root, or another."""
    return Ping((root or brain.replica.shelves[Audience.PUBLIC].digest.root(),), wall)


# --- pushing


def test_what_is_written_here_goes_out_on_every_link():
    brain = Brain()
    links = {brain.up(HUB), brain.up(OTHER_HUB), brain.up(LEAF)}
    record = replica_record(ME)
    assert told(brain.peer.publish(record), record) == links


def test_what_was_published_before_is_not_sent_again():
    brain = Brain()
    brain.up(HUB)
    record = replica_record(ME)
    brain.peer.publish(record)
    assert not brain.peer.publish(record)


def test_a_leaf_forwards_nothing():
    brain = Brain()
    link = brain.up(HUB)
    brain.up(OTHER_HUB)
    news = replica_record(OTHER_LEAF)
    assert not brain.learn(link, news)
    assert brain.replica.get(news.key) is not None


def test_a_hub_forwards_what_a_leaf_said_to_everyone_else():
    brain = Brain(is_hub=True)
    frm, leaf, hub = brain.up(LEAF), brain.up(OTHER_LEAF), brain.up(HUB)
    news = replica_record(LEAF)
    assert told(brain.learn(frm, news), news) == {leaf, hub}


def test_a_hub_forwards_what_a_hub_said_to_leaves_and_not_to_the_hubs_that_one_told_itself():
    brain = Brain(is_hub=True, knows=[node_record(HUB, hub=True, hubs=(ME.id, OTHER_HUB.id))])
    frm, leaf, _ = brain.up(HUB), brain.up(LEAF), brain.up(OTHER_HUB)
    news = replica_record(OTHER_LEAF)
    assert told(brain.learn(frm, news), news) == {leaf}


def test_a_hub_forwards_to_a_hub_that_the_sender_has_no_link_to():
    brain = Brain(is_hub=True, knows=[node_record(HUB, hub=True, hubs=(ME.id,))])
    frm, leaf, hub = brain.up(HUB), brain.up(LEAF), brain.up(OTHER_HUB)
    news = replica_record(OTHER_LEAF)
    assert told(brain.learn(frm, news), news) == {leaf, hub}


def test_a_record_is_forwarded_once_however_often_it_comes():
    brain = Brain(is_hub=True)
    frm, _ = brain.up(LEAF), brain.up(OTHER_LEAF)
    news = replica_record(LEAF)
    assert brain.learn(frm, news)
    assert not brain.learn(frm, news)


def test_an_older_record_is_not_forwarded():
    brain = Brain(is_hub=True)
    frm, _ = brain.up(LEAF), brain.up(OTHER_LEAF)
    brain.learn(frm, replica_record(LEAF, seq=5))
    assert not brain.learn(frm, replica_record(LEAF, seq=4))


def test_an_unknown_kind_is_kept_and_forwarded_byte_for_byte():
    brain = Brain(is_hub=True)
    frm, leaf = brain.up(HUB), brain.up(LEAF)
    strange = opaque(OTHER_LEAF)
    assert pushed(brain.learn(frm, strange)) == [(leaf, strange.raw)]
    held = brain.replica.get(strange.key)
    assert held is not None
    assert held.record.raw == strange.raw


def test_a_new_link_is_told_own_records_and_pinged_and_nothing_of_others():
    brain = Brain(knows=[node_record(LEAF)])
    own = replica_record(ME)
    brain.peer.publish(own)
    link = brain.up(OTHER_LEAF)
    assert told(brain.said, own) == {link}
    owners = {decode_record(raw).key.owner for _, raw in pushed(brain.said)}
    assert owners == {ME.key}
    assert len(frames(brain.said, Ping, link)) == 1


# --- refused records


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (node_record(LEAF).raw[:-1] + bytes((node_record(LEAF).raw[-1] ^ 1,)), "signature"),
        (LEAF.write(BODY, OTHER_LEAF.id).raw, "not its owner's"),
        (seal(Draft("node", LEAF.id, b'{"host": 5}'), LEAF.key, LEAF.sign).raw, "node:"),
        (opaque(LEAF, audience=Audience.ACCOUNTS).raw, "not shared"),
        (b"", "version"),
        (b"\x02" + node_record(LEAF).raw[1:], "version"),
    ],
    ids=["signature", "another's id", "body", "accounts shelf", "empty", "envelope"],
)
def test_a_refused_record_is_counted_and_neither_applied_nor_forwarded(raw, reason):
    brain = Brain(is_hub=True)
    frm, _ = brain.up(LEAF), brain.up(OTHER_LEAF)
    before = brain.replica.version
    assert not brain.hear(frm, Records((raw,)))
    assert brain.replica.version == before
    ((counted, times),) = brain.peer.refused.items()
    assert reason in counted
    assert times == 1


def test_a_refused_record_does_not_hold_up_the_others_in_its_frame():
    brain = Brain(is_hub=True)
    frm, leaf = brain.up(LEAF), brain.up(OTHER_LEAF)
    good = node_record(LEAF)
    out = brain.hear(frm, Records((b"junk", good.raw, b"")))
    assert pushed(out) == [(leaf, good.raw)]


def test_reasons_a_writer_made_up_do_not_pile_up():
    brain = Brain()
    link = brain.up(LEAF)
    for number in range(3 * MAX_REASONS):
        body = b'{"host":"h","roles":[],"made-up-%d":1}' % number
        brain.learn(link, seal(Draft("node", LEAF.id, body, seq=number), LEAF.key, LEAF.sign))
    assert len(brain.peer.refused) <= MAX_REASONS + 1
    assert sum(brain.peer.refused.values()) == 3 * MAX_REASONS


# --- the accounts shelf


PRIVATE = opaque(ME, audience=Audience.ACCOUNTS)


def test_own_records_of_the_accounts_shelf_never_leave_on_a_public_link():
    brain = Brain(accounts=True)
    before = brain.up(LEAF)
    assert not told(brain.peer.publish(PRIVATE), PRIVATE)
    after = brain.up(HUB)
    assert not told(brain.said, PRIVATE)
    assert before != after


def test_own_records_of_the_accounts_shelf_leave_where_both_ends_hold_the_grant():
    brain = Brain(accounts=True)
    early = brain.up(HUB, accounts=True)
    assert told(brain.peer.publish(PRIVATE), PRIVATE) == {early}
    late = brain.up(OTHER_HUB, accounts=True)
    assert told(brain.said, PRIVATE) == {late}


@pytest.mark.parametrize(("ours", "theirs"), [(True, False), (False, True), (False, False)])
def test_one_grant_is_not_enough_to_show_ask_for_or_send_the_accounts_shelf(ours, theirs):
    brain = Brain(is_hub=True, accounts=ours, knows=[PRIVATE])
    link = brain.up(HUB, accounts=theirs)
    ((_, said),) = frames(brain.said, Ping)
    assert len(said.roots) == 1
    for frame in (Sum(1, ZEROS.sums), Entries(1, 0, b""), Want(1, slot_of(PRIVATE.key))):
        with pytest.raises(RemoteProtocolError, match="accounts"):
            brain.hear(link, frame)
    other = brain.up(OTHER_HUB, accounts=True)
    assert not told(brain.learn(link, opaque(LEAF, audience=Audience.ACCOUNTS)), PRIVATE)
    assert not pushed(brain.wait(PING_S), other)


def test_with_both_grants_the_accounts_shelf_is_repaired_and_forwarded_to_those_who_hold_it():
    brain = Brain(is_hub=True, accounts=True, knows=[PRIVATE])
    link, leaf, granted = brain.up(HUB, accounts=True), brain.up(LEAF), brain.up(OTHER_HUB, accounts=True)
    assert told(brain.hear(link, Want(1, slot_of(PRIVATE.key))), PRIVATE) == {link}
    news = opaque(OTHER_LEAF, audience=Audience.ACCOUNTS)
    assert told(brain.learn(link, news), news) == {granted}
    assert leaf != granted


# --- two links to one node


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("there_first", [True, False])
def test_of_two_links_both_ends_drop_the_same_one_whichever_came_first(order, there_first):
    here, there = Brain(ME), Brain(HUB)
    small = min(ME, HUB, key=lambda person: person.key)
    links = {1: ME, 2: HUB}
    lost: dict[str, set[int]] = {}
    for brain, other, numbers in ((here, HUB, order), (there, ME, order if there_first else order[::-1])):
        for at in numbers:
            brain.up(other, link=at + 1, dialled_by=links[at + 1])
            for drop in drops(brain.said):
                assert drop.reason == "duplicate"
                assert (drop.link, Bye("duplicate")) in frames(brain.said)
                brain.peer.link_down(drop.link, brain.now)
                lost.setdefault(brain.person.id, set()).add(drop.link)
    kept = next(number for number, person in links.items() if person is small)
    assert lost == {ME.id: {3 - kept}, HUB.id: {3 - kept}}
    assert not here.doubts()
    assert here.wait(SILENT_S / 2) is not None
    assert not here.doubts()


def test_a_refused_duplicate_does_not_replace_the_live_link():
    first, second = sorted((ME, HUB), key=lambda person: person.key)
    brain = Brain()
    kept = brain.up(HUB, dialled_by=first)
    refused = brain.up(HUB, dialled_by=second)
    assert drops(brain.said) == [Drop(refused, "duplicate")]
    brain.peer.link_down(refused, brain.now)
    record = replica_record(ME)
    assert told(brain.peer.publish(record), record) == {kept}


# --- silence, doubt and return


def test_a_link_is_pinged_every_two_seconds():
    brain = Brain()
    link = brain.up(HUB)
    seen = []
    for _ in range(3):
        brain.peer.heard(link, brain.now)
        seen += frames(brain.wait(PING_S), Ping)
    assert [at for at, _ in seen] == [link] * 3


def test_a_silent_link_is_dropped_without_waiting_for_it_and_its_node_doubted_after_the_grace():
    brain = Brain(knows=[node_record(HUB, hub=True)])
    link = brain.up(HUB)
    assert not drops(brain.wait(SILENT_S - 0.01))
    assert drops(brain.wait(0.01)) == [Drop(link, "silent", is_clean=False)]
    assert not brain.doubts()
    brain.wait(GRACE_S)
    assert brain.doubts() == {HUB.id: False}


@pytest.mark.parametrize("sign", ["frame", "record"])
def test_anything_that_is_heard_keeps_a_link(sign):
    brain = Brain()
    link = brain.up(HUB)
    for _ in range(4):
        assert not drops(brain.wait(SILENT_S - 0.5))
        if sign == "frame":
            brain.hear(link, b"\xf0a frame of the future")
        else:
            brain.peer.heard(link, brain.now)


def test_a_doubt_names_the_run_and_record_that_was_known():
    brain = Brain(knows=[node_record(LEAF, run=7, seq=9)])
    link = brain.up(LEAF)
    observer = brain.up(HUB)
    brain.peer.link_down(link, brain.now)
    (raw,) = [raw for _, raw in pushed(brain.wait(GRACE_S), observer)]
    entry = brain.replica.get(decode_record(raw).key)
    assert entry is not None
    assert isinstance(entry.body, Doubt)
    assert (entry.record.key.id, entry.body.run, entry.body.seq) == (LEAF.id, 7, 9)


def test_a_node_that_is_back_within_the_grace_is_never_doubted():
    brain = Brain(knows=[node_record(LEAF)])
    brain.peer.link_down(brain.up(LEAF), brain.now)
    brain.wait(GRACE_S / 2)
    brain.up(LEAF)
    brain.wait(GRACE_S)
    assert not brain.doubts()


def test_a_doubt_is_withdrawn_when_its_node_is_linked_again():
    brain = Brain(knows=[node_record(LEAF)])
    observer = brain.up(HUB)
    brain.peer.link_down(brain.up(LEAF), brain.now)
    brain.wait(GRACE_S)
    assert brain.doubts() == {LEAF.id: False}
    brain.up(LEAF)
    assert brain.doubts() == {LEAF.id: True}
    assert any(decode_record(raw).key.kind == "doubt" for _, raw in pushed(brain.said, observer))


def test_a_node_with_another_link_is_not_doubted():
    brain = Brain(knows=[node_record(HUB, hub=True)])
    first, second = sorted((ME, HUB), key=lambda person: person.key)
    worse = brain.up(HUB, dialled_by=second)
    brain.up(HUB, dialled_by=first)
    brain.peer.link_down(worse, brain.now)
    brain.wait(GRACE_S)
    assert not brain.doubts()


@pytest.mark.parametrize("knows", [[node_record(LEAF, rank=Rank.LEFT)], []], ids=["left", "never heard of"])
def test_a_node_that_left_or_was_never_known_is_not_doubted(knows):
    brain = Brain(knows=knows)
    brain.peer.link_down(brain.up(LEAF), brain.now)
    brain.wait(GRACE_S * 2)
    assert not brain.doubts()


def test_a_node_whose_farewell_comes_on_another_way_within_the_grace_is_not_doubted():
    brain = Brain(knows=[node_record(LEAF)])
    other = brain.up(HUB)
    brain.peer.link_down(brain.up(LEAF), brain.now)
    brain.learn(other, node_record(LEAF, rank=Rank.LEFT, seq=2))
    brain.wait(GRACE_S * 2)
    assert not brain.doubts()


# --- doubts about this node


def own_seq(brain: Brain) -> int:
    return max(entry.record.order.seq for entry in brain.replica.of_kind("node") if entry.record.key.id == ME.id)


def test_a_doubt_about_this_node_is_answered_with_a_newer_record_of_itself():
    brain = Brain()
    link = brain.up(HUB)
    before = own_seq(brain)
    brain.learn(link, doubt_record(LEAF, ME, target_seq=before))
    out = brain.wait(0.0)
    assert own_seq(brain) == before + 1
    assert [decode_record(raw).order.seq for _, raw in pushed(out, link)] == [before + 1]


def test_doubts_about_this_node_are_answered_once_a_second_at_most():
    brain = Brain()
    link = brain.up(HUB)
    before = own_seq(brain)
    for number in range(1, 41):
        brain.learn(link, doubt_record(LEAF, ME, target_seq=own_seq(brain), seq=number))
        brain.wait(REFUTE_S / 10)
        brain.peer.heard(link, brain.now)
    assert own_seq(brain) - before in {4, 5}


@pytest.mark.parametrize("stale", [{"target_seq": 0}, {"run": 0, "target_seq": 99}, {"cleared": True}])
def test_a_doubt_that_is_void_or_withdrawn_needs_no_answer(stale):
    brain = Brain()
    link = brain.up(HUB)
    before = own_seq(brain)
    brain.learn(link, doubt_record(LEAF, ME, **{"target_seq": before, **stale}))
    brain.wait(REFUTE_S)
    assert own_seq(brain) == before


def test_several_probers_of_one_loss_get_one_answer():
    brain = Brain()
    link = brain.up(HUB)
    before = own_seq(brain)
    for prober in (HUB, OTHER_HUB, LEAF):
        brain.learn(link, doubt_record(prober, ME, target_seq=before))
        brain.wait(0.01)
    brain.wait(REFUTE_S * 3)
    assert own_seq(brain) == before + 1


def test_a_doubt_about_someone_else_is_none_of_its_business():
    brain = Brain(knows=[node_record(OTHER_LEAF)])
    link = brain.up(HUB)
    before = own_seq(brain)
    brain.learn(link, doubt_record(LEAF, OTHER_LEAF))
    brain.wait(REFUTE_S)
    assert own_seq(brain) == before


# --- what it says of itself


@pytest.mark.parametrize(
    ("first", "then"), [(Rank.SERVING, Rank.JOIN), (Rank.DOWN, Rank.SERVING), (Rank.LEFT, Rank.SERVING)]
)
def test_a_run_cannot_go_back_in_rank(first, then):
    brain = Brain(announced=False)
    brain.peer.announce(BODY, first)
    with pytest.raises(ValueError, match="cannot go"):
        brain.peer.announce(BODY, then)
    brain.peer.announce(BODY, first)


def test_it_says_which_hubs_it_is_linked_to_and_again_when_that_changes():
    brain = Brain()

    def said():
        entry = next(entry for entry in brain.replica.of_kind("node") if entry.record.key.id == ME.id)
        assert isinstance(entry.body, Node)
        return entry.body.hubs

    brain.up(LEAF)
    assert said() == ()
    link = brain.up(HUB)
    assert said() == (HUB.id,)
    assert any(decode_record(raw).key.kind == "node" for _, raw in pushed(brain.said, link))
    brain.peer.link_down(link, brain.now)
    assert said() == ()


def test_leaving_says_left_and_goodbye_on_every_link_and_nothing_brings_it_back():
    brain = Brain()
    links = {brain.up(HUB), brain.up(LEAF)}
    out = brain.peer.leave()
    assert {at for at, frame in frames(out, Bye) if frame == Bye("left")} == links
    assert {decode_record(raw).order.rank for _, raw in pushed(out)} == {Rank.LEFT}
    order = [type(frame) for _, frame in frames(out)]
    assert order.index(Records) < order.index(Bye)
    for link in links:
        brain.peer.link_down(link, brain.now)
    brain.up(OTHER_HUB)
    ranks = [entry.record.order.rank for entry in brain.replica.of_kind("node") if entry.record.key.id == ME.id]
    assert ranks == [Rank.LEFT]


def test_a_node_that_announced_nothing_has_nothing_to_take_back():
    brain = Brain(announced=False)
    link = brain.up(HUB)
    assert frames(brain.peer.leave()) == [(link, Bye("left"))]


def test_only_hubs_say_what_time_it_is():
    brain = Brain()
    hub, leaf = brain.up(HUB), brain.up(LEAF)
    brain.hear(hub, ping(brain, wall=WALL + 5.0))
    brain.hear(leaf, ping(brain, wall=WALL + 500.0))
    assert brain.peer.offsets() == [5.0]


# --- another run of the own key


@pytest.mark.parametrize("run", [1, 2])
def test_a_record_of_the_own_node_that_this_run_did_not_write_is_of_another_run(run):
    brain = Brain()
    link = brain.up(HUB)
    other = node_record(ME, run=run, seq=99)
    brain.learn(link, other)
    assert brain.peer.superseded == other


def test_neither_own_records_nor_older_runs_nor_those_of_others_supersede():
    brain = Brain()
    link = brain.up(HUB)
    own = next(entry.record for entry in brain.replica.of_kind("node"))
    brain.learn(link, own, node_record(ME, run=0, seq=99), node_record(LEAF, run=9), replica_record(ME, run=9))
    assert brain.peer.superseded is None


def test_who_was_superseded_says_goodbye_and_does_not_say_left_for_the_other():
    brain = Brain()
    link = brain.up(HUB)
    brain.learn(link, node_record(ME, run=1, seq=99))
    assert frames(brain.peer.leave()) == [(link, Bye("left"))]


# --- turning away


def test_a_node_that_is_turned_away_is_told_why_and_not_doubted():
    brain = Brain(knows=[node_record(LEAF)])
    link = brain.up(LEAF)
    out = brain.peer.expel(link, "evicted")
    assert (frames(out), drops(out)) == ([(link, Bye("evicted"))], [Drop(link, "evicted")])
    brain.peer.link_down(link, brain.now)
    brain.wait(GRACE_S * 2)
    assert not brain.doubts()


@pytest.mark.parametrize(("reason", "doubted"), [("evicted", {}), ("left", {HUB.id: False}), ("else", {HUB.id: False})])
def test_a_goodbye_to_a_node_that_is_not_wanted_raises_no_doubt_in_it(reason, doubted):
    brain = Brain(knows=[node_record(HUB, hub=True)])
    link = brain.up(HUB)
    brain.hear(link, Bye(reason))
    brain.peer.link_down(link, brain.now)
    brain.wait(GRACE_S * 2)
    assert brain.doubts() == doubted


# --- gauges


def test_gauges_go_out_at_once_and_then_by_the_timer():
    brain = Brain()
    link = brain.up(HUB)
    brain.wait(1.0)  # so that it is not the next ping's timer
    assert frames(brain.peer.gauges.measure({"queue": 1}, brain.now), Gauges, link)
    assert not brain.peer.gauges.measure({"queue": 2}, brain.now)
    ((_, frame),) = frames(brain.wait(2.0), Gauges, link)
    assert frame.rows[0].values == {"queue": 2}


def test_who_subscribes_on_a_link_is_told():
    brain = Brain()
    link = brain.up(LEAF)
    brain.peer.gauges.measure({"queue": 1}, brain.now)
    ((_, frame),) = frames(brain.hear(link, Subscribe(on=True)), Gauges, link)
    assert (frame.rows[0].node, frame.rows[0].values) == (ME.id, {"queue": 1})


# --- repair


SMALL, LARGE = sorted((ME, HUB), key=lambda person: person.key)
FOREIGN = b"\xaa" * 16


def test_equal_roots_ask_for_nothing():
    brain = Brain(LARGE)
    link = brain.up(SMALL)
    assert not brain.hear(link, ping(brain))


def test_the_end_with_the_larger_key_begins_at_the_first_difference_and_the_other_at_the_second():
    large, small = Brain(LARGE), Brain(SMALL)
    assert frames(large.hear(large.up(SMALL), ping(large, FOREIGN)), Sum)
    link = small.up(LARGE)
    assert not small.hear(link, ping(small, FOREIGN))
    assert frames(small.hear(link, ping(small, FOREIGN)), Sum)


def test_agreement_in_between_makes_the_next_difference_a_first_one_again():
    small = Brain(SMALL)
    link = small.up(LARGE)
    small.hear(link, ping(small, FOREIGN))
    small.hear(link, ping(small))
    assert not small.hear(link, ping(small, FOREIGN))


def openings(brain: Brain, link: int, seconds: float) -> list[float]:
    """When repairs began while the other end kept showing another root twice a second."""
    began = []
    end = brain.now + seconds
    while brain.now < end:
        if frames(brain.hear(link, ping(brain, FOREIGN)), Sum):
            began.append(brain.now)
        brain.wait(0.5)
    return began


def test_repairs_that_bring_nothing_become_rare():
    brain = Brain(LARGE)
    link = brain.up(SMALL)
    began = openings(brain, link, 600.0)
    gaps = [after - before for before, after in pairwise(began)]
    assert gaps[:4] == [REPAIR_S, 2 * REPAIR_S, 4 * REPAIR_S, 8 * REPAIR_S]
    assert max(gaps) == gaps[-1] == LAST_REPAIR_S


def test_a_repair_that_brings_something_is_followed_up_at_once():
    brain = Brain(LARGE)
    link = brain.up(SMALL)
    openings(brain, link, 100.0)
    brain.learn(link, node_record(LEAF))
    for _ in range(60):
        brain.wait(LAST_REPAIR_S / 60)
        brain.peer.heard(link, brain.now)
    first, second = openings(brain, link, 4.0)[:2]
    assert second - first == REPAIR_S


def test_a_peer_that_asks_for_everything_again_and_again_soon_waits():
    records = [opaque(LEAF, f"r{number}", body=b"x" * 3_000) for number in range(400)]
    brain = Brain(knows=records)
    link = brain.up(LEAF)
    want = Want(0, b"".join(slot_of(record.key) for record in records))
    drawn = [sum(len(raw) for _, raw in pushed(brain.hear(link, want))) for _ in range(100)]
    assert drawn[0] > 1_000_000
    assert drawn[-1] == 0
    assert sum(drawn) <= constants.ANSWER_B + 100_000
    brain.wait(1.0)
    again = sum(len(raw) for _, raw in pushed(brain.hear(link, want)))
    assert again > 0


def test_one_greedy_peer_does_not_use_up_what_the_others_may_ask():
    brain = Brain(knows=[opaque(LEAF, f"r{number}", body=b"x" * 3_000) for number in range(400)])
    greedy, modest = brain.up(LEAF), brain.up(HUB)
    while frames(brain.hear(greedy, ZEROS)):
        pass
    assert frames(brain.hear(modest, ZEROS), Entries)


# --- frames


@pytest.mark.parametrize("data", [b"", b"\x01junk", encode(Ping((), 0.0))[:-1]])
def test_a_malformed_frame_is_the_peers_fault(data):
    brain = Brain()
    link = brain.up(HUB)
    with pytest.raises(RemoteProtocolError):
        brain.hear(link, data)


@given(st.lists(FRAMES, max_size=20))
def test_whatever_frames_a_peer_sends_it_is_answered_or_at_fault(said):
    brain = Brain(is_hub=True, knows=[node_record(OTHER_LEAF)])
    link, other = brain.up(LEAF), brain.up(HUB)
    for frame in said:
        with suppress(RemoteProtocolError):
            for answer in brain.hear(link, frame):
                assert answer.link in {link, other}
        assert (brain.peer.next_deadline() or 0.0) >= brain.now


def test_a_frame_on_a_link_that_is_gone_is_dropped():
    brain = Brain()
    link = brain.up(HUB)
    brain.peer.link_down(link, brain.now)
    assert not brain.learn(link, node_record(LEAF))
    assert brain.replica.get(node_record(LEAF).key) is None


def test_a_goodbye_ends_the_link_for_its_reason():
    brain = Brain()
    link = brain.up(HUB)
    assert brain.hear(link, Bye("left")) == [Drop(link, "left")]


# --- timers


def test_with_nothing_to_wait_for_there_is_no_deadline():
    brain = Brain()
    assert brain.peer.next_deadline() is None
    brain.peer.link_down(brain.up(LEAF), brain.now)
    assert brain.peer.next_deadline() is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("up"), st.integers(0, 3)),
        st.tuples(st.just("down"), st.integers(1, 12)),
        st.tuples(st.just("hear"), st.integers(1, 12)),
        st.tuples(st.just("doubt"), st.integers(1, 12)),
        st.tuples(st.just("due"), st.just(0)),
        st.tuples(st.just("wait"), st.floats(0.0, 5.0)),
    ),
    max_size=40,
)


@given(STEPS, st.floats(0.0, 1e9))
def test_after_a_tick_the_next_deadline_lies_ahead_whatever_happened(steps, start):
    others = (HUB, OTHER_HUB, LEAF, OTHER_LEAF)
    brain = Brain(is_hub=True, knows=[node_record(person, hub=person in HUBS) for person in others])
    brain.now = start
    for number, (what, value) in enumerate(steps):
        if what == "up":
            brain.up(others[value])
            for drop in drops(brain.said):
                brain.peer.link_down(drop.link, brain.now)
        elif what == "down":
            brain.peer.link_down(value, brain.now)
        elif what == "hear":
            brain.hear(value, ping(brain, FOREIGN))
        elif what == "doubt":
            brain.learn(value, doubt_record(LEAF, ME, target_seq=own_seq(brain), seq=number + 1))
        elif what == "due":
            brain.now = max(brain.now, brain.peer.next_deadline() or 0.0)
        else:
            brain.now += value
        brain.peer.tick(brain.now, WALL)
        due = brain.peer.next_deadline()
        assert due is None or due > brain.now
