"""A control API on a real socket, over a registry made from numbers."""

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from console.client import Control
from node.control.app import ControlApp
from node.control.schema import FabricName, HubCount, SelfNode, SelfView
from node.control.server import ControlServer
from node.control.source import Source
from node.eventlog import EventLog
from registry.errors import TelaError
from registry.views import Views
from tests.people import FABRIC, Person, node_record, registry_of, replica_record

NOW = 1_800_000_000.0
HUB, WORKER = Person(10), Person(11)


class Gauge(NamedTuple):
    values: dict[str, int]
    at: float


def about():
    return SelfView(
        fabric=FabricName(id=FABRIC.hex(), name="testfabric"),
        node=SelfNode(
            id=HUB.id, name="host10@lab", host="host10", slot=0, run=1, roles=("ingress",), rank="SERVING",
            draining=False, provider="lab", until=None,
        ),
        version="0", pid=1, started=0.0, state_dir="/s", log="", http="", url="", links=(), linked=(),
        hubs=HubCount(known=1, linked=0), clock_offset_s=0.0, engines=(), warnings=(), member="m", accounts=True,
        superseded=False,
    )  # fmt: skip


class Shown:
    """One node as the control API sees it: a hub, and a worker with a replica beside it."""

    def __init__(self, *records, accounts=True, events=None):
        self.registry = registry_of(
            node_record(HUB, hub=True), node_record(WORKER), replica_record(WORKER), *records, nodes=(HUB, WORKER)
        )
        self.views = Views(self.registry, FABRIC)
        self.gauges = {}
        self.held_by = {HUB.id}
        self.answers = {}
        self.closed = []
        self.source = Source(
            about=about,
            snapshot=lambda: self.views.at(NOW),
            replica=self.registry,
            fabric_id=FABRIC,
            epoch="7",
            fabric=lambda: NOW,
            now=lambda: asyncio.get_running_loop().time(),
            node=HUB.id,
            accounts=accounts,
            publish=lambda records: [self.registry.apply(record) for record in records],
            events=events,
            gauges=lambda: self.gauges,
            holders=self._holders,
            ask=self._ask,
        )
        self.app = ControlApp(self.source)

    def apply(self, *records):
        for record in records:
            self.registry.apply(record)
        self.app.notice()

    async def _holders(self, digest):
        return frozenset(self.held_by)

    async def _ask(self, node, question):
        try:
            for part in self.answers[node](question):
                if isinstance(part, TelaError):
                    raise part
                yield part
                await asyncio.sleep(0)
        finally:
            self.closed.append(node)


class Face(NamedTuple):
    """A client at the socket; blocking, so it runs in threads."""

    control: Control
    shown: Shown
    server: ControlServer

    async def get(self, target):
        return await asyncio.to_thread(self.control.get, target)

    async def post(self, target, body):
        return await asyncio.to_thread(self.control.post, target, body)

    async def refused(self, target, body=None):
        """The error a question is answered with."""
        try:
            await (self.get(target) if body is None else self.post(target, body))
        except TelaError as error:
            return error
        raise AssertionError(f"{target} was answered")


@asynccontextmanager
async def serving(shown):
    """The API of a node on a socket until the block ends."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        server = ControlServer(shown.app, Path(name) / "run" / "lab-h-0.sock")
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.serve())
            try:
                yield Face(Control(server.path), shown, server)
            finally:
                server.close()
                await asyncio.wait([task], timeout=10.0)
        assert not server.path.exists()


def log_of(tmp_path):
    return EventLog.open(tmp_path / "events")
