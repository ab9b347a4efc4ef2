"""The door of one node: `/v1` on a socket, with the keys of the accounts shelf and a ledger of its own."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from accounting.keys import Admitted, Refused
from accounting.ledger import Ledger
from gossip.mesh import Mesh
from node.config import DoorConfig
from node.filesystem import is_network, read_kind
from node.ingress.app import Ingress
from node.ingress.desk import KeyDesk
from node.ingress.exposure import Exposure, is_everywhere, is_loopback, networks
from node.ingress.keybook import Keybook, keybook
from node.ingress.relay import Relay
from node.route.pick import Policy
from node.server import HttpServer, Tls, bind, closer, http_server, url_of
from registry.accounts import key_rows, may_issue
from registry.author import Author
from registry.charter import Grant, InForce
from registry.kinds import Minted, Revocation
from registry.record import Audience
from registry.replica import Replica
from registry.text import clean
from registry.validity import Standing
from registry.views import Snapshot

# How long a book is held for each key in it: ten times as long as it takes to make, so that never more than a tenth of
# the time goes there (60 ms for 10,000 keys). A revoked key is refused within 5 s, whatever their number.
HOLD_S_PER_KEY = 6e-5
HOLD_S = 1.0


class Keys:
    """The keys that may call, read from the accounts shelf. Mutable: keeps the book until it may have changed.

    Args:
        mesh: carries what this node writes about them.
        author: writes it.
        view: the registry's views.
        now: monotonic seconds.
    """

    def __init__(self, mesh: Mesh, author: Author, view: Callable[[], Snapshot], now: Callable[[], float]) -> None:
        self._mesh = mesh
        self._author = author
        self._view = view
        self._now = now
        self._seen: Snapshot | None = None  # what the book was compared with last
        self._basis: _Basis | None = None
        self._book = keybook({})
        self._held_until = 0.0

    def check(self, authorization: str | None, x_api_key: str | None, now_fabric: float) -> Admitted | Refused:
        """Judge the credential of one request, as `KeyRing.check` does.

        Many keys take long to read, and an operator may import thousands. So the book is held for a while then: a
        revoked key may call for that while longer, and a new key is found at once, for nobody is refused by an old
        book.
        """
        is_old = self._view() is not self._seen
        if is_old and self._now() >= self._held_until:
            return self.book().ring.check(authorization, x_api_key, now_fabric)
        verdict = self._book.ring.check(authorization, x_api_key, now_fabric)
        if is_old and isinstance(verdict, Refused):
            return self.book().ring.check(authorization, x_api_key, now_fabric)
        return verdict

    def book(self) -> Keybook:
        """The keys of this moment."""
        view = self._view()
        if view is self._seen:
            return self._book
        self._seen = view
        basis = _basis(self._mesh.replica, view.standing)
        if basis != self._basis:
            self._basis = basis
            self._book = keybook(key_rows(self._mesh.replica, view.standing)[0], self._book)
            self._held_until = self._now() + min(HOLD_S, HOLD_S_PER_KEY * len(self._book.rows))
        return self._book

    def is_issuer(self) -> bool:
        """Whether this node's word on a claim counts."""
        return may_issue(self._view().standing, self._author.key, self._mesh.fabric_now())

    def minted(self, key: str, digest: bytes) -> None:
        """Say with which secret's digest a key was claimed."""
        self._write(Minted(digest=digest, at=self._mesh.fabric_now()), key)

    def revoked(self, key: str, reason: str) -> None:
        """Say that a key is not valid any more."""
        self._write(Revocation(reason=clean(reason), at=self._mesh.fabric_now()), key)

    def _write(self, body: Minted | Revocation, key: str) -> None:
        record = self._author.write(body, key)
        self._mesh.publish(record)
        self._held_until = 0.0  # whoever asked for it may look at once


class _Basis(NamedTuple):
    """What the keys that count depend on."""

    shelf: bytes  # root of the accounts shelf
    in_force: InForce | None  # who may give keys
    grants: Mapping[tuple[str, bytes], Grant]  # who may say that one was claimed, unless the charter names them


def _basis(replica: Replica, standing: Standing) -> _Basis:
    in_force = standing.in_force
    names_issuers = in_force is not None and bool(in_force.current.charter.issuers)
    root = replica.shelves[Audience.ACCOUNTS].digest.root()
    return _Basis(root, in_force, {} if names_issuers else standing.grants)


class Door:
    """An open door. Mutable: it is closed once.

    Attributes:
        at: where it listens.
        url: where people reach it.
        keys: the keys that may call.
        ledger: the usage rows.
        relay: carries calls.
    """

    def __init__(
        self,
        server: HttpServer,
        serving: asyncio.Task[None],
        *,
        at: str,
        url: str,
        keys: Keys,
        ledger: Ledger,
        relay: Relay,
    ) -> None:
        self.at = at
        self.url = url
        self.keys = keys
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
    stack.callback(closer(listening))
    tls = Tls(config.tls_cert, config.tls_key) if config.tls_cert else None
    ledger = await _ledger(state, stack)
    now = asyncio.get_running_loop().time
    relay = Relay(
        mesh=mesh,
        views=view,
        policy=policy,
        now=now,
        fabric=mesh.fabric_now,
        rng=rng,
        deadline_s=deadline_s,
    )
    keys = Keys(mesh, author, view, now)
    at = url_of(listening, is_tls=tls is not None)
    url = config.url or shown_url(at)
    app = Ingress(
        relay=relay,
        ledger=ledger,
        check=keys.check,
        desk=_desk(keys, mesh.fabric_now, now),
        door=exposure_of(config, url),
        unready=unready,
        views=view,
        fabric=mesh.fabric_now,
        rng=rng,
        tasks=tasks,
    )
    server = http_server(app, tls=tls)
    serving = tasks.create_task(server.serve(sockets=[listening]))
    return Door(server, serving, at=at, url=url, keys=keys, ledger=ledger, relay=relay)


async def _ledger(state: Path, stack: contextlib.AsyncExitStack) -> Ledger:
    on_network = is_network(read_kind(state))
    ledger = await asyncio.to_thread(Ledger.open, state / "ledger", exclusive=on_network)
    stack.callback(ledger.close)
    return ledger


def _desk(keys: Keys, fabric: Callable[[], float], now: Callable[[], float]) -> KeyDesk:
    return KeyDesk(
        book=keys.book,
        is_issuer=keys.is_issuer,
        minted=keys.minted,
        revoked=keys.revoked,
        fabric=fabric,
        now=now,
    )


def shown_url(at: str) -> str:
    """Where people reach a door, as far as where it listens says that; empty: only its operator knows, by --url."""
    return "" if not at.startswith("http") or is_everywhere(at.partition("://")[2]) else at


def exposure_of(config: DoorConfig, url: str) -> Exposure:
    """What is known of the way to a door that is reached at `url`.

    Guarded: plain HTTP may reach it from beyond this host, and nobody said that this is well.

    Raises:
        TelaError: what is said of proxies is no network.
    """
    is_plain = not (config.insecure_http or config.tls_cert)
    is_beyond = bool(config.behind_proxy) or not is_loopback(config.address)
    return Exposure(shown_url(url), is_plain and is_beyond, networks(config.behind_proxy))
