"""How clients reach a door, and whether a key may travel that way: never in the clear beyond this host. Pure."""

import ipaddress
from typing import NamedTuple

from node.ingress.edge import EdgeRefused, Scope
from node.ingress.openai import Refusal
from registry.errors import TelaError


class Exposure(NamedTuple):
    """What is known of the way to a door."""

    url: str  # where people reach it
    is_guarded: bool  # requests must be looked at: plain HTTP may reach it from beyond this host

    def must_be_private(self, scope: Scope) -> None:
        """Refuse a secret that came in the clear from another host.

        Raises:
            EdgeRefused: it did.
        """
        if not self.is_guarded or scope.get("scheme") == "https":
            return
        client = scope.get("client")
        if client is None or is_local(client[0]):
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
        """The address of a client, as far as it is known."""
        client = scope.get("client")
        return str(client[0]) if client else "local"


def is_local(host: str) -> bool:
    """Whether an address is this host's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Whether a HOST:PORT or unix:PATH is reached from this host only."""
    return address.startswith("unix:") or is_local(address.rpartition(":")[0].strip("[]"))


def networks(words: tuple[str, ...]) -> tuple[str, ...]:
    """Networks of proxies, checked.

    Raises:
        TelaError: one is none.
    """
    for word in words:
        try:
            ipaddress.ip_network(word, strict=False)
        except ValueError:
            raise TelaError(f"--behind-proxy {word}: no network", hint="like 10.0.0.0/8", code="usage") from None
    return words


def exposure_refusal(address: str, has_tls: bool, proxies: tuple[str, ...], insecure: bool) -> TelaError | None:
    """Why a door may not be opened so; None when it may."""
    if has_tls or networks(proxies) or insecure or is_loopback(address):
        return None
    return TelaError(
        f"--http {address} would take API keys over plain HTTP beyond this host",
        hint="give --tls-cert and --tls-key, or --behind-proxy CIDR, or --insecure-http if the network is yours",
        code="usage",
    )
