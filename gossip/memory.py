"""The network inside one process: the same links without sockets, for tests and simulations on virtual time.

Messages take `latency_s`; hosts can be cut off (nothing passes and nobody is told, like a pulled cable) and
connections severed (both ends are told, like a reset).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count

from gossip.transport import Endpoint, MakeEndpoint
from registry.errors import TelaError


class MemoryTransport:
    """One end of a connection inside the process."""

    def __init__(self, network: "MemoryNetwork", host: str, endpoint: Endpoint) -> None:
        self._network = network
        self.host = host
        self.endpoint = endpoint
        self.partner: MemoryTransport | None = None
        self.is_open = True
        self.coming: deque[bytes | None] = deque()  # None: the other end closed

    def send(self, message: bytes) -> None:
        """Deliver a copy to the other end after the network's latency, unless a host is cut off."""
        partner = self.partner
        if self.is_open and partner is not None and not self._network.is_cut(self.host, partner.host):
            # A queue of its own: the loop does not keep the order of timers that are due at one instant.
            partner.coming.append(bytes(message))
            self._network.later(partner.deliver)

    def deliver(self) -> None:
        """Hand the oldest message to the endpoint, or end where the other end closed."""
        coming = self.coming.popleft()
        if coming is None:
            self.drop("closed by the other end")
        elif self.is_open:
            self.endpoint.message_received(coming)

    def close(self) -> None:
        """Close both ends, this one now and the other after the latency."""
        if not self.is_open:
            return
        partner = self.partner
        self.drop("closed")
        if partner is not None and not self._network.is_cut(self.host, partner.host):
            partner.coming.append(None)
            self._network.later(partner.deliver)

    def abort(self) -> None:
        """The same: nothing is buffered here."""
        self.close()

    def drop(self, reason: str) -> None:
        """End this end alone."""
        if self.is_open:
            self.is_open = False
            self._network.forget(self)
            self.endpoint.closed(reason)

    def peer_address(self) -> str:
        """The other host's name."""
        return f"memory:{self.partner.host}" if self.partner else "memory"


class MemoryListener:
    """A name in the process that takes connections."""

    def __init__(self, network: "MemoryNetwork", url: str) -> None:
        self._network = network
        self.urls = (url,)

    def close(self) -> None:
        """Take no more connections."""
        self._network.unlisten(self.urls[0])


class Host:
    """One host's view of the memory network; satisfies `gossip.transport.Network`."""

    def __init__(self, network: "MemoryNetwork", name: str) -> None:
        self._network = network
        self.name = name

    async def listen(self, address: str, make: MakeEndpoint) -> MemoryListener:
        """Take connections at `address`."""
        return self._network.listen(self.name, address, make)

    async def dial(self, url: str, make: MakeEndpoint) -> Endpoint:
        """Connect to a listener."""
        return await self._network.dial(self.name, url, make)


class MemoryNetwork:
    """All hosts and connections. Mutable: tests cut and mend it while it runs."""

    def __init__(self, *, latency_s: float = 0.0002) -> None:
        self._latency_s = latency_s
        self._listeners: dict[str, tuple[str, MakeEndpoint]] = {}
        self._open: set[MemoryTransport] = set()
        self._cut: set[str] = set()
        self._ports = count(1)

    def host(self, name: str) -> Host:
        """One host's network."""
        return Host(self, name)

    def listen(self, host: str, address: str, make: MakeEndpoint) -> MemoryListener:
        """Register a listener; port 0 takes a free one."""
        name, _, port = address.rpartition(":")
        url = f"ws://{name}:{port if port != '0' else next(self._ports)}"
        if url in self._listeners:
            raise TelaError(f"{address} is in use", hint="choose another port", code="address_in_use")
        self._listeners[url] = (host, make)
        return MemoryListener(self, url)

    def unlisten(self, url: str) -> None:
        """Forget a listener."""
        self._listeners.pop(url, None)

    async def dial(self, host: str, url: str, make: MakeEndpoint) -> Endpoint:
        """Connect two endpoints."""
        await asyncio.sleep(self._latency_s)
        if url not in self._listeners:
            raise ConnectionRefusedError(f"nothing listens at {url}")
        there, make_there = self._listeners[url]
        if self.is_cut(host, there):
            await asyncio.sleep(5.0)
            raise TimeoutError(f"no answer from {url}")
        here_end, there_end = MemoryTransport(self, host, make()), MemoryTransport(self, there, make_there())
        here_end.partner, there_end.partner = there_end, here_end
        self._open |= {here_end, there_end}
        there_end.endpoint.connected(there_end)
        here_end.endpoint.connected(here_end)
        return here_end.endpoint

    def later(self, callback: Callable[[], None]) -> None:
        """Call after the latency."""
        asyncio.get_running_loop().call_later(self._latency_s, callback)

    def cut(self, *hosts: str) -> None:
        """Let nothing pass to or from these hosts; nobody is told."""
        self._cut |= set(hosts)

    def mend(self, *hosts: str) -> None:
        """Let messages pass again."""
        self._cut -= set(hosts)

    def crash(self, host: str) -> None:
        """The process on a host dies: its listeners are gone and every partner sees its connection close."""
        self._listeners = {url: held for url, held in self._listeners.items() if held[0] != host}
        for transport in [each for each in self._open if each.host == host]:
            transport.close()

    def is_cut(self, one: str, other: str) -> bool:
        """Whether messages between two hosts are lost."""
        return one in self._cut or other in self._cut

    def forget(self, transport: MemoryTransport) -> None:
        """A transport has ended."""
        self._open.discard(transport)
