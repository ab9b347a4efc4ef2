"""Which engines a node is asked to wrap: flags in, what runs in each slot out. Refuses what could never start. Pure."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from node.config import EngineConfig
from node.engine.ranks import rank_refusal
from node.engine.spec import EngineSpec
from node.engine.words import words_of
from node.flags import Settings, wrong
from registry.errors import TelaError
from registry.text import clean

KNOWN = (("vllm", "vllm"), ("sglang", "sglang"), ("llama-server", "llama.cpp"))
MAX_SHOWN = 80


class _Asked(NamedTuple):
    """One engine as it was typed."""

    flag: str
    text: str

    def __str__(self) -> str:
        return f"{self.flag} {clean(self.text, MAX_SHOWN)!r}"


def engines_of(flags: Mapping[str, object], settings: Settings, env: Mapping[str, str]) -> tuple[EngineConfig, ...]:
    """The engines that were asked for, in the order of their slots: commands first.

    Args:
        flags: process, engine_url, model and alias, as typed.
        settings: has `engine_port`.
        env: says which rank of a launched engine this is.

    Raises:
        TelaError: naming the flag and the remedy (`usage`).
    """
    asked = [_Asked("--process", each) for each in _tuple(flags, "process")]
    commands = len(asked)
    asked += [_Asked("--engine-url", each) for each in _tuple(flags, "engine_url")]
    models, aliases = _tuple(flags, "model"), _tuple(flags, "alias")
    if models and len(models) != len(asked):
        raise wrong(
            f"{len(models)} --model, but {len(asked)} --process and --engine-url",
            "give one for each --process, in order, or none at all",
        )
    if aliases and len(asked) != 1:
        raise wrong(
            f"--alias {aliases[0]} with {len(asked)} engines", "run one engine in a node, or name models in the engine"
        )
    port = settings["engine_port"]
    if port.value is not None and commands != 1 and port.source == "flag":
        raise wrong(
            f"--engine-port {port.value} with {commands} --process", "give it with exactly one; others get free ports"
        )
    fixed = port.value if isinstance(port.value, int) and commands == 1 else None
    return tuple(
        _engine(f"e{at}", each, models[at] if models else None, aliases, fixed, env) for at, each in enumerate(asked)
    )


def engine_name(command: str) -> str:
    """What a command line starts, in one word: vllm, sglang, llama.cpp, demo, or the program's own name."""
    names = [PurePosixPath(word).name for word in words_of(command)]
    for mark, name in KNOWN:
        if any(word == mark or word.startswith(f"{mark}.") for word in names):
            return name
    if "node.engine.demo" in names:
        return "demo"
    is_word = names[0].replace("-", "").replace(".", "").replace("_", "").isalnum()
    return names[0][:64] if is_word and names[0].isascii() else "engine"


def _engine(
    slot: str, asked: _Asked, model: str | None, aliases: tuple[str, ...], port: int | None, env: Mapping[str, str]
) -> EngineConfig:
    is_command = asked.flag == "--process"
    command, url = (asked.text, None) if is_command else (None, asked.text)
    try:
        name = engine_name(asked.text) if is_command else "engine"
        EngineSpec(slot=slot, command=command, url=url, model=model, aliases=aliases, port=port, log=Path(os.devnull))
    except TelaError as error:
        why = error.message.removeprefix(f"engine slot {slot}: ").removeprefix("engine command: ")
        raise wrong(f"{asked}: {why}", error.hint) from None
    if is_command and (why_not := rank_refusal(words_of(asked.text), env)) is not None:
        raise wrong(f"{asked}: {why_not}", "start tela with the engine's first rank only")
    return EngineConfig(
        slot=slot,
        command=command,
        url=url,
        model=model,
        aliases=aliases,
        engine=name,
        port=port if is_command else None,
    )


def _tuple(flags: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = flags.get(name)
    return tuple(map(str, value)) if isinstance(value, tuple | list) else ()
