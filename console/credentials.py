"""This account's API keys: one file, `credentials` in the configuration directory, readable by its owner alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from node.private import blame, read_private, write_private
from registry.errors import TelaError

NAME = "credentials"
MAX_KEPT = 64  # doors and keys of one account


class Credential(NamedTuple):
    """A key and the door it opens."""

    url: str  # of the ingress, without /v1
    id: str
    secret: str
    label: str = ""


def read(config: Path) -> list[Credential]:
    """Every key kept here, the one used last first.

    Raises:
        TelaError: the file is readable by others, or is no such file.
    """
    path = config / NAME
    content = read_private(path)
    if content is None:
        return []
    try:
        rows = json.loads(content)["keys"]
        return [Credential(**{name: str(row[name]) for name in Credential._fields}) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TelaError(f"{path} is damaged", hint="move it away and log in again", code="credentials") from None


def keep(config: Path, new: Credential) -> Path:
    """Write a key down as the one used last; an older one of the same door and id goes.

    Raises:
        TelaError: it cannot be written.
    """
    path = config / NAME
    rows = [new, *(row for row in read(config) if (row.url, row.id) != (new.url, new.id))][:MAX_KEPT]
    try:
        config.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise blame(error, config) from error
    write_private(path, json.dumps({"keys": [row._asdict() for row in rows]}, indent=1).encode() + b"\n")
    return path


def chosen(config: Path, env: Mapping[str, str], url: str | None) -> Credential:
    """The key to call with: from the environment, else the one used last (for `url`, when given).

    Raises:
        TelaError: there is none.
    """
    if secret := env.get("TELA_API_KEY"):
        door = url or env.get("TELA_URL", "")
        if not door:
            raise TelaError(
                "TELA_API_KEY is set, but not where to call", hint="set TELA_URL, or give --url", code="usage"
            )
        return Credential(door.rstrip("/").removesuffix("/v1"), "", secret)
    rows = [row for row in read(config) if url is None or row.url == url.rstrip("/").removesuffix("/v1")]
    if not rows:
        raise TelaError(
            f"no API key{f' for {url}' if url else ''} here",
            hint="tela login URL keeps one; tela keys claim makes one of the claim an operator gave you",
            code="no_key",
        )
    return rows[0]
