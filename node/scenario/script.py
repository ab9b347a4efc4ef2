"""The script: every step in its order, each reported with how it went. A step that fails ends no other."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import aiohttp

from node.client import Caller, Control
from node.demo import DemoFabric
from node.scenario.calls import Calls
from node.scenario.expect import FAILURES
from node.scenario.keys import Keys
from node.scenario.losses import Losses
from node.scenario.operator import Operator
from node.scenario.orders import Orders
from node.scenario.stage import Stage
from node.scenario.traffic import Door, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the script and how it went."""

    name: str
    ok: bool
    detail: str


class Script:
    """Runs the steps on a fabric that was just started, with two ingresses and three workers. Mutable: collects steps.

    Args:
        stage: the fabric.
        report: called with each step as it ends.
    """

    def __init__(self, stage: Stage, report: Callable[[Step], None]) -> None:
        self.steps: list[Step] = []
        self._stage = stage
        self._report = report

    async def check(self, started: float) -> bool:
        """Every step in order; True when all held.

        Args:
            started: when the fabric was, monotonic seconds.
        """
        stage = self._stage
        parts = (Calls(stage, started), Keys(stage), Orders(stage), Losses(stage))
        for part in parts:
            for name, run in part.steps:
                await self._step(name, run)
        return all(step.ok for step in self.steps)

    async def _step(self, name: str, run: Callable[[], Awaitable[str]]) -> None:
        try:
            step = Step(name=name, ok=True, detail=await run())
        except FAILURES as error:
            step = Step(name=name, ok=False, detail=str(error) or type(error).__name__)
        self.steps.append(step)
        self._report(step)


def traffic_of(fabric: DemoFabric, session: aiohttp.ClientSession, rng: Random, now: Callable[[], float]) -> Traffic:
    """Calls to the doors of a running fabric.

    Args:
        fabric: the processes.
        session: the HTTP client.
        rng: mixes streams and whole answers.
        now: monotonic seconds.
    """
    secret = fabric.authority.secret
    doors = [Door(node.name, Caller(session, node.url, secret, now), node.ledger) for node in fabric.ingresses]
    return Traffic(doors, fabric.model, rng=rng, now=now)


def stage_of(fabric: DemoFabric, traffic: Traffic, rng: Random, now: Callable[[], float]) -> Stage:
    """Everything the script needs of a running fabric; as `traffic_of`."""
    authority = fabric.authority
    controls = tuple(Control(node.control) for node in fabric.ingresses)
    return Stage(
        fabric=fabric,
        traffic=traffic,
        controls=controls,
        operator=Operator(authority.operator, authority.operator_sign, controls[0]),
        stranger=Operator(authority.stranger, authority.stranger_sign, controls[0]),
        rng=rng,
        now=now,
    )
