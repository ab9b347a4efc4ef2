"""This account's API keys: one file, `credentials` in the configuration directory, readable by its owner alone."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from registry.errors import TelaError

NAME = "credentials"


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
    try:
        mode = path.stat().st_mode & 0o777
        text = path.read_text()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TelaError(
            f"cannot read {path}: {error.strerror}", hint="check who owns it", code="credentials"
        ) from error
    if mode & 0o077:
        raise TelaError(f"{path} can be read by others (mode {mode:o})", hint=f"chmod 600 {path}", code="bad_mode")
    try:
        return [Credential(**{name: str(row[name]) for name in Credential._fields}) for row in json.loads(text)["keys"]]
    except (ValueError, KeyError, TypeError):
        raise TelaError(f"{path} is damaged", hint="move it away and log in again", code="credentials") from None


def keep(config: Path, new: Credential) -> Path:
    """Write a key down as the one used last; an older one of the same door and id goes.

    Raises:
        TelaError: it cannot be written.
    """
    path = config / NAME
    rows = [new, *(row for row in read(config) if (row.url, row.id) != (new.url, new.id))]
    text = json.dumps({"keys": [row._asdict() for row in rows]}, indent=1)
    draft = path.with_suffix(".new")
    try:
        config.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        raise TelaError(f"cannot write {path}: {error.strerror}", hint="make room, or check who owns it") from error
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
            hint="tela login URL with a key, or tela keys claim CLAIM with what an operator gave you",
            code="no_key",
        )
    return rows[0]
