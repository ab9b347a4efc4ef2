"""How clients reach a door, and whether a key may travel that way: never in the clear beyond this host. Pure.

What a proxy says of a client counts when it comes from a network the operator named, and from nobody else.
"""

import ipaddress
from typing import NamedTuple

from node.ingress.edge import EdgeRefused, Scope
from node.ingress.openai import Refusal
from registry.errors import TelaError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOWHERE = ipaddress.IPv4Address(0)  # a peer without an address we can read: neither near nor a proxy
ONE_CLIENT = 64  # a host has a whole IPv6 network of this prefix to choose addresses from


class Exposure(NamedTuple):
    """What is known of the way to a door."""

    url: str  # where people reach it; empty: they know
    is_guarded: bool  # requests must be looked at: plain HTTP may reach it from beyond this host
    proxies: tuple[Network, ...] = ()  # whose X-Forwarded headers count

    def must_be_private(self, scope: Scope) -> None:
        """Refuse a secret that came in the clear from another host.

        Raises:
            EdgeRefused: it did.
        """
        if not self.is_guarded or self._is_private(scope):
            return
        raise EdgeRefused(
            Refusal(
                status=403,
                message="Keys are not taken over plain HTTP from other hosts: use https. What was sent may have been "
                "read on the way: whoever owns it should revoke it.",
                code="insecure_transport",
            )
        )

    def client(self, scope: Scope) -> str:
        """The address of a client, as far as it is known: the last one that is no proxy of ours."""
        peer = _peer(scope)
        if not self._is_proxy(peer):
            return _name(peer)
        hops = [_address_of(hop) for hop in reversed(_listed(scope, b"x-forwarded-for"))]
        for hop in hops:
            if hop is None:
                return "unknown"
            if not self._is_proxy(hop):
                return _name(hop)
        return _name(hops[-1] if hops else peer)

    def _is_private(self, scope: Scope) -> bool:
        peer = _peer(scope)
        if scope.get("scheme") == "https":
            return True
        if self._is_proxy(peer):
            said = _listed(scope, b"x-forwarded-proto")
            if said or _listed(scope, b"x-forwarded-for"):  # it did pass a proxy, so that its peer says nothing
                return bool(said) and all(scheme.lower() == "https" for scheme in said)
        return peer is None or peer.is_loopback

    def _is_proxy(self, address: Address | None) -> bool:
        if address is None:  # whoever may open our socket is us, so what is said there is what our proxy says
            return bool(self.proxies)
        return any(address in network for network in self.proxies)


def source_of(client: str) -> str:
    """What is counted as one client: an IPv4 address, or the network an IPv6 address lies in."""
    address = _address_of(client)
    if address is None or address.version == 4:
        return client
    return str(ipaddress.ip_network((address, ONE_CLIENT), strict=False))


def is_local(host: str) -> bool:
    """Whether an address is this host's own."""
    address = _address_of(host)
    return host == "localhost" if address is None else address.is_loopback


def is_loopback(address: str) -> bool:
    """Whether a HOST:PORT or unix:PATH is reached from this host only."""
    return address.startswith("unix:") or is_local(address.rpartition(":")[0].strip("[]"))


def is_everywhere(address: str) -> bool:
    """Whether a HOST:PORT means every address of this host, so that it tells nobody where to go."""
    host = _address_of(address.rpartition(":")[0].strip("[]"))
    return host is not None and host.is_unspecified


def networks(words: tuple[str, ...]) -> tuple[Network, ...]:
    """Networks of proxies: a CIDR, or one address.

    Raises:
        TelaError: one is none.
    """
    found: list[Network] = []
    for word in words:
        try:
            found.append(ipaddress.ip_network(word, strict=False))
        except ValueError:
            raise TelaError(f"--behind-proxy {word}: no network", hint="like 10.0.0.0/8", code="usage") from None
    return tuple(found)


def exposure_refusal(address: str, has_tls: bool, proxies: tuple[str, ...], insecure: bool) -> TelaError | None:
    """Why a door may not be opened so; None when it may."""
    if networks(proxies) or has_tls or insecure or is_loopback(address):
        return None
    return TelaError(
        f"--http {address} would take API keys over plain HTTP beyond this host",
        hint="give --tls-cert and --tls-key, or --behind-proxy CIDR, or --insecure-http if the network is yours",
        code="usage",
    )


def _peer(scope: Scope) -> Address | None:
    """Who connected; None over a unix socket, where there are no addresses."""
    client = scope.get("client")
    return (_address_of(str(client[0])) or _NOWHERE) if client else None


def _address_of(text: str) -> Address | None:
    """An address, with or without a port; one of IPv4 as such also where a socket for both shows it as IPv6."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if address.version == 6 else None
    return mapped or address


def _listed(scope: Scope, header: bytes) -> list[str]:
    """The members of a header that is a list, over all its lines."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == header]
    return [member.strip() for value in values for member in value.split(",") if member.strip()]


def _name(address: Address | None) -> str:
    return "local" if address is None else str(address)
