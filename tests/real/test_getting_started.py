"""docs/getting-started.md, typed line by line, with a real Slurm under it; and what happens when its jobs end.

What differs from the page: `login1` is this host, the ports are free ones, the fabric's name has a number behind it
(the account may have nodes of another `lab` here), CLAIM, k_… and host1@chem are what was printed before. `vllm` is
a script that starts the demo engine with the same arguments; the real one has a test of its own, and eight of them do
not fit on two cores. Handing over a file (the invite, the job script) is a copy.
"""

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.real import slurm
from tests.real.callers import Calls, calling
from tests.real.lab import MODEL, START_S, TASKS, Lab
from tests.real.walk import Person, Walk

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
CALLERS = 16  # two for each replica: something is under way at all of them
LIMIT_S = 12 * 3600  # of array.sbatch
REVOKED_S = 5.0  # what is promised
VLLM = """\
#!/bin/sh
# Stands in for vLLM: the same command line, and 20 words in 0.3 s.
[ "$1" = serve ] && model=$2 && shift 2
exec {python} -I -m node.engine.demo --model "$model" --first-ms 100 --delay-ms 10 "$@"
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    if why := slurm.reason_not_here():
        assert not (os.environ.get("CI") and os.geteuid() == 0), f"there has to be a Slurm in CI: {why}"
        pytest.skip(f"NO SLURM, so nobody types docs/getting-started.md: {why}")
    with slurm.running() as cluster, walking(tmp_path_factory.mktemp("lab"), cluster) as walk:
        yield founded(walk, cluster)


@contextmanager
def walking(root: Path, cluster: slurm.Slurm) -> Iterator[Walk]:
    """The page and its people; nodes that they leave behind are ended."""
    programs, passphrase = root / "bin", root / "passphrase"
    programs.mkdir()
    (programs / "vllm").write_text(VLLM.format(python=sys.executable))
    (programs / "vllm").chmod(0o755)
    passphrase.write_text("correct horse\n")
    passphrase.chmod(0o600)
    path = [programs, Path(sys.executable).parent]
    people = {
        "ada": Person("ada", root, path, {"TELA_PASSPHRASE_FILE": str(passphrase)}),
        "kim": Person("kim", root, path, cluster.env),
    }
    door, links = map(str, slurm.free_ports(2))
    instead = {"login1": socket.gethostname(), "7480": door, "7481": links, "init lab": f"init lab{os.getpid()}"}
    try:
        yield Walk((ROOT / "docs" / "getting-started.md").read_text(), people, instead)
    finally:
        for person in reversed(people.values()):
            person.type("tela stop --all --now")


def founded(walk: Walk, cluster: slurm.Slurm) -> Lab:
    lab = Lab(walk, cluster)
    walk.through("tela status")
    walk.through("tela invite")
    shutil.copy(lab.ada.home / "invite.txt", lab.kim.home)
    lab.claim = walk.through("tela keys create").out.strip()
    shutil.copy(ROOT / "assets" / "slurm" / "array.sbatch", lab.kim.home)
    walk.through("sbatch")
    walk.through("tela start --role observer")
    lab.until_all_serve()
    return lab


def test_a_new_admin_and_a_new_researcher_get_there_by_typing_the_page(lab):
    _eight_nodes(lab)
    _called(lab)
    _cut_and_drained(lab)
    _in_control(lab)
    _ended(lab)
    assert lab.walk.left == []


def _eight_nodes(lab: Lab) -> None:
    lab.walk.through("tela models")
    eight = lab.workers()
    assert len(eight) == TASKS
    assert lab.slots() == list(range(TASKS + 1))
    assert {row["state"] for row in eight} == {"SERVING"}
    assert {row["platform"]["kind"] for row in eight} == {"slurm"}
    assert {row["platform"]["job"] for row in eight} == set(lab.cluster.tasks())
    assert all(abs(row["platform"]["ends_at"] - row["started"] - LIMIT_S) < 60 for row in eight)


def _called(lab: Lab) -> None:
    lab.walk.fill("CLAIM", lab.claim)
    printed = lab.walk.through("tela keys claim").out
    lab.env = dict(line.split("=", 1) for line in printed.splitlines())
    assert lab.walk.through("tela try").out.strip()


def _cut_and_drained(lab: Lab) -> None:
    """A plain scancel ends engines at once: others answer what was whole. Told alone, tela drains: streams end."""
    tasks = sorted(lab.cluster.tasks())
    with _calling(lab, whole=CALLERS) as calls:
        _end_under_load(lab, calls, tasks[:2])
    assert calls.failed == []
    with _calling(lab, whole=CALLERS // 2, streams=CALLERS // 2) as calls:
        _end_under_load(lab, calls, tasks[2:4], "--batch", "--signal=TERM")
    assert calls.failed == []


def _calling(lab: Lab, *, whole: int, streams: int = 0) -> AbstractContextManager[Calls]:
    return calling(lab.env["OPENAI_BASE_URL"], lab.env["OPENAI_API_KEY"], MODEL, whole=whole, streams=streams)


def _end_under_load(lab: Lab, calls: Calls, tasks: list[str], *how: str) -> None:
    nodes = lab.of_tasks(tasks)
    calls.until_answered()
    lab.cluster.run("scancel", *how, *tasks)
    lab.until_left(nodes)
    calls.until_answered()


def _in_control(lab: Lab) -> None:
    node = lab.workers()[0]
    lab.walk.fill("host1@chem", lab.name_of(node))
    lab.walk.through("tela drain")
    assert lab.row(node["id"])["draining"]
    lab.walk.through("tela undrain")
    assert not lab.row(node["id"])["draining"]
    lab.walk.through("tela evict")
    assert lab.row(node["id"])["evicted"]
    lab.walk.through("tela evict")
    assert not lab.row(node["id"])["evicted"]
    for order in ("drain", "undrain"):
        assert lab.kim.type(f"tela {order} {lab.name_of(node)}").code == 0
    listed = lab.walk.through("tela keys list").out
    lab.walk.fill("k_…", re.findall(r"^(k_\w+) +active +kim", listed, re.MULTILINE)[0])
    lab.walk.through("tela keys revoke")
    deadline = time.monotonic() + REVOKED_S
    while lab.kim.type(f"tela try {MODEL}").code == 0:
        assert time.monotonic() < deadline


def _ended(lab: Lab) -> None:
    gone = lab.of_tasks(lab.cluster.tasks())
    assert len(gone) == TASKS // 2
    lab.walk.through("scancel")
    lab.until_left(gone)
    assert lab.workers() == []
    lab.walk.through("tela stop")
    lab.walk.through("tela stop")
    farewells = [path.read_text() for path in lab.kim.home.glob("tela-*.log")]
    assert len(farewells) == TASKS
    assert all("left after" in farewell for farewell in farewells)


def test_a_second_array_takes_the_same_slots_and_leaves_no_ghosts(lab):
    _all_stopped(lab)
    before = _all_started(lab)
    assert len(before) == TASKS + 1
    _same_nodes_again(lab, before)
    assert {row["prev"] for row in lab.nodes()} == {"left"}


def test_tasks_that_were_killed_outright_leave_no_ghosts_either(lab):
    if not lab.cluster.tasks():
        _all_started(lab)
    before = lab.runs()
    killed = sorted(lab.cluster.tasks())[: TASKS // 2]
    lab.cluster.kill_outright(killed)
    lab.until_no_tasks(killed)
    lab.walk.repeat("sbatch", f"--array=1-{len(killed)}")
    lab.walk.again("kim", "tela nodes --json", lambda out: out.count('"prev": "lost"') >= len(killed), START_S)
    lab.until_all_serve()
    _same_nodes_again(lab, before)
    assert [row["prev"] for row in lab.nodes()].count("lost") == len(killed)


def _same_nodes_again(lab: Lab, before: dict[str, int]) -> None:
    after = lab.runs()
    assert lab.slots() == list(range(TASKS + 1))
    assert set(after) == set(before)
    assert all(run >= before[node] for node, run in after.items())
    assert len(lab.nodes()) == TASKS + 2


def _all_stopped(lab: Lab) -> None:
    if tasks := lab.cluster.tasks():
        lab.cluster.run("scancel", "--batch", "--signal=TERM", *tasks)
        lab.until_no_tasks(tasks)
    for person in (lab.kim, lab.ada):
        person.type("tela stop --all")


def _all_started(lab: Lab) -> dict[str, int]:
    """Type again what starts everything; returns the runs that were remembered before the array's."""
    lab.walk.repeat("tela start --role ingress")
    lab.walk.repeat("tela start --role observer")
    before = lab.runs()
    lab.walk.repeat("sbatch")
    lab.until_all_serve()
    return before
