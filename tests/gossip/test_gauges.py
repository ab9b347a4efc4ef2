"""Who is told what of gauges, and how often. Whole fabrics of them are at the end, in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.frames import GaugeRow, Gauges, Subscribe, decode
from gossip.gauges import EACH_S, MAX_NODES, GaugeBoard
from gossip.line import Contact
from tests.people import Person
from tests.sim import Sim, Weather

ME, HUB, OTHER_HUB, LEAF, OTHER_LEAF = (Person(number) for number in range(650, 655))
HUBS = {HUB, OTHER_HUB}
ON, OFF = Subscribe(on=True), Subscribe(on=False)


class Board:
    """A board under test; links are the numbers of the people behind them."""

    def __init__(self, *links: Person, is_hub=False):
        self.board = GaugeBoard(ME.id, is_hub=is_hub)
        self.now = 0.0
        self.said: list = []
        for person in links:
            self.up(person)

    def up(self, person: Person):
        contact = Contact(person.key, person in HUBS, False, person.key)
        return self.note(self.board.link_up(person.number, contact, self.now))

    def down(self, person: Person):
        return self.note(self.board.link_down(person.number))

    def measure(self, **values: int):
        return self.note(self.board.measure(values, self.now))

    def subscribed_by(self, person: Person, frame=ON):
        return self.note(self.board.on_subscribe(person.number, frame, self.now))

    def hear(self, person: Person, about: Person | None = None, *, age_s=0.0, **values: int):
        row = GaugeRow((about or person).id, int(age_s * 1000), values)
        return self.note(self.board.on_gauges(person.number, Gauges((row,)), self.now))

    def wait(self, seconds: float):
        """Let time pass, each flush at its time."""
        end, out = self.now + seconds, []
        while (due := self.board.next_deadline()) is not None and due <= end:
            self.now = max(due, self.now)
            out += self.note(self.board.flush(self.now))
        self.now = end
        return out

    def note(self, sends):
        """What is sent: link, and the values by node or the subscription."""
        out = []
        for send in sends:
            frame = decode(send.frame)
            out.append((send.link, frame if isinstance(frame, Subscribe) else {r.node: r.values for r in frame.rows}))
        return out

    def values(self):
        return {node: gauge.values for node, gauge in self.board.all().items()}


def test_what_is_measured_goes_to_hubs_and_to_no_leaf():
    board = Board(HUB, LEAF)
    assert board.measure(queue=1) == [(HUB.number, {ME.id: {"queue": 1}})]
    assert board.values() == {ME.id: {"queue": 1}}


def test_the_same_again_costs_nothing():
    board = Board(HUB)
    board.measure(queue=1)
    board.wait(EACH_S * 2)
    assert not board.measure(queue=1)
    assert board.board.next_deadline() is None


def test_changes_within_two_seconds_go_out_as_the_last_of_them():
    board = Board(HUB)
    board.measure(queue=1)
    assert not board.measure(queue=2)
    assert not board.measure(queue=3)
    assert not board.wait(EACH_S - 0.01)
    assert board.wait(0.01) == [(HUB.number, {ME.id: {"queue": 3}})]


def test_a_change_that_was_undone_in_time_is_never_told():
    board = Board(HUB)
    board.measure(queue=1)
    board.measure(queue=2)
    board.measure(queue=1)
    assert not board.wait(EACH_S * 2)


def test_a_new_hub_is_told_what_is_so_now_and_once():
    board = Board()
    board.measure(queue=1)
    assert board.up(HUB) == [(HUB.number, {ME.id: {"queue": 1}})]
    assert not board.wait(EACH_S * 2)


def test_a_leaf_that_subscribed_is_told_until_it_takes_that_back():
    board = Board(LEAF)
    board.measure(queue=1)
    assert board.subscribed_by(LEAF) == [(LEAF.number, {ME.id: {"queue": 1}})]
    board.wait(EACH_S)
    assert board.measure(queue=2)
    board.subscribed_by(LEAF, OFF)
    board.wait(EACH_S)
    assert not board.measure(queue=3)


@pytest.mark.parametrize(
    "values",
    [{"Queue": 1}, {"": 1}, {"a" * 25: 1}, {"queue\n": 1}, {"queue": 2**53 + 1}, {f"q{'_' * n}": n for n in range(17)}],
    ids=["capital", "empty", "long", "newline", "large", "seventeen"],
)
def test_what_no_frame_takes_is_refused(values):
    with pytest.raises(ValueError, match="gauge"):
        Board().board.measure(values, 0.0)


# --- hubs


def test_a_hub_passes_on_to_subscribers_and_never_back():
    board = Board(HUB, LEAF, OTHER_LEAF, is_hub=True)
    board.subscribed_by(OTHER_LEAF)
    board.subscribed_by(LEAF)
    assert board.hear(LEAF, queue=4) == [(OTHER_LEAF.number, {LEAF.id: {"queue": 4}})]


def test_a_leaf_passes_nothing_on():
    board = Board(HUB, LEAF)
    board.subscribed_by(LEAF)
    board.board.subscribe(0.0, on=True)
    assert not board.hear(HUB, OTHER_LEAF, queue=4)


def test_a_subscriber_is_told_at_most_every_two_seconds_however_many_nodes_change():
    board = Board(LEAF, OTHER_LEAF, HUB, is_hub=True)
    board.subscribed_by(LEAF)
    told = [board.hear(OTHER_LEAF, queue=n) + board.hear(HUB, load=n) + board.wait(0.1) for n in range(100)]
    frames = [frame for batch in told for link, frame in batch if link == LEAF.number]
    assert 5 <= len(frames) <= 6  # ten seconds
    assert frames[-1].keys() == {OTHER_LEAF.id, HUB.id}


def test_a_subscriber_is_told_all_at_first():
    board = Board(LEAF, OTHER_LEAF, is_hub=True)
    board.hear(OTHER_LEAF, queue=4)
    board.measure(load=1)
    assert board.subscribed_by(LEAF)[-1] == (LEAF.number, {OTHER_LEAF.id: {"queue": 4}, ME.id: {"load": 1}})


def test_a_subscriber_that_asks_again_is_told_all_again_but_not_at_once():
    board = Board(LEAF, OTHER_LEAF, is_hub=True)
    board.hear(OTHER_LEAF, queue=4)
    board.subscribed_by(LEAF)
    assert not board.subscribed_by(LEAF)
    assert board.wait(EACH_S) == [(LEAF.number, {OTHER_LEAF.id: {"queue": 4}})]


def test_a_hub_asks_other_hubs_only_while_a_leaf_wants_to_know():
    board = Board(HUB, LEAF, is_hub=True)
    assert board.subscribed_by(LEAF) == [(HUB.number, ON)]
    assert board.up(OTHER_HUB) == [(OTHER_HUB.number, ON)]
    assert board.subscribed_by(LEAF, OFF) == [(HUB.number, OFF), (OTHER_HUB.number, OFF)]


def test_a_hub_that_is_asked_by_a_hub_asks_no_further():
    board = Board(HUB, OTHER_HUB, is_hub=True)
    assert not board.subscribed_by(HUB)


def test_what_came_through_a_hub_goes_to_leaves_and_to_no_hub():
    board = Board(HUB, OTHER_HUB, LEAF, is_hub=True)
    for reader in (HUB, OTHER_HUB, LEAF):
        board.subscribed_by(reader)
    assert board.hear(HUB, OTHER_LEAF, queue=4) == [(LEAF.number, {OTHER_LEAF.id: {"queue": 4}})]


def test_a_lost_hub_takes_what_it_told_and_the_others_are_asked_again():
    board = Board(HUB, OTHER_HUB)
    board.board.subscribe(0.0, on=True)
    board.hear(HUB, LEAF, queue=4)
    assert board.down(HUB) == [(OTHER_HUB.number, ON)]
    assert board.values() == {}


# --- what others say


def test_a_node_speaks_for_itself_alone():
    board = Board(LEAF, is_hub=True)
    board.hear(LEAF, OTHER_LEAF, queue=4)
    board.hear(LEAF, ME, queue=4)
    assert board.values() == {}


def test_a_hub_tells_of_others_only_where_that_was_asked_for():
    board = Board(HUB)
    board.hear(HUB, LEAF, queue=4)
    assert board.values() == {}
    board.board.subscribe(0.0, on=True)
    board.hear(HUB, LEAF, queue=4)
    board.hear(HUB, ME, queue=4)
    assert board.values() == {LEAF.id: {"queue": 4}}


def test_nothing_that_was_passed_on_replaces_what_the_node_says_itself():
    board = Board(HUB, LEAF)
    board.board.subscribe(0.0, on=True)
    board.hear(LEAF, queue=1)
    board.hear(HUB, LEAF, queue=9)
    assert board.values() == {LEAF.id: {"queue": 1}}


def test_of_two_hubs_the_younger_word_counts():
    board = Board(HUB, OTHER_HUB)
    board.board.subscribe(0.0, on=True)
    board.now = 10.0
    board.hear(HUB, LEAF, queue=2, age_s=1.0)
    board.hear(OTHER_HUB, LEAF, queue=1, age_s=3.0)
    assert board.values() == {LEAF.id: {"queue": 2}}
    board.hear(OTHER_HUB, LEAF, queue=3, age_s=0.5)
    assert board.board.all()[LEAF.id] == ({"queue": 3}, 9.5)


def test_a_gauge_keeps_its_age_on_the_way():
    board = Board(LEAF, OTHER_LEAF, is_hub=True)
    board.hear(LEAF, age_s=1.0, queue=4)
    board.now = 5.0
    (send,) = board.board.on_subscribe(OTHER_LEAF.number, ON, 5.0)
    frame = decode(send.frame)
    assert isinstance(frame, Gauges)
    assert frame.rows[0].age_ms == 6_000


def test_one_that_makes_up_nodes_fills_a_bounded_part_and_pushes_no_neighbour_out():
    board = Board(HUB, LEAF)
    board.board.subscribe(0.0, on=True)
    board.hear(LEAF, queue=1)
    for number in range(MAX_NODES + 100):
        board.now += 1.0
        row = GaugeRow(f"{number:024d}".translate(str.maketrans("0123456789", "abcdefghij")), 0, {"queue": number})
        board.board.on_gauges(HUB.number, Gauges((row,)), board.now)
    assert len(board.values()) <= MAX_NODES
    assert board.values()[LEAF.id] == {"queue": 1}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["up", "down", "measure", "on", "off", "hear", "relay", "wait", "want", "rest"]),
        st.sampled_from([HUB, OTHER_HUB, LEAF, OTHER_LEAF]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(STEPS, st.booleans())
def test_nobody_is_told_twice_within_two_seconds_and_after_a_flush_nothing_is_overdue(steps, is_hub):
    board = Board(is_hub=is_hub)
    told: dict[int, float] = {}
    for what, person, number in steps:
        match what:
            case "up":
                told.pop(person.number, None)
                out = board.up(person)
            case "down":
                out = board.down(person)
            case "measure":
                out = board.measure(queue=number)
            case "on" | "off":
                out = board.subscribed_by(person, Subscribe(on=what == "on"))
            case "hear":
                out = board.hear(person, queue=number)
            case "relay":
                out = board.hear(person, LEAF, queue=number)
            case "want" | "rest":
                out = board.note(board.board.subscribe(board.now, on=what == "want"))
            case _:
                board.now += number * 0.7
                out = board.note(board.board.flush(board.now))
        for link in {link for link, frame in out if not isinstance(frame, Subscribe)}:
            assert board.now >= told.get(link, float("-inf")) + EACH_S - 1e-6
            told[link] = board.now
        due = board.board.next_deadline()
        assert due is None or due > board.now or what == "down"


# --- in a fabric


def values(node):
    return {name: gauge.values for name, gauge in node.peer.gauges.all().items()}


def test_gauges_reach_hubs_at_once_and_subscribers_of_any_hub():
    sim = Sim(hubs=4, leaves=8, weather=Weather(jitter_s=0.002))
    sim.run(10.0)
    *_, busy, watcher = sim.nodes
    sim.measure(busy, queue=3)
    linked = {node.id for node in busy.links.values()}
    sim.run(0.1)
    assert {node.id for node in sim.nodes if values(node).get(busy.id)} == linked | {busy.id}
    sim.subscribe(watcher)
    sim.run(0.1)
    assert values(watcher)[busy.id] == {"queue": 3}
    sim.run(3.0)
    sim.measure(busy, queue=4)
    sim.run(5.0)
    assert values(watcher)[busy.id] == {"queue": 4}


def test_gauges_that_do_not_change_cost_nothing():
    def sent(*, watched):
        sim = Sim(hubs=2, leaves=6)
        for at, node in enumerate(sim.nodes):
            sim.measure(node, queue=at)
        if watched:
            sim.subscribe(sim.nodes[-1])
        sim.run(30.0)
        before = sim.sent
        for node in sim.nodes:
            sim.measure(node, queue=sim.nodes.index(node))
        sim.run(60.0)
        return sim.sent - before

    assert sent(watched=True) == sent(watched=False)


def test_a_subscriber_that_lost_one_hub_learns_all_from_the_other():
    sim = Sim(hubs=2, leaves=4)
    sim.run(10.0)
    *_, busy, watcher = sim.nodes
    sim.subscribe(watcher)
    sim.measure(busy, queue=3)
    sim.run(3.0)
    sim.crash(sim.nodes[0])
    sim.run(3.0)
    assert values(watcher)[busy.id] == {"queue": 3}
