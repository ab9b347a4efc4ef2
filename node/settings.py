"""Settings of this account on this host: flag over environment over `config.toml` over default, each with its source.

Refuses a name it does not know and a value of the wrong kind, naming the place and the remedy. Standard library only.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from node.private import blame
from registry.errors import TelaError
from registry.text import clean

MAX_CONFIG_B = 1 << 20
LOG_LEVELS = ("debug", "info", "warning", "error")
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off", ""})

Value = str | int | float | bool | tuple[str, ...] | None  # None: not set, and there is no default


class Kind(NamedTuple):
    """What a setting may be."""

    what: str  # for people: "is not …"
    of_text: Callable[[str], Value]  # ValueError when the text is none
    of_toml: Callable[[object], Value]  # ValueError or TypeError when the value is none


class Spec(NamedTuple):
    """One setting."""

    kind: Kind
    default: Value
    env: str
    help: str


class Setting(NamedTuple):
    """What a setting is, and where that was said."""

    value: Value
    source: str  # flag, environment, file or default


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(low: float, high: float) -> Callable[[object], float]:
    def of(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        if not low <= value <= high:
            raise ValueError
        return float(value)

    return of


def _integer(low: int, high: int) -> Callable[[object], int]:
    def of(value: object) -> int:
        if type(value) is not int:
            raise TypeError
        if not low <= value <= high:
            raise ValueError
        return value

    return of


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _bool_of_text(text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise ValueError
    return word in _YES


def _list(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return _list_of_text(value)
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(_str(each) for each in value)


def _list_of_text(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))


def _level(value: object) -> str:
    word = _str(value).lower()
    if word not in LOG_LEVELS:
        raise ValueError
    return word


TEXT = Kind("a text", str, _str)
SLOT = Kind("a whole number from 0 to 999", lambda text: _integer(0, 999)(int(text)), _integer(0, 999))
PORT = Kind("a port from 1 to 65535", lambda text: _integer(1, 65535)(int(text)), _integer(1, 65535))
SECONDS = Kind("a number of seconds from 0 to 86400", lambda text: _number(0, 86_400)(float(text)), _number(0, 86_400))
SWITCH = Kind("true or false", _bool_of_text, _bool)
LIST = Kind("a list of texts", _list_of_text, _list)
LEVEL = Kind(f"one of {', '.join(LOG_LEVELS)}", _level, _level)


def _spec(name: str, kind: Kind, default: Value, text: str) -> tuple[str, Spec]:
    return name, Spec(kind, default, f"TELA_{name.upper()}", text)


SETTINGS: dict[str, Spec] = dict((
    _spec("fabric", TEXT, None, "which fabric, when this account belongs to several"),
    _spec("role", LIST, (), "what the node is: worker, ingress, relay, observer"),
    _spec("host", TEXT, None, "the name of this host; the system's own unless set"),
    _spec("slot", SLOT, None, "which of several nodes on this host; the first free one unless set"),
    _spec("listen", TEXT, None, "HOST:PORT to take links at; without it the node only dials out"),
    _spec("advertise", LIST, (), "URLs where others reach listen, as ws://host:7481"),
    _spec("http", TEXT, None, "HOST:PORT or unix:PATH of an ingress's door"),
    _spec("url", TEXT, None, "where people reach the door, as https://llm.example.org"),
    _spec("tls_cert", TEXT, None, "certificate chain of the door, PEM"),
    _spec("tls_key", TEXT, None, "its private key, PEM"),
    _spec("behind_proxy", LIST, (), "networks of proxies whose X-Forwarded-For counts"),
    _spec("insecure_http", SWITCH, False, "take API keys over plain HTTP beyond loopback"),
    _spec("engine_port", PORT, None, "the port for {port} in a command; a free one unless set"),
    _spec("drain_s", SECONDS, 30.0, "seconds for requests under way when the node is told to stop"),
    _spec("serve_to", LIST, (), "who may use this node's engines: fabric, project:P, user:U"),
    _spec("log_level", LEVEL, "info", "debug, info, warning or error"),
))  # fmt: skip


def read_file(path: Path) -> dict[str, object]:
    """What a `config.toml` says; nothing when there is none.

    Raises:
        TelaError: it cannot be read, or is no TOML, with line and column.
    """
    import tomllib  # noqa: PLC0415 - most accounts have no such file

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise blame(error, path) from error
    if len(content) > MAX_CONFIG_B:
        raise TelaError(f"{path} is longer than {MAX_CONFIG_B} bytes", hint="it holds settings only", code="config")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TelaError(
            f"{path} is not TOML: {clean(str(error))}", hint='a line is like: listen = "0.0.0.0:7481"', code="config"
        ) from error


def resolve(flags: Mapping[str, object], env: Mapping[str, str], file: Mapping[str, object]) -> dict[str, Setting]:
    """Every setting by name.

    Args:
        flags: as typed; names that are no settings are somebody else's, None and an empty list are unset.
        env: the environment.
        file: what `read_file` returned.

    Raises:
        TelaError: a name or a value is wrong (code `config`).
    """
    for name in file:
        if name not in SETTINGS:
            raise _unknown(name)
    return {name: _resolved(name, spec, flags, env, file) for name, spec in SETTINGS.items()}


def _resolved(
    name: str, spec: Spec, flags: Mapping[str, object], env: Mapping[str, str], file: Mapping[str, object]
) -> Setting:
    flag = flags.get(name)
    if flag is not None and flag != ():
        return Setting(_of(lambda: spec.kind.of_toml(flag), flag, f"--{name.replace('_', '-')}", spec), "flag")
    if text := env.get(spec.env):
        return Setting(_of(lambda: spec.kind.of_text(text), text, spec.env, spec), "environment")
    if name in file:
        return Setting(_of(lambda: spec.kind.of_toml(file[name]), file[name], f"{name} in config.toml", spec), "file")
    return Setting(spec.default, "default")


def _of(read: Callable[[], Value], value: object, where: str, spec: Spec) -> Value:
    try:
        return read()
    except (TypeError, ValueError):
        shown = clean(str(value), 80)
        raise TelaError(
            f"{where} is {shown!r}, which is not {spec.kind.what}", hint=f"it sets {spec.help}", code="config"
        ) from None


def _unknown(name: str) -> TelaError:
    import difflib  # noqa: PLC0415 - only for who mistyped

    near = difflib.get_close_matches(name.replace("-", "_"), SETTINGS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(SETTINGS)}"
    return TelaError(f"config.toml: {clean(name, 80)!r} is no setting", hint=hint, code="config")
