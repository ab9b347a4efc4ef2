"""The fleet as rows and as one page."""

import pytest

from console.views.fleet import model_rows, next_step, node_rows, replica_rows, state_of, summary, where
from console.views.table import plain

NODE = {
    "id": "n1",
    "name": "host1@lab",
    "session": "host1@lab/7",
    "host": "host1",
    "slot": 0,
    "state": "SERVING",
    "draining": False,
    "suspect": False,
    "evicted": False,
    "roles": ["worker"],
    "gauges": {},
    "platform": None,
    "gpus": [],
    "started": 100.0,
}
REPLICA = {
    "id": "n1/e0",
    "node": "n1",
    "session": "host1@lab/7",
    "slot": "e0",
    "state": "SERVING",
    "draining": False,
    "models": ["org/m"],
    "why_not": "",
    "phase": "",
}
MODEL = {"id": "org/m", "state": "UP", "routable": 1, "wanted": 1, "families": ["chat"], "context_tokens": None}
ABOUT = {
    "node": {"name": "host1@lab", "run": 7, "rank": "SERVING", "draining": False},
    "pid": 4,
    "hubs": {"known": 2, "linked": 1},
    "links": [],
    "engines": [],
    "url": "",
    "http": "",
    "warnings": [],
}


def view(*, nodes=(NODE,), replicas=(REPLICA,), models=(MODEL,), **more):
    fabric = {"name": "lab", "id": "f"}
    return {
        "fabric": fabric,
        "at": 160.0,
        "nodes": nodes,
        "replicas": replicas,
        "models": models,
        "refused": [],
        "refused_count": 0,
        "forks": [],
        **more,
    }


def page(about=ABOUT, **parts):
    return summary(view(**parts), about)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "SERVING"),
        ({"draining": True}, "DRAINING"),
        ({"draining": True, "state": "LEFT"}, "LEFT"),
        ({"suspect": True, "draining": True}, "SUSPECT"),
        ({"evicted": True, "suspect": True}, "EVICTED"),
    ],
)
def test_of_several_things_that_are_true_of_a_node_the_most_urgent_is_said(changes, state):
    assert state_of({**NODE, **changes}) == state


def test_a_node_is_shown_with_what_it_serves_its_load_and_its_age():
    (row,) = node_rows(view(nodes=[{**NODE, "gauges": {"in_flight": 3}}]), everything=False)
    assert (row["name"], row["serves"], row["load"], row["up"]) == ("host1@lab", "org/m", "3 req", "60 s")


def test_names_are_shown_as_they_are_for_each_names_one_node():
    second = {**NODE, "id": "n2", "name": "host1-1@lab", "slot": 1}
    assert [row["name"] for row in node_rows(view(nodes=[second, NODE]), everything=False)] == [
        "host1@lab",
        "host1-1@lab",
    ]


def test_those_that_left_are_shown_when_everything_is_wanted():
    left = view(nodes=[NODE, {**NODE, "id": "n2", "state": "LEFT"}])
    assert len(node_rows(left, everything=False)) == 1
    assert len(node_rows(left, everything=True)) == 2


def test_an_evicted_node_serves_nothing_and_is_nothing():
    (row,) = node_rows(view(nodes=[{**NODE, "evicted": True, "roles": []}]), everything=False)
    assert (row["state"], row["serves"], row["roles"]) == ("EVICTED", "", "none")


def test_where_a_node_runs_is_its_job_its_end_and_its_gpus():
    platform = {"kind": "slurm", "job": "41_3", "ends_at": 1_800_000_000.0}
    gpus = [{"count": 4, "name": "H100", "memory_b": 80 * 2**30}]
    assert (
        where({**NODE, "platform": platform, "gpus": gpus}) == "slurm 41_3 until 2027-01-15 08:00 UTC · 4x H100 80 GiB"
    )


def test_models_say_how_many_of_how_many_are_ready():
    assert model_rows(view())[0]["ready"] == "1/1"


def test_replicas_say_why_they_take_no_requests_and_those_gone_are_left_out():
    rows = replica_rows(
        view(replicas=[{**REPLICA, "why_not": "draining", "draining": True}, {**REPLICA, "state": "LEFT"}])
    )
    assert [(row["state"], row["why"]) for row in rows] == [("DRAINING", "draining")]


# --- the page


def test_the_page_sums_up_fabric_hubs_nodes_and_models():
    assert page() == [
        "lab · this node host1@lab/7 SERVING, pid 4",
        "hubs      1 of 2 linked",
        "nodes     1 SERVING",
        "models    1 UP",
        "          org/m UP 1/1",
    ]


def test_a_hub_says_that_it_is_one():
    assert page({**ABOUT, "links": ["ws://h:1"]})[1] == "hubs      1 of 2 linked, and this node is one"
    alone = {**ABOUT, "links": ["ws://h:1"], "hubs": {"known": 0, "linked": 0}}
    assert page(alone)[1] == "hubs      this node is the only one"


def test_a_node_that_drains_says_so():
    about = {**ABOUT, "node": {**ABOUT["node"], "draining": True}}
    assert "host1@lab/7 DRAINING" in page(about)[0]


def test_models_in_trouble_come_first_and_many_are_cut():
    models = [{**MODEL, "id": f"m{at:02}"} for at in range(25)] + [{**MODEL, "id": "z", "state": "DOWN", "routable": 0}]
    lines = page(models=models)
    assert lines[4] == "          z DOWN 0/1"
    assert lines[-1] == "          and 6 more: tela models"


def test_what_somebody_should_look_at_stands_with_its_remedy():
    warning = {
        "code": "evicted",
        "severity": "error",
        "text": "this node was evicted by ada: x",
        "remedy": "ask an operator",
    }
    assert page({**ABOUT, "warnings": [warning]})[-2:] == [
        "error     this node was evicted by ada: x",
        "          ask an operator",
    ]


def test_engines_show_phase_and_what_is_under_way():
    engine = {"slot": "e0", "state": "JOIN", "models": [], "phase": "loading 12 s", "in_flight": 0}
    busy = {**engine, "slot": "e1", "state": "SERVING", "phase": "", "models": ["m"], "in_flight": 1}
    lines = page({**ABOUT, "engines": [engine, busy]})
    assert lines[-2:] == ["engine    e0 JOIN: loading 12 s", "engine    e1 SERVING m, 1 request"]


def test_records_that_count_nowhere_and_forks_are_counted():
    lines = page(refused_count=1, forks=["a", "b"])
    assert lines[-2].startswith("refused   1 record of no effect")
    assert lines[-1].startswith("fork      2 charters not followed")


def test_an_empty_fabric_says_what_comes_next_and_one_with_models_does_not():
    assert "tela start --process" in next_step(view(models=()))
    assert not next_step(view())
    assert "models    none" in page(models=())


HOSTILE = "\x1b[2J\u202e\n"


def hostile(row):
    """A row in which every text is somebody's who means harm."""
    texts = {
        key: HOSTILE for key, value in row.items() if isinstance(value, str) and key not in {"state", "node", "id"}
    }
    lists = {key: [HOSTILE] for key, value in row.items() if isinstance(value, list) and value}
    return {**row, **texts, **lists}


def test_nothing_that_others_wrote_drives_the_terminal_or_adds_a_line():
    platform = {"kind": HOSTILE, "job": HOSTILE, "ends_at": 1.0}
    gpus = [{"count": 1, "name": HOSTILE, "memory_b": 1}]
    parts = {
        "nodes": [{**hostile(NODE), "platform": platform, "gpus": gpus}],
        "replicas": [hostile(REPLICA)],
        "models": [{**hostile(MODEL), "id": HOSTILE}],
    }
    warning = {"severity": "error", "text": HOSTILE, "remedy": HOSTILE}
    engine = {"slot": HOSTILE, "state": "JOIN", "models": [HOSTILE], "phase": HOSTILE, "in_flight": 1}
    about = {**ABOUT, "node": hostile(ABOUT["node"]), "warnings": [warning], "engines": [engine], "url": HOSTILE}
    rows = (node_rows(view(**parts), everything=True), model_rows(view(**parts)), replica_rows(view(**parts)))
    tables = [plain(each, tuple(each[0]), width=60) for each in rows]
    assert [len(text.splitlines()) for text in tables] == [2, 2, 2]
    assert all(line.isprintable() for text in tables for line in text.splitlines())
    assert all(line.isprintable() for line in page(about, **parts))
