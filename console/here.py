"""What this account has here: its directories, the fabric a command is about, and a node of its own to ask."""

import os
from pathlib import Path

from console.client import Control, find
from node import fabricdir
from node.fabricdir import FabricDir
from node.places import Places, places

CONFIG = "config.toml"


def places_here() -> Places:
    """The directories of this account."""
    return places(os.environ, os.getuid(), Path.home())


def named_fabric(told: str | None, here: Places) -> str | None:
    """The fabric a person means: as told, else TELA_FABRIC, else `fabric` in config.toml; None: nobody says.

    Raises:
        TelaError: config.toml cannot be read, or is wrong.
    """
    if told:
        return told
    if named := os.environ.get("TELA_FABRIC"):
        return named
    path = here.config / CONFIG
    if not path.exists():
        return None
    from node.settings import read_file, resolve  # noqa: PLC0415 - most accounts have no such file

    value = resolve({}, {}, read_file(path))["fabric"].value
    return str(value) if value else None


def fabric_here(told: str | None) -> FabricDir:
    """The directory of the fabric a command is about.

    Args:
        told: its name; None: as `named_fabric` finds it, else the only one.

    Raises:
        TelaError: there is none, or none of that name, or there are several to choose from.
    """
    here = places_here()
    return fabricdir.find(here.config, named_fabric(told, here))


def control_here(told: str | None, *, accounts: bool = False) -> Control:
    """A running node of this account on this host.

    Args:
        told: which fabric, as for `fabric_here`.
        accounts: of several rather one that holds the accounts shelf.

    Raises:
        TelaError: no fabric at all, no node of it runs here, or only one of another fabric that is called the same.
    """
    fabric = fabric_here(told)
    return find(places_here(), fabric.name, fabric_id=fabric.fabric_hex, accounts=accounts)
