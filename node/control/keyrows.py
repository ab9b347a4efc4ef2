"""API keys as the control API shows them. Pure."""

from typing import Literal

from node.control.schema import KeyView
from registry.accounts import KeyRow
from registry.clock import is_expired
from registry.ids import key_id
from registry.text import clean

State = Literal["unclaimed", "active", "expired", "revoked", "lapsed"]


def key_view(row: KeyRow, operators: dict[bytes, str], now_fabric: float) -> KeyView:
    """One key, without its digest and its claim.

    Args:
        row: what the accounts shelf says.
        operators: names by key.
        now_fabric: unix seconds, fabric time.
    """
    return KeyView(
        id=row.id,
        label=clean(row.label),
        user=clean(row.user),
        project=clean(row.project),
        models=row.models,
        expires_at=row.expires_at,
        revoked=row.revoked,
        state=_state(row, now_fabric),
        claimed_at=row.claimed_at,
        claim_by=row.claim_by if row.claim else None,
        by=operators.get(row.by) or key_id(row.by),
    )


def _state(row: KeyRow, now_fabric: float) -> State:
    if row.revoked:
        return "revoked"
    if row.expires_at is not None and now_fabric > row.expires_at:
        return "expired"
    if row.digest:
        return "active"
    return "lapsed" if is_expired(row.claim_by, now_fabric) else "unclaimed"
