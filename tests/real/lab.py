"""A fabric of ada's with kim's nodes in it, in a real Slurm: what the tests of docs/getting-started.md ask of it."""

import json
import re
import time
from collections.abc import Iterable
from typing import Any

from tests.real.slurm import Slurm
from tests.real.walk import Walk

MODEL = "org/model"
TASKS = 8
START_S = 90.0  # eight Pythons and eight engines on two cores
END_S = 40.0

Row = dict[str, Any]


class Lab:
    """The page and who walks it, and the cluster under it. What is said of nodes is what kim sees.

    Mutable: `claim` and `env` are known once they were printed.
    """

    def __init__(self, walk: Walk, cluster: Slurm) -> None:
        self.walk = walk
        self.ada, self.kim = walk.people["ada"], walk.people["kim"]
        self.cluster = cluster
        self.claim = ""
        self.env: dict[str, str] = {}  # what `tela keys claim` printed

    def nodes(self) -> list[Row]:
        """All that have not left."""
        return self.kim.rows("tela nodes --json")

    def workers(self) -> list[Row]:
        """Those that wrap an engine."""
        return [row for row in self.nodes() if row["roles"] == ["worker"]]

    def row(self, node: str) -> Row:
        """One node, by its id."""
        return next(row for row in self.kim.rows("tela nodes --all --json") if row["id"] == node)

    def name_of(self, node: Row) -> str:
        """What a node is called: its name, or its session where several have that name."""
        names = [row["name"] for row in self.nodes()]
        return str(node["name"] if names.count(node["name"]) == 1 else node["session"])

    def slots(self) -> list[int]:
        """The slots of kim's nodes, the observer's too: the first free one each, as they came."""
        return sorted(row["slot"] for row in self.nodes() if row["provider"] == "chem")

    def runs(self) -> dict[str, int]:
        """The run of every node of kim's that the fabric remembers, by its id."""
        return {row["id"]: row["run"] for row in self.kim.rows("tela nodes --all --json") if row["provider"] == "chem"}

    def of_tasks(self, tasks: Iterable[str]) -> set[str]:
        """The ids of the nodes that array tasks are, by what the nodes say of their job."""
        wanted = set(tasks)
        return {row["id"] for row in self.workers() if row["platform"]["job"] in wanted}

    def until_all_serve(self) -> None:
        """Wait as a reader does: until `tela models` shows that all can be called."""
        all_ready = re.compile(rf"^{MODEL} +UP +{TASKS}/{TASKS} ", re.MULTILINE)
        self.walk.again("kim", "tela models", lambda out: all_ready.search(out) is not None, START_S)

    def until_left(self, nodes: set[str]) -> None:
        """Wait until nodes have said LEFT."""

        def have_left(out: str) -> bool:
            states = {row["id"]: row["state"] for row in map(json.loads, out.splitlines())}
            return all(states[node] == "LEFT" for node in nodes)

        self.walk.again("kim", "tela nodes --all --json", have_left, END_S)

    def until_no_tasks(self, ended: Iterable[str]) -> None:
        """Wait until Slurm no longer knows array tasks."""
        deadline = time.monotonic() + END_S
        while left := self.cluster.tasks().keys() & set(ended):
            assert time.monotonic() < deadline, left
            time.sleep(0.2)
