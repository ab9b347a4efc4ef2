"""What runs in a slot, as its operator wants it; what cannot work is refused before anything is started."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from node.engine.aliases import Alias, read_aliases
from node.engine.credential import NO_WAY, KeyWay, way_of
from node.engine.readiness import PROBE_TIMEOUT_S
from node.engine.words import PORT_MARK, words_of
from registry.errors import TelaError
from registry.text import is_id

_ADVICE_MARK = "put {api_key} where its command takes the key"
_ADVICE_FOREIGN = "set TELA_ENGINE_API_KEY to its key"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """A command that is started here, or the URL of an engine somebody else runs.

    Raises:
        TelaError: not exactly one of the two, or one that cannot work.
    """

    slot: str
    command: str | None = None  # with {port}; None: the engine is at `url`
    url: str | None = None  # http on loopback; None: the engine is started by `command`
    model: str | None = None  # what it has to list; None: whatever it lists
    aliases: tuple[str, ...] = ()  # names its models are offered by instead of their own: A, or A=MODEL
    log: Path
    engine: str = "engine"
    port: int | None = None  # of a command; None: a free one for each run
    api_key: str | None = field(default=None, repr=False)  # of an engine at `url`; None: it wants none
    stop_grace_s: float = 10.0
    drain_s: float = 30.0  # what requests under way may take when it is to be started anew
    probe_s: float = 0.2  # between probes until it is ready, and at least between any two
    watch_s: float = 2.0  # between probes afterwards
    probe_timeout_s: float = PROBE_TIMEOUT_S
    trial_s: float = 60.0  # for one token; the first request of an engine compiles kernels

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise _refused(self.slot, "give either a command or a URL")
        if self.model is not None and not is_id(self.model):
            raise _refused(self.slot, "its model is no usable name", "see --served-model-name of the engine")
        read_aliases(self.aliases)
        if self.command is not None:
            self._check_command(self.command)
        if self.url is not None and not _is_loopback(self.url):
            raise _refused(self.slot, "its URL is not http on loopback", "like http://127.0.0.1:8000")

    def _check_command(self, command: str) -> None:
        words = words_of(command)
        if self.port is None and not any(PORT_MARK in word for word in words):
            raise _refused(self.slot, f"its command has no {PORT_MARK}", f"add: --port {PORT_MARK}")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise _refused(self.slot, f"port {self.port} is no port", "1 to 65535")

    @property
    def named(self) -> tuple[Alias, ...]:
        """The aliases, read."""
        return read_aliases(self.aliases)

    @property
    def key_how(self) -> KeyWay:
        """How the engine that is started here is told its API key."""
        return NO_WAY if self.command is None else way_of(words_of(self.command))

    @property
    def key_advice(self) -> str:
        """What its operator can do when it wants a key that it was not given."""
        return _ADVICE_FOREIGN if self.command is None else _ADVICE_MARK


def _refused(slot: str, why: str, hint: str = "") -> TelaError:
    return TelaError(f"engine slot {slot}: {why}", hint=hint, code="bad_engine")


def _is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    is_base = parts.path in {"", "/"} and not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme == "http" and is_local and is_base
