"""The door of one node: `/v1` on a socket, with the keys of the accounts shelf and a ledger of its own."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from accounting.keys import KeyRing
from accounting.ledger import Ledger
from gossip.mesh import Mesh
from node.config import DoorConfig
from node.filesystem import is_network, read_kind
from node.ingress.app import Ingress
from node.ingress.desk import KeyDesk, entry_of
from node.ingress.exposure import Exposure, is_loopback
from node.ingress.relay import Relay
from node.route.pick import Policy
from node.server import HttpServer, Tls, bind, http_server, url_of
from registry.accounts import KeyRow, key_rows, may_issue
from registry.author import Author
from registry.kinds import Minted, Revocation
from registry.text import clean
from registry.views import Snapshot


class Keys:
    """The keys that may call, read from the accounts shelf. Mutable: keeps the ring until the registry changes.

    Args:
        mesh: carries what this node writes about them.
        author: writes it.
        view: the registry's views.
    """

    def __init__(self, mesh: Mesh, author: Author, view: Callable[[], Snapshot]) -> None:
        self._mesh = mesh
        self._author = author
        self._view = view
        self._version = -1
        self._ring = KeyRing(())

    def rows(self) -> dict[str, KeyRow]:
        """Every key that counts, by id."""
        return key_rows(self._mesh.replica, self._view().standing)[0]

    def ring(self) -> KeyRing:
        """The ring of this moment."""
        if self._version != self._mesh.replica.version:
            self._version = self._mesh.replica.version
            self._ring = KeyRing(entry_of(row) for row in self.rows().values() if row.digest)
        return self._ring

    def is_issuer(self) -> bool:
        """Whether this node's word on a claim counts."""
        return may_issue(self._view().standing, self._author.key)

    def minted(self, key: str, digest: bytes) -> None:
        """Say with which secret's digest a key was claimed."""
        self._write(Minted(digest=digest, at=self._mesh.fabric_now()), key)

    def revoked(self, key: str, reason: str) -> None:
        """Say that a key is not valid any more."""
        self._write(Revocation(reason=clean(reason), at=self._mesh.fabric_now()), key)

    def _write(self, body: Minted | Revocation, key: str) -> None:
        record = self._author.write(body, key)
        self._mesh.tell(lambda peer: peer.publish(record))


class Door:
    """An open door. Mutable: it is closed once.

    Attributes:
        at: where it listens.
        url: where people reach it.
        ledger: the usage rows.
        relay: carries calls.
    """

    def __init__(
        self, server: HttpServer, serving: asyncio.Task[None], ledger: Ledger, relay: Relay, at: str, url: str
    ) -> None:
        self.at = at
        self.url = url
        self.ledger = ledger
        self.relay = relay
        self._server = server
        self._serving = serving

    async def close(self) -> None:
        """Take nothing new, end what is under way."""
        self._server.should_exit = True
        await asyncio.wait([self._serving])


async def open_door(
    config: DoorConfig,
    *,
    mesh: Mesh,
    author: Author,
    view: Callable[[], Snapshot],
    unready: Callable[[], tuple[str, ...]],
    state: Path,
    policy: Policy,
    deadline_s: float,
    rng: Random,
    stack: contextlib.AsyncExitStack,
    tasks: asyncio.TaskGroup,
) -> Door:
    """Open it.

    Raises:
        TelaError: when the address, the certificate or the ledger cannot be had.
    """
    listening = bind(config.address)
    stack.callback(listening.close)
    on_network = is_network(read_kind(state))
    ledger = await asyncio.to_thread(Ledger.open, state / "ledger", exclusive=on_network)
    stack.callback(ledger.close)
    relay = Relay(
        mesh=mesh,
        views=view,
        policy=policy,
        now=asyncio.get_running_loop().time,
        fabric=mesh.fabric_now,
        rng=rng,
        deadline_s=deadline_s,
    )
    keys = Keys(mesh, author, view)
    at = url_of(listening, is_tls=bool(config.tls_cert))
    url = config.url or (at if at.startswith("http") else "")
    app = Ingress(
        relay=relay,
        ledger=ledger,
        keys=keys.ring,
        desk=KeyDesk(
            rows=keys.rows,
            is_issuer=keys.is_issuer,
            minted=keys.minted,
            revoked=keys.revoked,
            fabric=mesh.fabric_now,
            now=asyncio.get_running_loop().time,
        ),
        door=Exposure(url, is_guarded(config)),
        unready=unready,
        views=view,
        fabric=mesh.fabric_now,
        rng=rng,
        tasks=tasks,
    )
    tls = Tls(config.tls_cert, config.tls_key) if config.tls_cert else None
    server = http_server(app, tls=tls, proxies=config.behind_proxy)
    serving = tasks.create_task(server.serve(sockets=[listening]))
    return Door(server, serving, ledger, relay, at, url)


def is_guarded(config: DoorConfig) -> bool:
    """Whether plain HTTP may reach the door from beyond this host, and nobody said that this is well."""
    return not (config.insecure_http or config.tls_cert) and (
        bool(config.behind_proxy) or not is_loopback(config.address)
    )
