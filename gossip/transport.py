"""What a link needs of the world: a way to carry messages. Two exist, the memory network and websockets."""

from collections.abc import Callable
from typing import Protocol

MAX_MESSAGE_B = 65_577  # one record: 64 KiB of plaintext, its tag and the first one's header
PATH = "/tela/link"  # where a websocket listener takes links


class Transport(Protocol):
    """One end of a connection that keeps messages whole, in order and unrepeated, or fails."""

    def send(self, message: bytes) -> None:
        """Send a message; never blocks. Ignored once the connection is closed."""

    def close(self) -> None:
        """Close after what was sent has left."""

    def abort(self) -> None:
        """Close at once."""

    def peer_address(self) -> str:
        """Where the other end is, for people."""


class Endpoint(Protocol):
    """What sits on a transport; called from the event loop, never raises."""

    def connected(self, transport: Transport) -> None:
        """The connection is there."""

    def message_received(self, message: bytes) -> None:
        """A whole message came."""

    def pause_writing(self) -> None:
        """The transport holds enough; send no more for now."""

    def resume_writing(self) -> None:
        """There is room again."""

    def closed(self, reason: str) -> None:
        """The connection is gone; called once, and nothing after it."""


MakeEndpoint = Callable[[], Endpoint]


class Listener(Protocol):
    """A place that takes connections."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it is reached."""

    def close(self) -> None:
        """Take no more connections."""


class Network(Protocol):
    """Where links are dialled and taken."""

    async def listen(self, address: str, make: MakeEndpoint) -> Listener:
        """Take connections at host:port.

        Raises:
            TelaError: when the address cannot be had.
        """

    async def dial(self, url: str, make: MakeEndpoint) -> Endpoint:
        """Connect.

        Raises:
            OSError: when it cannot be reached.
        """
