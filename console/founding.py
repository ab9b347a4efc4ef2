"""What founding, inviting and joining share: the records each of them makes, and what people may type. Pure.

Seeds and time come in. A name, a role or an address that no record could carry is refused here, in words.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from console.signer import Signer
from console.thishost import host_of, is_loopback, is_wildcard
from registry.charter import admit, found, offer
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Acceptance, Hub, Invite, Membership, encode_body
from registry.record import Draft, Record, seal, seed_signer
from registry.text import clean

HOUR_S = 3_600.0
FOUNDER_NODES = 1_000
FOUNDER_DAYS = 90
MAX_URLS = 16
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_LINK_URL = re.compile(r"wss?://[A-Za-z0-9\[\]._:/-]{1,200}\Z")
_DOOR_URL = re.compile(r"https?://[A-Za-z0-9\[\]._:/-]{1,200}\Z")


class Seeds(NamedTuple):
    """Everything random that a founding takes, 32 bytes each."""

    node: bytes  # of the first hub
    member: bytes
    invite: bytes


class Terms(NamedTuple):
    """What an invite gives."""

    provider: str
    roles: tuple[str, ...]
    max_nodes: int
    days: int
    accept_by: float  # unix seconds, fabric time


def found_fabric(
    name: str,
    signer: Signer,
    terms: Terms,
    seeds: Seeds,
    urls: tuple[str, ...],
    recovery: bytes,
    now: float,
) -> tuple[Record, ...]:
    """The first records of a fabric: its charter, and the founder's invite, membership and acceptance.

    The founder's own first node is hub and issuer by the charter, so it may accept its founder.

    Args:
        name: of the fabric.
        signer: its first operator.
        terms: of the founder's membership.
        seeds: what is random.
        urls: where others reach the first hub.
        recovery: the public half of the recovery key.
        now: unix seconds.
    """
    node, sign_node = seed_signer(seeds.node)
    member, _ = seed_signer(seeds.member)
    hubs = (Hub(key=node, urls=urls),)
    charter = found(name, signer.name, signer.key, signer.sign, hubs, issuers=(node,), recovery=recovery).charter
    invite = invite_record(terms, seeds.invite, signer)
    membership = membership_record(_invite_of(terms, seeds.invite), seeds.invite, member)
    accepted = encode_body(Acceptance(member=member, at=now, renewed=now))
    acceptance = seal(Draft("acceptance", invite.key.id, accepted, seq=1), node, sign_node)
    return charter, invite, membership, acceptance


def invite_record(terms: Terms, seed: bytes, signer: Signer) -> Record:
    """An invite, signed by an operator; whoever has the seed may use it."""
    return offer(_invite_of(terms, seed), signer.key, signer.sign)


def membership_record(invite: Invite, seed: bytes, member: bytes) -> Record:
    """All that an invite gives, for a member's key; the same invite and key make the same record."""
    key, sign = seed_signer(seed)
    body = Membership(
        member=member, provider=invite.provider, roles=invite.roles, not_after=None, max_nodes=invite.max_nodes
    )
    return admit(body, key, sign)


def invite_id(seed: bytes) -> str:
    """What an invite is called."""
    return key_id(seed_signer(seed)[0])


def checked_word(what: str, text: str) -> str:
    """A name a record and a command line can carry.

    Raises:
        TelaError: it is none (`usage`).
    """
    if _WORD.match(text) is None:
        raise usage(f"{what} {clean(text, 80)!r} will not do", "1 to 63 letters, digits, dots, dashes and underscores")
    return text


def checked_roles(told: Iterable[str], there_are: tuple[str, ...]) -> tuple[str, ...]:
    """Roles as typed: repeated, or with commas.

    Raises:
        TelaError: one that does not exist, or none at all (`usage`).
    """
    words = [word.strip() for each in told for word in each.split(",") if word.strip()]
    for word in words:
        if word not in there_are:
            raise usage(f"there is no role {clean(word, 40)!r}", f"there are {', '.join(there_are)}")
    if not words:
        raise usage("an invite without a role gives nothing", f"there are {', '.join(there_are)}")
    return tuple(dict.fromkeys(words))


def listen_port(listen: str) -> int:
    """The port in HOST:PORT.

    Raises:
        TelaError: it is not that (`usage`).
    """
    host, _, port = listen.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise usage(f"--listen {clean(listen, 80)!r} is not HOST:PORT", "such as 0.0.0.0:7481; the port is fixed")
    return int(port)


def advertised(listen: str, told: Iterable[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Where others reach what listens: as told, else the address itself when it is one.

    Args:
        listen: HOST:PORT.
        told: URLs, or HOST:PORT.
        names: of this host, to choose from.

    Raises:
        TelaError: nothing was told and the address is every address, or a URL is none (`usage`).
    """
    port = listen_port(listen)
    urls = tuple(dict.fromkeys(link_url(each) for each in told))
    if len(urls) > MAX_URLS:
        raise usage(f"{len(urls)} URLs for one hub", f"at most {MAX_URLS}")
    if urls:
        return urls
    if is_wildcard(listen):
        raise usage(
            f"--listen {listen} takes links at every address, but others need one to dial",
            f"add the one they reach: {choices('--advertise', names, port)}",
        )
    return (link_url(listen),)


def link_url(text: str) -> str:
    """A URL of a hub; HOST:PORT gets its ws://.

    Raises:
        TelaError: it cannot be one (`usage`).
    """
    url = text if "://" in text else f"ws://{text}"
    if _LINK_URL.match(url) is None or not host_of(url) or is_wildcard(url):
        raise usage(f"{clean(text, 80)!r} is no address of a hub", "it is like ws://login1.example.org:7481")
    return url.rstrip("/")


def door_url(url: str, http: str) -> str:
    """Where people reach the door: as told, else where it is bound; empty for a unix socket or every address.

    Raises:
        TelaError: what was told is no URL (`usage`).
    """
    if url:
        if _DOOR_URL.match(url) is None:
            raise usage(f"--url {clean(url, 80)!r} is no URL of a door", "it is like https://llm.example.org")
        return url.rstrip("/").removesuffix("/v1")
    return "" if http.startswith("unix:") or is_wildcard(http) else f"http://{http}"


def reachable(urls: Iterable[str]) -> bool:
    """Whether a URL is among them that another host could use."""
    return not all(is_loopback(url) for url in urls)


def choices(flag: str, names: tuple[str, ...], port: int) -> str:
    """The names of this host as values of a flag."""
    shown = [f"{flag} ws://{f'[{name}]' if ':' in name else name}:{port}" for name in names[:4]]
    return " or ".join(shown) if shown else f"{flag} ws://HOST:{port}"


def up_to(nodes: int) -> str:
    """How many nodes, in words."""
    return "one node" if nodes == 1 else f"up to {nodes} nodes"


def usage(what: str, remedy: str) -> TelaError:
    """A mistake in what was typed; the command exits 2."""
    return TelaError(what, hint=remedy, code="usage")


def _invite_of(terms: Terms, seed: bytes) -> Invite:
    return Invite(
        key=seed_signer(seed)[0],
        provider=terms.provider,
        roles=terms.roles,
        accept_by=terms.accept_by,
        days=terms.days,
        max_nodes=terms.max_nodes,
    )
