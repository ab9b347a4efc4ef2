"""An engine of one run: a process that was started for it, or one somebody else runs at a URL."""

import asyncio
from collections.abc import Mapping
from random import Random

from node.engine.autopsy import Autopsy
from node.engine.child import Child
from node.engine.credential import key_for, surroundings
from node.engine.fetch import Target
from node.engine.output import cap_log
from node.engine.spec import EngineSpec
from node.engine.watch import Fall


class Launched:
    """Made by `launch`; it is there to be watched, and to be ended.

    Attributes:
        target: where it answers, and with which key.
        pid: of its process; None: it is not ours.
    """

    def __init__(self, spec: EngineSpec, target: Target, child: Child | None) -> None:
        self.target = target
        self.pid = child.pid if child else None
        self._child = child
        self._autopsy = Autopsy(spec.log, child.log_from_b if child else 0)

    async def ended(self) -> Fall:
        """Wait for its end and say why; a foreign engine's end is nothing we could see."""
        if self._child is None:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("a future nobody holds was set")
        return await self._autopsy.of(await self._child.wait())

    async def stop(self, grace_s: float) -> None:
        """End its process and all that belongs to it; a foreign engine stays.

        Raises:
            TelaError: it survives being killed.
        """
        if self._child is not None:
            await self._child.stop(grace_s)

    def kill(self) -> None:
        """End its process at once, also while a `stop` waits."""
        if self._child is not None:
            self._child.kill()


async def launch(spec: EngineSpec, environ: Mapping[str, str], rng: Random) -> Launched:
    """Start what a slot is for.

    Args:
        spec: a command, or a URL.
        environ: what the process may see, less what is tela's own.
        rng: for its API key.

    Raises:
        TelaError: it cannot be started.
    """
    if spec.command is None:
        return Launched(spec, Target((spec.url or "").rstrip("/"), spec.api_key), None)
    way = spec.key_how
    key = key_for(way, environ, rng)
    await asyncio.to_thread(cap_log, spec.log)
    child = await Child.spawn(
        spec.command, log=spec.log, env=surroundings(environ, way, key), port=spec.port, api_key=key
    )
    return Launched(spec, Target(f"http://127.0.0.1:{child.port}", key), child)
