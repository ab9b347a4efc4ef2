"""Whether an engine is ready: what it says of its health and its models, and what follows from that.

The engine is outside: its answers are bounded, decoded here once, and never followed anywhere.
"""

import asyncio
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

import aiohttp
import msgspec

from registry.kinds import Offer
from registry.text import clean, is_id

PROBE_TIMEOUT_S = 5.0  # a busy engine tokenizes for seconds before it answers; a dead one refuses at once
MAX_LISTING_B = 256 * 1024
MAX_OFFERS = 16  # what a replica's body holds
MAX_OFFERS_B = 2816  # encoded: what the 4 KB of a record leave beside its other fields at their longest
# No engine says which of its endpoints its models serve; a wrong request gets the engine's own refusal.
FAMILIES = ("chat", "completions", "embeddings")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a probe means for the replica; `phase` fits its record."""

    ready: bool
    phase: str = ""
    offers: tuple[Offer, ...] = ()


async def probe(session: aiohttp.ClientSession, url: str, *, timeout_s: float = PROBE_TIMEOUT_S) -> Probe:
    """Ask an engine for its health, then for its models. It never raises for what the engine does.

    Args:
        session: without environment proxies; redirects are not followed.
        url: its base URL, without a path.
        timeout_s: for each of the two questions.
    """
    status, _ = await _get(session, f"{url}/health", timeout_s)
    if status != "200":
        return Probe(healthy=False, phase=f"/health {status}")
    status, body = await _get(session, f"{url}/v1/models", timeout_s)
    if status != "200":
        return Probe(healthy=True, phase=f"no model list, /v1/models {status}")
    models = read_models(body)
    if models is None:
        return Probe(healthy=True, phase="no model list, /v1/models garbled")
    return Probe(healthy=True, models=models)


async def _get(session: aiohttp.ClientSession, url: str, timeout_s: float) -> tuple[str, bytes]:
    """Return a status, or a word for why there is none, and at most MAX_LISTING_B of body."""
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_LISTING_B:
                    return "too large", b""
            return str(response.status), bytes(body)
    except TimeoutError:
        return "silent", b""
    except aiohttp.ClientConnectorError:
        return "refused", b""
    except (aiohttp.ServerDisconnectedError, OSError):
        return "reset", b""
    except aiohttp.ClientError:
        return "garbled", b""


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


def judge(seen: Probe, expected_model: str | None, *, has_served: bool = False) -> Verdict:
    """Decide whether an engine may serve: healthy, with models, and with the one its operator named.

    Args:
        seen: what a probe showed.
        expected_model: the model it was started for; None: whatever it lists.
        has_served: whether it was ready before; an engine that was is not loading any more.
    """
    if not seen.healthy:
        return Verdict(ready=False, phase=f"{'unhealthy' if has_served else 'loading'}, {seen.phase}")
    if seen.models is None:
        return Verdict(ready=False, phase=seen.phase)
    listed = ", ".join(offer.id for offer in seen.models) or "nothing with a usable name"
    if expected_model is not None and all(offer.id != expected_model for offer in seen.models):
        return Verdict(ready=False, phase=clean(f"wrong model: wanted {expected_model}, lists {listed}"))
    if not seen.models:
        return Verdict(ready=False, phase=f"lists {listed}")
    offers = _fitting(sorted(seen.models, key=lambda offer: offer.id != expected_model))
    excess = len(seen.models) - len(offers)
    return Verdict(ready=True, phase=f"{excess} more models are not offered" if excess else "", offers=offers)


def _fitting(offers: list[Offer]) -> tuple[Offer, ...]:
    """Return as many offers, from the first on, as a record holds."""
    ends_b = accumulate(len(msgspec.json.encode(offer)) + 1 for offer in offers)  # 1: the comma
    count = sum(end_b <= MAX_OFFERS_B for end_b in ends_b)
    return tuple(offers[: min(count, MAX_OFFERS)])
