"""The names models are offered by instead of their own: `A` for the engine's first model, `A=M` for model M.

Pure. Nothing here changes a request: what an alias means is told to whoever forwards it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from registry.errors import TelaError
from registry.kinds import Offer
from registry.text import clean, is_id


class Alias(NamedTuple):
    """One name somebody chose."""

    name: str
    model: str | None  # the engine's name for it; None: of its first model


class Named(NamedTuple):
    """Offers under the names they are called by."""

    offers: tuple[Offer, ...]
    names: Mapping[str, str]  # the engine's name of each offer that has another one
    missing: tuple[str, ...]  # aliases of models the engine does not list


def read_aliases(given: Iterable[str]) -> tuple[Alias, ...]:
    """Read `A` and `A=M`.

    Raises:
        TelaError: a name cannot stand in a record, or is given twice.
    """
    found: dict[str, Alias] = {}
    for text in given:
        name, is_pair, model = text.partition("=")
        if not is_id(name) or (is_pair and not is_id(model)):
            raise _refused(f"alias {clean(text, 80)}: no usable name", "like --alias NAME, or --alias NAME=MODEL")
        if name in found:
            raise _refused(f"alias {name} is given twice", "each name stands for one model")
        found[name] = Alias(name, model if is_pair else None)
    return tuple(found.values())


def under_aliases(listed: Iterable[Offer], aliases: Iterable[Alias]) -> Named:
    """Offer models under their aliases; one that has an alias is not offered by its own name.

    Args:
        listed: what the engine has, the asserted or first model first.
        aliases: an alias that is another model's own name hides that model.
    """
    offers = {offer.id: offer for offer in listed}
    chosen = {alias.name: alias.model or next(iter(offers), "") for alias in aliases}
    names = {name: model for name, model in chosen.items() if model in offers}
    plain = [offer for offer in offers.values() if offer.id not in names and offer.id not in names.values()]
    renamed = [msgspec.structs.replace(offers[model], id=name) for name, model in names.items()]
    order = list(offers)
    renamed.sort(key=lambda offer: order.index(names[offer.id]))
    return Named(
        offers=(*renamed, *plain),
        names={name: model for name, model in names.items() if name != model},
        missing=tuple(name for name in chosen if name not in names),
    )


def _refused(message: str, hint: str) -> TelaError:
    return TelaError(message, hint=hint, code="bad_engine")
