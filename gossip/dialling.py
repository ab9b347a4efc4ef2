"""Keeps the links that should be held: one task for each node to be linked to, which never gives up."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from gossip.link import Link
from gossip.topology import Address, redial_s

STABLE_S = 5.0  # a link that lasted this long was no fluke: dial again at once when it breaks


class Dialler:
    """Mutable: knows whom it is linking to.

    Args:
        targets: the nodes to be linked to, as they are now.
        held: the live link to a key, if there is one.
        connect: make a link to a node at a URL; None when that did not come about.
        rng: jitter.
    """

    def __init__(
        self,
        *,
        targets: Callable[[], tuple[Address, ...]],
        held: Callable[[bytes], Link | None],
        connect: Callable[[Address, str], Awaitable[Link | None]],
        rng: Random,
    ) -> None:
        self._targets = targets
        self._held = held
        self._connect = connect
        self._rng = rng
        self._under_way: set[bytes] = set()
        self._loop = asyncio.get_running_loop()

    def look(self, tasks: asyncio.TaskGroup) -> None:
        """Begin with targets that are new."""
        for target in self._targets():
            if target.key not in self._under_way:
                self._under_way.add(target.key)
                tasks.create_task(self._keep_linked(target.key))

    async def _keep_linked(self, key: bytes) -> None:
        attempt = 0
        try:
            while (target := self._wanted(key)) is not None:
                held = self._held(key)
                if held is None:
                    await asyncio.sleep(redial_s(attempt, self._rng))
                    held = await self._connect(target, target.urls[attempt % len(target.urls)])
                attempt += 1
                if held is not None:
                    since = self._loop.time()
                    await held.gone.wait()
                    attempt = 0 if self._loop.time() - since >= STABLE_S else attempt
        finally:
            self._under_way.discard(key)

    def _wanted(self, key: bytes) -> Address | None:
        return next((target for target in self._targets() if target.key == key), None)
