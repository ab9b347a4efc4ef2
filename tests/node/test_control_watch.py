"""Conflation and resumption: whatever is read when, the reader ends up with the same rows."""

from hypothesis import given
from hypothesis import strategies as st

from node.control.watch import Conflator

TABLES = ("nodes", "models")
ROWS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), max_size=6)
STATES = st.fixed_dictionaries({"nodes": ROWS, "models": ROWS})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), STATES),
        st.tuples(st.just("read"), st.integers(0, 2)),  # a reader takes what is new
        st.tuples(st.just("lose"), st.integers(0, 2)),  # an answer is lost on the way; the reader resumes from before
        st.tuples(st.just("restart"), st.just(0)),  # the node starts again, with another epoch
    ),
    max_size=40,
)


class Reader:
    """What somebody at the other end of the socket holds."""

    def __init__(self):
        self.epoch, self.version = "", 0
        self.tables = {name: {} for name in TABLES}

    def read(self, conflator):
        changes = conflator.since(self.epoch, self.version)
        self.epoch, self.version = changes.epoch, changes.version
        for name, rows in changes.tables.items():
            if changes.is_reset:
                self.tables[name] = {}
            for key, row in rows.items():
                if row is None:
                    self.tables[name].pop(key, None)
                else:
                    self.tables[name][key] = row
        return changes


@given(STEPS, st.integers(0, 3))
def test_any_interleaving_of_updates_and_reads_leads_to_the_same_rows(steps, max_gone):
    starts = 1
    conflator = Conflator("e1", TABLES, max_gone=max_gone)
    readers = [Reader() for _ in range(3)]
    state = {name: {} for name in TABLES}
    for verb, what in steps:
        if verb == "update":
            conflator.update(what)
            state = what
        elif verb == "read":
            readers[what].read(conflator)
            assert readers[what].tables == state
        elif verb == "lose":
            conflator.since(readers[what].epoch, readers[what].version)
        else:
            starts += 1
            conflator = Conflator(f"e{starts}", TABLES, max_gone=max_gone)
            conflator.update(state)
    for reader in readers:
        reader.read(conflator)
        assert reader.tables == state


@given(st.lists(STATES, min_size=1, max_size=10))
def test_a_slow_reader_gets_each_row_once(states):
    conflator, reader = Conflator("e", TABLES), Reader()
    conflator.update({"nodes": {"first": 0}, "models": {}})
    reader.read(conflator)
    for state in states:
        conflator.update(state)
    changes = reader.read(conflator)
    assert not changes.is_reset
    assert {name: {k: v for k, v in rows.items() if v is not None} for name, rows in changes.tables.items()} == {
        name: {k: v for k, v in rows.items() if k in changes.tables[name]} for name, rows in states[-1].items()
    }


@given(STATES)
def test_what_is_the_same_is_no_news(state):
    conflator = Conflator("e", TABLES)
    conflator.update(state)
    version = conflator.version
    assert not conflator.update({name: dict(rows) for name, rows in state.items()})
    assert conflator.version == version
    assert conflator.since("e", version).is_empty


def test_a_reader_of_another_start_is_told_to_forget_what_it_had():
    conflator = Conflator("now", TABLES)
    conflator.update({"nodes": {"a": 1}, "models": {}})
    assert conflator.since("before", 1).is_reset


def test_a_version_from_the_future_is_answered_with_everything():
    conflator = Conflator("e", TABLES)
    conflator.update({"nodes": {"a": 1}, "models": {}})
    changes = conflator.since("e", 99)
    assert changes.is_reset
    assert changes.tables["nodes"] == {"a": 1}


def test_rows_that_went_are_not_remembered_without_bound():
    conflator = Conflator("e", TABLES, max_gone=5)
    for number in range(100):
        conflator.update({"nodes": {f"n{number}": 1}, "models": {}})
    assert len(conflator._tables["nodes"]) == 6
    assert conflator.since("e", 1).is_reset
    assert conflator.since("e", conflator.version - 1).tables["nodes"] == {"n99": 1, "n98": None}
