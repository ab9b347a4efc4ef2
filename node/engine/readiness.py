"""Whether an engine is ready: what it says of its health and its models, and what follows from that.

The engine is outside: its answers are bounded, decoded here once, and never followed anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated

import aiohttp
import msgspec

from node.engine.aliases import Alias, under_aliases
from node.engine.families import FAMILIES
from node.engine.fetch import Target, fetch
from registry.kinds import Offer
from registry.text import clean, is_id

PROBE_TIMEOUT_S = 5.0  # a busy engine tokenizes for seconds before it answers; a dead one refuses at once
MAX_LISTING_B = 256 * 1024
MAX_OFFERS = 16  # what a replica's body holds
MAX_OFFERS_B = 2816  # encoded: what the 4 KB of a record leave beside its other fields at their longest
_WANTS_KEY = "the engine wants an API key"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Card(msgspec.Struct):
    id: str
    max_model_len: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    created: _Count | None = None


class _Listing(msgspec.Struct):
    data: list[_Card]


_LISTING = msgspec.json.Decoder(_Listing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one look at an engine showed."""

    healthy: bool  # /health answered 200
    models: tuple[Offer, ...] | None = None  # None: no list that could be read
    phase: str = ""  # what is missing, as "/health 503"; empty when nothing is
    wants_key: bool = False  # it refused for want of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a probe means for the replica; `phase` fits its record."""

    ready: bool
    phase: str = ""
    offers: tuple[Offer, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # the engine's name of each offer that has another one
    models: tuple[str, ...] = ()  # what it lists, by its own names, the one to be tried first
    is_gone: bool = False  # it is well and does not list the model it is for


async def probe(session: aiohttp.ClientSession, target: Target | str, *, timeout_s: float = PROBE_TIMEOUT_S) -> Probe:
    """Ask an engine for its health, then for its models. It never raises for what the engine does.

    Args:
        session: without environment proxies; redirects are not followed.
        target: where it is; a base URL alone when it takes no key.
        timeout_s: for each of the two questions.
    """
    target = Target(target) if isinstance(target, str) else target
    health = await fetch(session, target, "/health", timeout_s=timeout_s, limit_b=MAX_LISTING_B)
    if health.status != "200":
        return Probe(healthy=False, phase=f"/health {health.status}", wants_key=health.wants_key)
    listing = await fetch(session, target, "/v1/models", timeout_s=timeout_s, limit_b=MAX_LISTING_B)
    if listing.status != "200":
        phase = f"no model list, /v1/models {listing.status}"
        return Probe(healthy=True, phase=phase, wants_key=listing.wants_key)
    models = read_models(listing.body)
    if models is None:
        return Probe(healthy=True, phase="no model list, /v1/models garbled")
    return Probe(healthy=True, models=models)


def read_models(body: bytes) -> tuple[Offer, ...] | None:
    """The models of a /v1/models answer, each once; None when it is not such an answer.

    A name that is no identifier cannot stand in a record and is left out.
    """
    try:
        listing = _LISTING.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    offers: dict[str, Offer] = {}
    for card in listing.data:
        if is_id(card.id):
            offers.setdefault(card.id, _offer(card))
    return tuple(offers.values())


def _offer(card: _Card) -> Offer:
    return Offer(id=card.id, families=FAMILIES, context_tokens=card.max_model_len, created=card.created or 0)


def judge(
    seen: Probe,
    expected_model: str | None,
    *,
    has_served: bool = False,
    aliases: tuple[Alias, ...] = (),
    key_advice: str = "",
) -> Verdict:
    """Decide whether an engine may be tried: healthy, with models, and with the one its operator named.

    Args:
        seen: what a probe showed.
        expected_model: the model it was started for; None: whatever it lists.
        has_served: whether it was ready before; an engine that was is not loading any more.
        aliases: names its models are offered by instead of their own.
        key_advice: what its operator can do when it wants a key.
    """
    if seen.wants_key:
        return Verdict(ready=False, phase=wants_key(key_advice))
    if not seen.healthy:
        return Verdict(ready=False, phase=f"{'unhealthy' if has_served else 'loading'}, {seen.phase}")
    if seen.models is None:
        return Verdict(ready=False, phase=seen.phase)
    listed = ", ".join(offer.id for offer in seen.models) or "nothing with a usable name"
    if expected_model is not None and all(offer.id != expected_model for offer in seen.models):
        phase = clean(f"wrong model: wanted {expected_model}, lists {listed}")
        return Verdict(ready=False, phase=phase, is_gone=has_served)
    if not seen.models:
        return Verdict(ready=False, phase=f"lists {listed}")
    return _ready(sorted(seen.models, key=lambda offer: offer.id != expected_model), aliases)


def _ready(listed: list[Offer], aliases: tuple[Alias, ...]) -> Verdict:
    named = under_aliases(listed, aliases)
    offers = _fitting(named.offers)
    excess = len(named.offers) - len(offers)
    missing = f"no model for the alias {', '.join(named.missing)}" if named.missing else ""
    return Verdict(
        ready=bool(offers),
        phase=clean(f"{excess} more models are not offered" if excess else missing),
        offers=offers,
        names=named.names,
        models=tuple(offer.id for offer in listed),
    )


def wants_key(advice: str = "") -> str:
    """The phase of an engine that refuses for want of a key."""
    return f"{_WANTS_KEY}{': ' if advice else ''}{advice}"


def advice_on(phase: str, *, is_ours: bool) -> str:
    """What to look at when an engine stays in a phase; empty: there is nothing to add.

    Args:
        phase: as a verdict has it.
        is_ours: it was started here, so there is a log and a command.
    """
    if phase.startswith(_WANTS_KEY):
        return ""  # said already
    if phase.startswith("wrong model"):
        return "see --model and the engine's --served-model-name"
    if "/health 404" in phase:
        return "is this an OpenAI-compatible engine with /health?"
    if not is_ours:
        return "does it listen there?" if "refused" in phase else ""
    return "is --port {port} passed? see the log" if "refused" in phase else "see the log"


def _fitting(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return as many offers, from the first on, as a record holds."""
    ends_b = accumulate(len(msgspec.json.encode(offer)) + 1 for offer in offers)  # 1: the comma
    count = sum(end_b <= MAX_OFFERS_B for end_b in ends_b)
    return tuple(offers[: min(count, MAX_OFFERS)])
