"""What one node runs as. Here read from a specification file; flags and `config.toml` will fill the same record."""

from pathlib import Path
from typing import Annotated

import msgspec

from node.route.pick import Policy
from registry.errors import TelaError


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the configuration."""


class HubAddress(_Part, frozen=True, kw_only=True):
    """A hub known from the start."""

    key: bytes
    urls: tuple[str, ...]


class KeySpec(_Part, frozen=True, kw_only=True):
    """An API key that may call; only its digest is known here."""

    id: str
    digest: bytes
    label: str = ""
    expires_at: float | None = None


class EngineConfig(_Part, frozen=True, kw_only=True):
    """An engine to wrap: a command with `{port}`, or the URL of one that runs already."""

    slot: str = "e0"
    command: str | None = None
    url: str | None = None
    model: str | None = None  # asserted: another one is refused
    engine: str = "engine"


class NodeConfig(_Part, frozen=True, kw_only=True):
    """Everything a node is told."""

    host: str
    slot: Annotated[int, msgspec.Meta(ge=0)] = 0
    state: str  # directory of this node alone
    seed: bytes  # of its node key
    charter: bytes  # raw records
    membership: bytes
    certificate: bytes
    roles: tuple[str, ...]
    listen: str | None = None  # host:port for links
    http: str | None = None  # host:port for /v1
    hubs: tuple[HubAddress, ...] = ()
    keys: tuple[KeySpec, ...] = ()
    engines: tuple[EngineConfig, ...] = ()
    policy: Policy = Policy.LEAST_IN_FLIGHT
    request_deadline_s: float = 600.0
    exit_with_stdin: bool = False  # a demo's node must not outlive the demo


def read_config(path: Path) -> NodeConfig:
    """Read a specification.

    Raises:
        TelaError: naming the file and the field.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeConfig)
    except OSError as error:
        raise TelaError(f"cannot read {path}: {error.strerror}", hint="check the path", code="config") from error
    except msgspec.MsgspecError as error:
        raise TelaError(f"{path} is not a node specification: {error}", hint="fix that field", code="config") from error
