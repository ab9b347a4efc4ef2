"""The keys that count as a door looks them up: by id, by claim, by secret. Pure; made anew when they change."""

from collections.abc import Mapping
from typing import NamedTuple

from accounting.keys import KeyEntry, KeyRing
from registry.accounts import KeyRow


class Keybook(NamedTuple):
    """Every key that counts."""

    rows: Mapping[str, KeyRow]  # by id
    claims: Mapping[bytes, str]  # ids by the digest of their claim
    secrets: Mapping[bytes, str]  # ids by the digest of their secret
    ring: KeyRing  # of those that have a secret


def keybook(rows: Mapping[str, KeyRow]) -> Keybook:
    """Look the keys up by everything they are asked for; of two with one claim, the first by id is meant."""
    claims: dict[bytes, str] = {}
    secrets: dict[bytes, str] = {}
    for name in sorted(rows):
        row = rows[name]
        if row.claim:
            claims.setdefault(row.claim, name)
        if row.digest:
            secrets.setdefault(row.digest, name)
    return Keybook(rows, claims, secrets, KeyRing(entry_of(row) for row in rows.values() if row.digest))


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
