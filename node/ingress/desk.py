"""The key desk of a door: where a claim becomes a key, and where a key says what it is and ends itself.

It decides nothing: what counts is in the registry, and the node that owns this door writes the records.
"""

import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec

from accounting.claims import claim_digest, looks_like_claim
from accounting.keys import CLAIM, INVITE, PREFIX, KeyEntry
from node.ingress.exposure import source_of
from node.ingress.keybook import Keybook
from node.ingress.openai import Refusal, retry_after
from registry.accounts import KeyRow

log = logging.getLogger(f"tela.{__name__}")

WINDOW_S = 60.0
PER_WINDOW = 10  # claims one client may try: 256 bits need no more, and a flood costs nothing else
MAX_CLIENTS = 4096  # remembered; the one that tried first is forgotten first
DENIED = "This claim is not valid: it may be mistyped, used by somebody else, revoked, or older than it may be."
_MISTAKEN = {
    PREFIX: "This is an API key, not a claim: it can be used as it is.",
    INVITE: "This is an invite for nodes, not a claim: `tela join @FILE` takes it.",
}

Write = Callable[[str, bytes], None]  # publish with which secret's digest a key was claimed


class _ClaimBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a claimer sends."""

    claim: str
    digest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _RevokeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the holder of a key may say when ending it."""

    reason: Annotated[str, msgspec.Meta(max_length=256)] = ""


class KeyDesk:
    """Claims and questions about keys. Mutable: counts tries by client.

    Args:
        book: the keys that count, as they are now.
        is_issuer: whether this node's word on a claim counts.
        minted: publishes which digest a key was claimed with; afterwards `book` has it.
        revoked: publishes that a key ends, and why.
        fabric: unix seconds, fabric time.
        now: monotonic seconds.
    """

    def __init__(
        self,
        *,
        book: Callable[[], Keybook],
        is_issuer: Callable[[], bool],
        minted: Write,
        revoked: Callable[[str, str], None],
        fabric: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._book = book
        self._is_issuer = is_issuer
        self._minted = minted
        self._revoked = revoked
        self._fabric = fabric
        self._now = now
        self._tries: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def admit(self, client: str) -> Refusal | None:
        """Count a try of a client; a refusal when it tried too often.

        Args:
            client: its address.
        """
        source, now = source_of(client), self._now()
        began, count = self._tries.get(source, (now, 0))
        if now - began >= WINDOW_S:
            began, count = now, 0
        if count >= PER_WINDOW:
            left_s = max(1, round(began + WINDOW_S - now))
            return Refusal(
                status=429, message="Too many claims from here; wait a minute.", code="rate_limited",
                type="rate_limit_error", headers=retry_after(left_s),
            )  # fmt: skip
        self._tries[source] = (began, count + 1)
        if len(self._tries) > MAX_CLIENTS:
            self._tries.popitem(last=False)
        return None

    def claim(self, raw: bytes) -> KeyRow | Refusal:
        """The key a claim is for, claimed with the secret whose digest was sent.

        The same claim with the same digest may come again: an answer that was lost is no loss.
        """
        try:
            body = msgspec.json.decode(raw, type=_ClaimBody)
        except (msgspec.MsgspecError, RecursionError):
            return Refusal(status=400, message='Send {"claim": …, "digest": hex SHA-256 of the key}.', code="bad_claim")
        if not looks_like_claim(body.claim):
            known = (said for prefix, said in _MISTAKEN.items() if body.claim.startswith(prefix))
            return _denied(next(known, f"It does not look like a claim: those begin with {CLAIM}."))
        return self._claimed(claim_digest(body.claim), bytes.fromhex(body.digest))

    def _claimed(self, claim: bytes, digest: bytes) -> KeyRow | Refusal:
        book, now = self._book(), self._fabric()
        row = book.rows.get(book.claims.get(claim, ""))
        if row is None or row.revoked or (row.expires_at is not None and now >= row.expires_at):
            return _denied(DENIED)
        if row.digest:
            return row if hmac.compare_digest(row.digest, digest) else _denied(DENIED)
        if now > row.claim_by or digest in book.secrets:  # a secret is of one key
            return _denied(DENIED)
        if not self._is_issuer():
            return Refusal(
                status=409, message="This ingress may not give keys; claim it at the one the operator named.",
                code="not_issuer",
            )  # fmt: skip
        self._minted(row.id, digest)
        log.info("key claimed", extra={"key": row.id})
        row = self._book().rows.get(row.id)
        return row if row is not None and row.digest == digest else _denied(DENIED)

    def revoke(self, raw: bytes, key: KeyEntry) -> Refusal | None:
        """End a key by itself; None when it is done."""
        try:
            body = msgspec.json.decode(raw or b"{}", type=_RevokeBody)
        except (msgspec.MsgspecError, RecursionError):
            return Refusal(status=400, message='Send {"reason": …} or nothing.', code="bad_request")
        if not self._is_issuer():
            return Refusal(status=409, message="This ingress may not end keys; ask the operator.", code="not_issuer")
        self._revoked(key.id, body.reason)
        log.info("key revoked by its holder", extra={"key": key.id})
        return None


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
