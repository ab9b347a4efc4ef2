"""What one node runs as: filled by `tela start` from flags and `config.toml`, or read from a specification file."""

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


class EngineConfig(_Part, frozen=True, kw_only=True):
    """An engine to wrap: a command with `{port}`, or the URL of one that runs already."""

    slot: str = "e0"
    command: str | None = None
    url: str | None = None
    model: str | None = None  # asserted: another one is refused
    aliases: tuple[str, ...] = ()  # names it is offered by instead of its own: A, or A=M
    engine: str = "engine"
    port: int | None = None  # None: a free one


class DoorConfig(_Part, frozen=True, kw_only=True):
    """Where `/v1` is served, and who may speak to it how."""

    address: str  # HOST:PORT or unix:PATH
    url: str = ""  # where people reach it; empty: as it is bound
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: tuple[str, ...] = ()  # networks whose X-Forwarded headers count
    insecure_http: bool = False


class NodeConfig(_Part, frozen=True, kw_only=True):
    """Everything a node is told."""

    fabric: str = "fabric"  # what its people call it
    fabric_dir: str | None = None  # what its account holds of it, kept up to date; None: nothing is
    host: str
    slot: Annotated[int, msgspec.Meta(ge=0)] = 0
    state: str  # directory of this node alone
    seed: bytes  # of its node key
    charter: bytes  # raw records, as the following
    membership: bytes
    certificate: bytes
    invite: bytes | None = None  # None: the membership was signed by an owner
    records: tuple[bytes, ...] = ()  # what else is known from the start
    member_seed: bytes | None = None  # certifies this node again while it runs; None: it ends with its certificate
    roles: tuple[str, ...]
    listen: str | None = None  # host:port for links
    advertise: tuple[str, ...] = ()  # where others reach it; empty: where it listens
    door: DoorConfig | None = None
    control: str | None = None  # path of the control socket; None: no control API
    hubs: tuple[HubAddress, ...] = ()
    engines: tuple[EngineConfig, ...] = ()
    serve_to: tuple[str, ...] = ()  # project:P, user:U; empty: the whole fabric
    policy: Policy = Policy.LEAST_IN_FLIGHT
    request_deadline_s: float = 600.0
    drain_s: float = 30.0  # what requests under way may take once the node is told to stop
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
