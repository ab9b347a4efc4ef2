"""What this host says of itself: the addresses others might reach it at, and whether other people use it.

Standard library only; what cannot be read is left out.
"""

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

PEOPLE_FROM_UID = 1000  # below are the system's own accounts
NOBODY_UID = 65534
_SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface
_GLOBAL_SCOPE = 0  # in /proc/net/if_inet6


def host_names() -> tuple[str, ...]:
    """Names and addresses of this host that are not loopback, the likeliest to be reached by first."""
    name = socket.getfqdn()
    names = [name] if _is_outside(name) and not name.startswith("localhost") else []
    return tuple(dict.fromkeys([*names, *_ipv4(), *_ipv6()]))


def is_loopback(url: str) -> bool:
    """Whether a ws:// URL, or HOST:PORT, reaches this host alone."""
    host = host_of(url)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_wildcard(address: str) -> bool:
    """Whether HOST:PORT stands for every address of this host."""
    try:
        return ipaddress.ip_address(host_of(address)).is_unspecified
    except ValueError:
        return host_of(address) in {"", "*"}


def host_of(url: str) -> str:
    """The host in a URL or in HOST:PORT, without brackets; empty when there is none."""
    try:
        return urlsplit(url if "://" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""


def shown_path(path: Path) -> str:
    """A path as people write it, from their home where it lies there."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def others_here(proc: Path = Path("/proc")) -> int:
    """How many other people have processes here; they may read command lines."""
    return len(set(_people(_owners(proc))))


def _people(owners: Iterable[int]) -> Iterator[int]:
    return (uid for uid in owners if uid >= PEOPLE_FROM_UID and uid not in {os.getuid(), NOBODY_UID})


def _owners(proc: Path) -> Iterator[int]:
    try:
        entries = list(os.scandir(proc))
    except OSError:
        return
    for entry in entries:
        if entry.name.isdigit():
            try:
                yield entry.stat().st_uid
            except OSError:  # it ended meanwhile
                continue


def _ipv4() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            address = socket.inet_ntoa(answer[20:24])
            if _is_outside(address):
                yield address


def _ipv6() -> Iterator[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        digits, _, _, scope, *_ = line.split()
        address = str(ipaddress.IPv6Address(bytes.fromhex(digits)))
        if int(scope, 16) == _GLOBAL_SCOPE and _is_outside(address):
            yield address


def _is_outside(host: str) -> bool:
    return not is_loopback(f"[{host}]:1" if ":" in host else f"{host}:1")
