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
    entries: Mapping[str, KeyEntry]  # by id, of those that have a secret
    ring: KeyRing  # of the entries


def keybook(rows: Mapping[str, KeyRow], before: Keybook | None = None) -> Keybook:
    """Look the keys up by everything they are asked for; of two with one claim, the first by id is meant.

    Args:
        rows: every key that counts, by id.
        before: an earlier book: the entries of what did not change since are taken from it, as most of the work is
            making them.
    """
    claims: dict[bytes, str] = {}
    secrets: dict[bytes, str] = {}
    entries: dict[str, KeyEntry] = {}
    for name, row in rows.items():
        if row.claim and name <= claims.get(row.claim, name):
            claims[row.claim] = name
        if row.digest:
            secrets[row.digest] = name
            is_same = before is not None and before.rows.get(name) == row
            entries[name] = before.entries[name] if before is not None and is_same else entry_of(row)
    return Keybook(rows, claims, secrets, entries, KeyRing(entries.values()))


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
