"""What may be changed of a running demo engine: the models it lists, as vLLM does with adapters, and its troubles.

Pure. `POST /demo` is ours alone: it makes the engine fail in ways no request could ask for.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from node.engine.demo_requests import RequestRefused

_Code = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """The body of /v1/load_lora_adapter and of /v1/unload_lora_adapter."""

    lora_name: str
    lora_path: str = ""  # of no meaning here


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of /demo: what is not in it stays as it is."""

    models: list[str] | None = None  # what it lists from now on
    is_failing: bool | None = None  # healthy, but every generation is a 500
    lines: list[str] = []  # printed on stderr
    exit: _Code | None = None  # the process ends with it, after what it printed


def with_adapter(models: Iterable[str], adapter: Adapter) -> tuple[str, ...]:
    """The models once an adapter is loaded.

    Raises:
        RequestRefused: it is already.
    """
    listed = tuple(models)
    if adapter.lora_name in listed:
        raise RequestRefused(f"The lora adapter '{adapter.lora_name}' has already been loaded.")
    return (*listed, adapter.lora_name)


def without_adapter(models: Iterable[str], adapter: Adapter) -> tuple[str, ...]:
    """The models once one is gone; here that may be any.

    Raises:
        RequestRefused: there is no such model.
    """
    listed = tuple(models)
    if adapter.lora_name not in listed:
        message = f"The lora adapter '{adapter.lora_name}' cannot be found."
        raise RequestRefused(message, status=404, kind="NotFoundError")
    return tuple(model for model in listed if model != adapter.lora_name)
