"""The engine's own API key: how each kind of engine is told it, and what an engine's process may know.

Pure. A client's key never gets here; this one is between a node and its engine, new at each start, so that nobody
else on the host can use the engine's port.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from node.engine.words import KEY_MARK, flattened, starts, value_of

if TYPE_CHECKING:
    from random import Random

DEMO_KEY = "TELA_ENGINE_API_KEY"
KEY_B = 24  # of entropy
_OURS = "TELA_"  # variables that speak to tela alone; some of them are credentials
# What each engine reads its key from. The environment of a process is read by its owner alone; words of a command
# line by everybody on the host. vLLM: entrypoints/serve/middleware/register.py; llama.cpp: common/arg.cpp.
_VARIABLES = (
    ("vllm", "VLLM_API_KEY"),
    ("llama-server", "LLAMA_API_KEY"),
    ("node.engine.demo", DEMO_KEY),
)


class KeyWay(NamedTuple):
    """How an engine gets its key; at most one of them is set."""

    variable: str | None = None  # of its environment
    is_marked: bool = False  # its command has a place for it
    fixed: str | None = None  # its command names one already

    @property
    def exists(self) -> bool:
        """Whether there is a way at all."""
        return self != NO_WAY

    def __repr__(self) -> str:
        """Say it without the key."""
        return f"KeyWay(variable={self.variable!r}, is_marked={self.is_marked}, has_fixed={self.fixed is not None})"


NO_WAY = KeyWay()


def way_of(words: Iterable[str]) -> KeyWay:
    """How the engine of a command line takes a key; a key in the command itself wins, as it does for the engine."""
    said = list(flattened(words))
    if any(KEY_MARK in word for word in said):
        return KeyWay(is_marked=True)
    variable = next((variable for program, variable in _VARIABLES if starts(said, program)), None)
    settings = {name: value for name, is_set, value in (word.partition("=") for word in said) if is_set}
    fixed = value_of(said, "--api-key") or settings.get(variable or "")
    if fixed:
        return KeyWay(fixed=fixed)
    return KeyWay(variable=variable)


def key_for(way: KeyWay, environ: Mapping[str, str], rng: "Random") -> str | None:
    """The key of one start: the operator's where one is set, otherwise a new one; None: the engine takes none.

    Args:
        way: of its command.
        environ: of this node; a variable of the engine that is set here is meant for it.
        rng: a `SystemRandom` outside tests.
    """
    if not way.exists:
        return None
    if way.fixed is not None:
        is_variable = way.fixed.startswith("$")  # a shell inside the command fills it in
        return environ.get(way.fixed.strip("${}")) if is_variable else way.fixed
    given = environ.get(way.variable) if way.variable and not way.variable.startswith(_OURS) else None
    return given or rng.randbytes(KEY_B).hex()  # no base64: it may begin with a dash, and be taken for an option


def surroundings(environ: Mapping[str, str], way: KeyWay, key: str | None) -> dict[str, str]:
    """The environment of an engine: this node's without what is tela's own, and with its key."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    if way.variable is not None and key is not None:
        kept[way.variable] = key
    return kept
