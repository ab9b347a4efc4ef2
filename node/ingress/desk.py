"""The key desk of a door: where a claim becomes a key, and where a key says what it is and ends itself.

It decides nothing: what counts is in the registry, and the node that owns this door writes the records.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec

from accounting.claims import claim_digest, looks_like_claim
from accounting.keys import KeyEntry
from node.ingress.openai import Refusal, retry_after
from registry.accounts import KeyRow

MAX_CLAIM_B = 4096
PER_MINUTE = 10  # claims one address may try: 256 bits need no more, and a flood costs nothing else
MAX_ADDRESSES = 4096
DENIED = "This claim is not valid: it may be mistyped, used by somebody else, or older than a week."

Write = Callable[[str, bytes], None]  # publish with which secret's digest a key was claimed


class _ClaimBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a claimer sends."""

    claim: Annotated[str, msgspec.Meta(max_length=128)]
    digest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _RevokeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the holder of a key may say when ending it."""

    reason: Annotated[str, msgspec.Meta(max_length=256)] = ""


class KeyDesk:
    """Claims and questions about keys. Mutable: counts tries by address.

    Args:
        rows: every key that counts, by id.
        is_issuer: whether this node's word on a claim counts.
        minted: publishes which digest a key was claimed with.
        revoked: publishes that a key ends.
        fabric: unix seconds, fabric time.
        now: monotonic seconds.
    """

    def __init__(
        self,
        *,
        rows: Callable[[], dict[str, KeyRow]],
        is_issuer: Callable[[], bool],
        minted: Write,
        revoked: Callable[[str, str], None],
        fabric: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._rows = rows
        self._is_issuer = is_issuer
        self._minted = minted
        self._revoked = revoked
        self._fabric = fabric
        self._now = now
        self._tries: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def claim(self, raw: bytes, address: str) -> KeyRow | Refusal:
        """The key a claim is for, claimed with the secret whose digest was sent.

        The same claim with the same digest may come again: an answer that was lost is no loss.
        """
        if not self._may_try(address):
            return Refusal(
                status=429, message="Too many claims from here; wait a minute.", code="rate_limited",
                type="rate_limit_error", headers=retry_after(60),
            )  # fmt: skip
        try:
            body = msgspec.json.decode(raw, type=_ClaimBody)
        except (msgspec.MsgspecError, RecursionError):
            return Refusal(status=400, message='Send {"claim": …, "digest": hex SHA-256 of the key}.', code="bad_claim")
        if not looks_like_claim(body.claim):
            return _denied("It does not look like a claim: those begin with tela_claim_.")
        return self._claimed(claim_digest(body.claim), bytes.fromhex(body.digest))

    def _claimed(self, claim: bytes, digest: bytes) -> KeyRow | Refusal:
        row = next((row for row in self._rows().values() if row.claim and hmac.compare_digest(row.claim, claim)), None)
        if row is None or row.revoked:
            return _denied(DENIED)
        if row.digest:
            return row if hmac.compare_digest(row.digest, digest) else _denied(DENIED)
        if self._fabric() > row.claim_by:
            return _denied(DENIED)
        if not self._is_issuer():
            return Refusal(
                status=409, message="This ingress may not give keys; claim it at the one the operator named.",
                code="not_issuer",
            )  # fmt: skip
        self._minted(row.id, digest)
        return self._rows().get(row.id, row)

    def revoke(self, raw: bytes, key: KeyEntry) -> Refusal | None:
        """End a key by itself; None when it is done."""
        try:
            body = msgspec.json.decode(raw or b"{}", type=_RevokeBody)
        except (msgspec.MsgspecError, RecursionError):
            return Refusal(status=400, message='Send {"reason": …} or nothing.', code="bad_request")
        if not self._is_issuer():
            return Refusal(status=409, message="This ingress may not end keys; ask the operator.", code="not_issuer")
        self._revoked(key.id, body.reason)
        return None

    def _may_try(self, address: str) -> bool:
        now = self._now()
        began, count = self._tries.pop(address, (now, 0))
        if now - began >= 60.0:
            began, count = now, 0
        self._tries[address] = (began, count + 1)
        if len(self._tries) > MAX_ADDRESSES:
            self._tries.popitem(last=False)
        return count < PER_MINUTE


def entry_of(row: KeyRow) -> KeyEntry:
    """A key of the accounts shelf as the ring holds it."""
    return KeyEntry(
        id=row.id,
        digest=row.digest,
        label=row.label,
        expires_at=row.expires_at,
        models=row.models,
        revoked=row.revoked,
        user=row.user,
        project=row.project,
    )


def about(key: KeyEntry) -> bytes:
    """What a key says of itself."""
    return msgspec.json.encode(
        {
            "id": key.id,
            "label": key.label,
            "user": key.user,
            "project": key.project,
            "models": key.models,
            "expires_at": key.expires_at,
        }
    )


def _denied(message: str) -> Refusal:
    return Refusal(status=403, message=message, code="claim_refused")
