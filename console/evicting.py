"""Putting a hub out that the charter names no more: only so is it heard on members no longer."""

from console.acting import Order, give
from console.charters import Known
from console.signer import Signer
from registry.charter import may
from registry.errors import TelaError
from registry.ids import key_id
from registry.text import clean

FLEET = "fleet"


def refuse_eviction(now: Known, signer: Signer | None = None) -> None:
    """Refuse before anything is changed: a hub that was removed and not evicted would be half a measure.

    Raises:
        TelaError: no node here could carry the act (`no_node`), or the signer may not give it (`not_entitled`).
    """
    if now.control is None:
        raise TelaError(
            f"no node of {now.fabric.name} runs here to hand an eviction to",
            hint="tela start --role observer --detach, then again; or leave --evict out",
            code="no_node",
        )
    if signer is not None and not may(now.charter, signer.key, FLEET):
        who = [clean(each.name) for each in now.charter.operators if may(now.charter, each.key, FLEET)]
        raise TelaError(
            f"{clean(signer.name)} may not evict for the whole fabric, so not the hub of it",
            hint=f"leave --evict out; then {' or '.join(dict.fromkeys(who)) or 'nobody'} may: tela evict NODE",
            code="not_entitled",
        )


def evict_hub(after: Known, key: bytes, signer: Signer) -> None:
    """Evict a hub, when the charter names it no more.

    Raises:
        TelaError: the act counts nowhere, with the reason.
    """
    assert after.control is not None  # `refuse_eviction` asked
    give(after.control, Order("evict", key_id(key), 0, "no hub any more"), signer)
