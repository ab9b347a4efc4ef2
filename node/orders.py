"""Carries out the acts that concern this node, and says in a record what became of them.

Who may give an order is decided in `registry.validity`; what stands in `Standing.acts` counts. Here is only what to
do: a node drains and restarts itself, a hub turns away whom an act evicts or revokes.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from gossip.mesh import Mesh
from node.events import evicted_by
from registry.acts import needs, subject
from registry.author import Author
from registry.clock import LEEWAY_S
from registry.errors import TelaError
from registry.kinds import Act, Outcome
from registry.record import Record
from registry.replica import Replica
from registry.validity import Standing

log = logging.getLogger(f"tela.{__name__}")


class Todo(NamedTuple):
    """An act this node has to carry out."""

    record: Record
    act: Act


class Fleet(Protocol):
    """What orders are about on this node."""

    async def drained(self) -> str:
        """Wait until nothing is under way; say how much there was."""

    async def restart(self, reason: str) -> str:
        """Start every engine anew; say which.

        Raises:
            TelaError: when it cannot be done here.
        """


def due(standing: Standing, node: str, handled: set[bytes], *, is_hub: bool) -> list[Todo]:
    """The acts in force that this node carries out and has not yet. Pure."""
    return [
        Todo(record, act)
        for record, act in standing.acts.values()
        if record.order.hash not in handled
        and ((needs(act.verb) == "target" and act.target == node) or (needs(act.verb) == "hubs" and is_hub))
    ]


def is_past(act: Act, run: int, started: float) -> bool:
    """Whether this run began after an order to begin anew, which is carried out then. Pure.

    Args:
        act: the order.
        run: of this node.
        started: when that began, unix seconds.
    """
    if act.verb != "restart":
        return False
    return act.run < run if act.run else act.at < started - LEEWAY_S


def is_done(act: Act, replica: Replica, owner: bytes) -> bool:
    """Whether a later order to begin anew was carried out already: an earlier one may stand again after it. Pure.

    Args:
        act: the order.
        replica: with what came of others.
        owner: the key of the node they were about.
    """
    name = subject(act.verb, act.target)
    return act.verb == "restart" and any(
        act.at < entry.body.at - LEEWAY_S
        for entry in replica.of_kind("outcome")
        if entry.record.key.owner == owner
        and entry.record.key.id == name
        and isinstance(entry.body, Outcome)
        and entry.body.state == "done"
    )


def answered(replica: Replica, owner: bytes) -> set[bytes]:
    """The hashes of the acts to which a key has said an outcome."""
    return {
        entry.body.act
        for entry in replica.of_kind("outcome")
        if entry.record.key.owner == owner and isinstance(entry.body, Outcome)
    }


class Orders:
    """Looks at what is due after each change. Mutable: remembers what it has taken up.

    Args:
        author: writes the outcomes.
        mesh: carries them.
        is_hub: whether it turns others away.
        fleet: this node's engines; None on one without.
        started: when this run began, unix seconds of fabric time.
        fabric: unix seconds, fabric time.
        say: narration.
    """

    def __init__(
        self,
        *,
        author: Author,
        mesh: Mesh,
        is_hub: bool,
        fleet: Fleet | None,
        started: Callable[[], float],
        fabric: Callable[[], float],
        say: Callable[[dict[str, object]], None],
    ) -> None:
        self._author = author
        self._mesh = mesh
        self._is_hub = is_hub
        self._fleet = fleet
        self._started = started
        self._fabric = fabric
        self._say = say
        self._handled: set[bytes] = set()
        self._put_out = ""  # by whom this node was evicted, as it was said last
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by subject

    def look(self, standing: Standing, tasks: asyncio.TaskGroup) -> None:
        """Take up what is due now, and say when this node is put out or let in again."""
        self._notice_eviction(standing)
        self._handled |= answered(self._mesh.replica, self._author.key)
        for todo in due(standing, self._author.id, self._handled, is_hub=self._is_hub):
            self._handled.add(todo.record.order.hash)
            if is_past(todo.act, self._author.run, self._started()):
                self._answer(todo, "done", f"this run began after it: {self._author.run}")
                continue
            if is_done(todo.act, self._mesh.replica, self._author.key):
                self._answer(todo, "done", "the engines began anew after it")
                continue
            self._say({"event": "act", "verb": todo.act.verb, "target": todo.act.target, "reason": todo.act.reason})
            self._take_up(todo, tasks)

    def _take_up(self, todo: Todo, tasks: asyncio.TaskGroup) -> None:
        """Carry an act out, and end an earlier one about the same, whose outcome would take the place of this one's."""
        name = subject(todo.act.verb, todo.act.target)
        if (earlier := self._under_way.pop(name, None)) is not None:
            earlier.cancel()
        self._under_way[name] = task = tasks.create_task(self._carry_out(todo))
        task.add_done_callback(lambda done: self._under_way.get(name) is done and self._under_way.pop(name))

    def _notice_eviction(self, standing: Standing) -> None:
        put_out = evicted_by(standing, self._author.id) or ""
        if put_out != self._put_out:
            self._put_out = put_out
            self._say({"event": "evicted" if put_out else "readmitted", "text": put_out})

    async def _carry_out(self, todo: Todo) -> None:
        try:
            detail = await self._do(todo.act)
        except TelaError as error:
            log.warning("act refused", extra={"verb": todo.act.verb, "why": error.message})
            self._answer(todo, "refused", error.message)
        else:
            self._answer(todo, "done", detail)

    async def _do(self, act: Act) -> str:
        if needs(act.verb) == "hubs":
            return "let in again" if act.verb == "readmit" else "turned away"  # the mesh drops the link by itself
        if act.verb == "undrain":
            return "takes requests again"
        if act.run and act.run != self._author.run:
            raise TelaError(f"it is meant for run {act.run}; this is run {self._author.run}")
        if self._fleet is None:
            raise TelaError("this node wraps no engine")
        if act.verb == "drain":
            return await self._fleet.drained()
        return await self._fleet.restart(act.reason)

    def _answer(self, todo: Todo, state: str, reason: str) -> None:
        body = Outcome(
            act=todo.record.order.hash,
            state="done" if state == "done" else "refused",
            reason=reason[:256],
            at=self._fabric(),
        )
        record = self._author.write(body, subject(todo.act.verb, todo.act.target))
        self._mesh.publish(record)
        self._say(
            {"event": "outcome", "verb": todo.act.verb, "target": todo.act.target, "state": state, "detail": reason}
        )
