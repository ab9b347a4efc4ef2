"""Runs one node in this process: the only place that makes a clock and dice for it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from random import SystemRandom

from gossip.websocket import WebsocketNetwork
from node.agent import Say
from node.clock import SystemClock
from node.config import NodeConfig
from node.process import NodeProcess


def main(config: NodeConfig, say: Say) -> None:
    """Run a node in this process until SIGTERM, SIGINT or the end of its stdin; a second signal does not wait.

    Raises:
        TelaError: it could not start, or had to give way.
    """
    import uvloop

    async def run() -> None:
        node = NodeProcess(config, clock=SystemClock(), rng=SystemRandom(), network=WebsocketNetwork(), say=say)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, node.stop)
        if config.exit_with_stdin:
            _when_stdin_ends(node.stop)
        await node.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _when_stdin_ends(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            stop()

    os.set_blocking(sys.stdin.fileno(), False)
    loop.add_reader(sys.stdin.fileno(), read)
