"""Which settings of a node go together: every combination that cannot work is refused, with the flag and the remedy.

Pure. A setting that was typed and would have no effect is refused; one from the environment or a file is for other
starts too, and is left out of this one.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from node.ingress.exposure import exposure_refusal
from node.settings import SETTINGS, Setting
from registry.errors import TelaError
from registry.kinds import HUB_ROLES
from registry.text import clean, is_id

Settings = Mapping[str, Setting]

DOOR = "127.0.0.1:7480"
OF_THE_DOOR = ("http", "url", "tls_cert", "tls_key", "behind_proxy", "insecure_http")
SERVED_TO = ("project:", "user:")


def text_of(settings: Settings, name: str) -> str:
    """A setting as text; empty when it is not set."""
    value = settings[name].value
    return "" if value is None else str(value)


def several_of(settings: Settings, name: str) -> tuple[str, ...]:
    """A setting as several texts."""
    value = settings[name].value
    if isinstance(value, tuple | list):
        return tuple(map(str, value))
    return (str(value),) if value else ()


def wrong(what: str, remedy: str) -> TelaError:
    """The refusal of something that was asked for wrongly."""
    return TelaError(clean(what, 400), hint=remedy, code="usage")


def check(settings: Settings, roles: tuple[str, ...], *, has_engines: bool) -> None:
    """Refuse what does not go together.

    Raises:
        TelaError: naming the flag, its value and the remedy (`usage`).
    """
    _check_names(settings)
    _check_links(settings, roles)
    _check_serve_to(settings, has_engines=has_engines)
    if "ingress" in roles:
        _check_door(settings)
        return
    for name in OF_THE_DOOR:
        if settings[name].source == "flag" and settings[name].value:
            raise wrong(f"{said(settings, name)} without the role ingress: there is no door", "add it: --role ingress")


def is_hub(settings: Settings, roles: tuple[str, ...]) -> bool:
    """Whether the node takes links: it is told where, and is something that others link to."""
    return bool(text_of(settings, "listen")) and not HUB_ROLES.isdisjoint(roles)


def _check_names(settings: Settings) -> None:
    host = text_of(settings, "host")
    if host and not (is_id(host) and host.isascii() and not set(host) & set("/:@+") and len(host) <= 63):
        raise wrong(
            f"{said(settings, 'host')} {host}: no name of a host",
            "1 to 63 letters, digits, dots, dashes and underscores",
        )


def _check_links(settings: Settings, roles: tuple[str, ...]) -> None:
    listen = text_of(settings, "listen")
    if not listen:
        if settings["advertise"].source == "flag":
            raise wrong("--advertise without --listen: nobody could reach it", "add --listen HOST:PORT")
        return
    if not _is_address(listen):
        raise wrong(f"{said(settings, 'listen')} {listen}: no address", "HOST:PORT, as 0.0.0.0:7481")
    if not is_hub(settings, roles) and settings["listen"].source == "flag":
        raise wrong(
            f"--listen {listen} with --role {','.join(roles)}: only a relay or an ingress takes links",
            "add relay to the roles, or leave --listen out",
        )
    for url in several_of(settings, "advertise"):
        if not _is_url(url, {"ws", "wss"}):
            raise wrong(f"{said(settings, 'advertise')} {url}: no URL of links", "like ws://login1.example.org:7481")


def _check_serve_to(settings: Settings, *, has_engines: bool) -> None:
    for whom in several_of(settings, "serve_to"):
        kind, colon, name = whom.partition(":")
        if whom != "fabric" and not (f"{kind}{colon}" in SERVED_TO and is_id(name)):
            raise wrong(f"{said(settings, 'serve_to')} {whom}: nobody", "fabric, project:NAME or user:NAME")
    if settings["serve_to"].source == "flag" and not has_engines:
        raise wrong("--serve-to without an engine: nothing is served", "add --process or --engine-url")


def _check_door(settings: Settings) -> None:
    address = text_of(settings, "http") or DOOR
    if not (address.startswith("unix:/") or _is_address(address)):
        raise wrong(f"{said(settings, 'http')} {address}: no address", "HOST:PORT, or unix:/PATH")
    if address == text_of(settings, "listen") and not address.endswith(":0"):
        raise wrong(f"{said(settings, 'http')} {address} is where --listen is", "give them two ports")
    url = text_of(settings, "url")
    if url and not _is_url(url, {"http", "https"}):
        raise wrong(f"{said(settings, 'url')} {url}: no URL", "like https://llm.example.org, without /v1")
    cert, key = text_of(settings, "tls_cert"), text_of(settings, "tls_key")
    if bool(cert) != bool(key):
        there, missing = ("--tls-cert", "--tls-key") if cert else ("--tls-key", "--tls-cert")
        raise wrong(f"{there} {cert or key} without {missing}", f"add {missing} FILE: a certificate needs its key")
    proxies, is_insecure = several_of(settings, "behind_proxy"), bool(settings["insecure_http"].value)
    if (refusal := exposure_refusal(address, bool(cert), proxies, is_insecure)) is not None:
        raise refusal


def said(settings: Settings, name: str) -> str:
    """How a setting was given: --listen, TELA_LISTEN, or listen in config.toml."""
    flag = f"--{name.replace('_', '-')}"
    return {"environment": SETTINGS[name].env, "file": f"{name} in config.toml"}.get(settings[name].source, flag)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        return False
    if not set(host) & set(":[]"):
        return True
    try:
        return host.startswith("[") and host.endswith("]") and bool(ipaddress.IPv6Address(host[1:-1]).packed)
    except ValueError:
        return False


def _is_url(text: str, schemes: set[str]) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in schemes and bool(parts.hostname) and is_plain and text.isascii() and text.isprintable()
