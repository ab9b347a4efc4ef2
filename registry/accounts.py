"""API keys as the accounts shelf tells them: which count, whose word they are, and whether they still hold. Pure.

A key is an operator's grant; an issuer adds only with which secret it was claimed, so it cannot widen anything.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from registry.charter import may
from registry.clock import is_expired
from registry.ids import is_account_of, key_id
from registry.kinds import Charter, KeyGrant, Minted, Revocation
from registry.record import Record
from registry.replica import Replica
from registry.validity import Standing

KEYS = "keys"  # the verb that may grant and revoke them


class KeyRow(NamedTuple):
    """One API key that counts."""

    id: str
    label: str
    user: str
    project: str
    models: tuple[str, ...] | None  # None: every model
    expires_at: float | None  # None: it does not expire
    revoked: bool
    claimed_at: float | None  # None: not claimed, or made with its secret
    claim: bytes  # SHA-256 of the claim; empty: made with its secret
    claim_by: float
    digest: bytes  # SHA-256 of the secret; empty: not claimed
    by: bytes  # the operator's key
    record: Record


Refused = list[tuple[Record, str]]


def key_rows(replica: Replica, standing: Standing) -> tuple[dict[str, KeyRow], Refused]:
    """Every key that counts, by id, and the records on this shelf that do not.

    Of two grants with one id the whole fabric's operator's counts, then that of the operator who made the id. Of two
    keys with one secret the one that was claimed, for an issuer said when; then the whole fabric's operator's. What is
    left is two operators of projects who wrote the same: a hash decides that neither of them can choose.
    """
    if standing.in_force is None:
        return {}, []
    return _Reading(replica, standing, standing.in_force.current.charter).rows()


def may_issue(standing: Standing, node_key: bytes, at: float) -> bool:
    """Whether a node may say, at a fabric time, with which secret a key was claimed.

    The charter names it, or names none and it is an ingress; and it was not evicted by then. What an issuer said
    before stays: else evicting an ingress would end every key that was claimed there.
    """
    return _issuer(standing)(node_key, at)


def _issuer(standing: Standing) -> Callable[[bytes, float], bool]:
    if standing.in_force is None:
        return lambda _key, _at: False
    issuers = frozenset(map(key_id, standing.in_force.current.charter.issuers))
    if not issuers:
        issuers = frozenset(node for (node, _), grant in standing.grants.items() if "ingress" in grant.roles)
    ends = {node: standing.acts[f"evict/{node}"].act.at for node in standing.evicted}
    return lambda key, at: key_id(key) in issuers and at <= ends.get(key_id(key), at)


class _Reading:
    """One derivation. Mutable while it goes on."""

    def __init__(self, replica: Replica, standing: Standing, charter: Charter) -> None:
        self._replica = replica
        self._charter = charter
        self._may_issue = _issuer(standing)
        self._rows: dict[str, KeyRow] = {}
        self._refused: Refused = []

    def rows(self) -> tuple[dict[str, KeyRow], Refused]:
        """What counts and what does not."""
        self._grant()
        self._claim()
        self._refuse_copies()
        self._revoke()
        self._refused.sort(key=lambda each: (each[0].key.kind, each[0].order.hash))
        return self._rows, self._refused

    def _may(self, key: bytes, project: str) -> bool:
        return may(self._charter, key, KEYS, project=project)

    def _grant(self) -> None:
        for record, body in self._replica.of_kind("key"):
            if not isinstance(body, KeyGrant):
                continue
            if not self._may(record.key.owner, body.project):
                self._refused.append((record, "its signer may not give keys for this project"))
                continue
            row, held = _granted(record, body), self._rows.get(record.key.id)
            if held is not None:
                row, other = sorted((row, held), key=self._turn_of_id)
                self._refused.append((other.record, "another operator's key has this id"))
            self._rows[record.key.id] = row

    def _turn_of_id(self, row: KeyRow) -> tuple[bool, bool, bytes]:
        return not self._may(row.by, ""), not is_account_of(row.id, row.by), _lot(row.id.encode(), row.by)

    def _claim(self) -> None:
        first: dict[str, tuple[float, bytes, bytes, Record]] = {}
        for record, body in self._replica.of_kind("mint"):
            if not isinstance(body, Minted):
                continue
            if (why := self._why_not_minted(record, body)) is not None:
                self._refused.append((record, why))
                continue
            said = (body.at, record.order.hash, body.digest, record)
            earlier, later = sorted((first[record.key.id], said)) if record.key.id in first else (said, None)
            first[record.key.id] = earlier
            if later is not None:
                self._refused.append((later[3], "it was claimed before"))
        for name, (at, _, digest, _) in first.items():
            self._rows[name] = self._rows[name]._replace(digest=digest, claimed_at=at)

    def _why_not_minted(self, record: Record, body: Minted) -> str | None:
        row = self._rows.get(record.key.id)
        if not self._may_issue(record.key.owner, body.at):
            return "its signer is no issuer"
        if row is None or row.digest or not row.claim:
            return "no key waits for a claim under this id"
        return "it was claimed too late" if is_expired(row.claim_by, body.at) else None

    def _refuse_copies(self) -> None:
        seen: dict[bytes, str] = {}
        for row in sorted(self._rows.values(), key=self._turn_of_secret):
            if row.digest and seen.setdefault(row.digest, row.id) != row.id:
                del self._rows[row.id]
                self._refused.append((row.record, "another key has this secret"))

    def _turn_of_secret(self, row: KeyRow) -> tuple[float, bool, bytes, str]:
        claimed_at = float("inf") if row.claimed_at is None else row.claimed_at
        return claimed_at, not self._may(row.by, ""), _lot(row.digest, row.by), row.id

    def _revoke(self) -> None:
        for record, body in self._replica.of_kind("revocation"):
            row = self._rows.get(record.key.id)
            if not isinstance(body, Revocation) or row is None:
                continue
            if self._may_issue(record.key.owner, body.at) or self._may(record.key.owner, row.project):
                self._rows[record.key.id] = row._replace(revoked=True)
            else:
                self._refused.append((record, "its signer may not revoke this key"))


def _lot(of: bytes, operator: bytes) -> bytes:
    """What is drawn for an operator: fixed by a key that was there before what it is drawn for."""
    return blake2b(of + operator, digest_size=32, person=b"tela-lot").digest()


def _granted(record: Record, body: KeyGrant) -> KeyRow:
    return KeyRow(
        id=record.key.id,
        label=body.label,
        user=body.user,
        project=body.project,
        models=body.models,
        expires_at=body.expires_at,
        revoked=False,
        claimed_at=None,
        claim=body.claim,
        claim_by=body.claim_by,
        digest=body.digest,
        by=record.key.owner,
        record=record,
    )
