"""What the steps of the script may use."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from node.client import Control
from node.control.schema import NodeView
from node.demo import DemoFabric
from node.demo_node import DemoNode
from node.scenario.operator import Operator
from node.scenario.traffic import Traffic

SPREAD_S = 15.0  # until every ingress knows what one was told; milliseconds, unless the machine is very busy
ORDER_S = 60.0  # until an order is carried out

Steps = tuple[tuple[str, Callable[[], Awaitable[str]]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running fabric with two ingresses, the calls to it, and who orders it about."""

    fabric: DemoFabric
    traffic: Traffic
    controls: tuple[Control, ...]  # of the ingresses
    operator: Operator
    stranger: Operator  # of another provider's nodes
    rng: Random
    now: Callable[[], float]  # monotonic seconds

    async def seen(self, node: DemoNode) -> list[NodeView]:
        """What every ingress knows of a node."""
        views = [await control.view() for control in self.controls]
        return [row for view in views for row in view.nodes if row.id == node.id]
