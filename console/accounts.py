"""The operator's side of API keys: records for the accounts shelf, signed here and published through a node."""

import os
import secrets
from collections.abc import Iterable
from typing import Any

from console.caller import Caller
from console.client import Control
from console.credentials import chosen, read
from console.here import control_here, fabric_here, places_here
from console.publishing import publish
from console.signer import Signer, operator_signer
from console.views.words import moment
from registry.errors import TelaError
from registry.ids import account_id
from registry.kinds import Body, KeyGrant, Revocation, audience_of, encode_body, kind_of
from registry.record import Draft, Record, seal
from registry.text import clean

MAX_SHOWN = 8
KEY_COLUMNS = ("id", "state", "user", "project", "label", "models", "expires", "by")


class Accounts:
    """An operator at the keys of a fabric. Lives for one command.

    Args:
        control: a node here that holds the accounts shelf.
        signer: an operator whose charter entry says `keys`.
        url: the door that keys are for.
    """

    def __init__(self, control: Control, signer: Signer, url: str) -> None:
        self._control = control
        self._signer = signer
        self._view = control.get("/view")
        self.now = float(self._view["at"])
        self.url = url

    @classmethod
    def open(cls, fabric: str | None, passphrase_file: str | None) -> "Accounts":
        """Find a node here and unlock the operator key.

        Raises:
            TelaError: no node, no operator key, or the node does not hold the shelf.
        """
        directory = fabric_here(fabric)
        control = control_here(directory.name, accounts=True)
        about = control.get("/self")
        if not about["accounts"]:
            raise TelaError(
                "the node here does not hold the accounts shelf, where keys are",
                hint="do this on an ingress, or start a node here with --role observer,accounts",
                code="no_accounts",
            )
        url = str(about["url"] or directory.door or "URL-OF-THE-DOOR")
        return cls(control, operator_signer(directory, passphrase_file), url.removesuffix("/v1"))

    def unknown(self, models: Iterable[str]) -> list[str]:
        """Those of these models that nobody serves now."""
        known = {str(model["id"]) for model in self._view["models"]}
        return [model for model in models if model not in known]

    def publish_grant(self, grant: KeyGrant) -> str:
        """Publish a new key; returns its id.

        Raises:
            TelaError: this operator may not.
        """
        key = account_id(self._signer.key, secrets.token_bytes(8))
        self._publish(key, grant)
        return key

    def publish_revocation(self, key: str, reason: str) -> Record:
        """Publish that a key is not valid any more."""
        return self._publish(key, Revocation(reason=clean(reason), at=self.now))

    def row(self, text: str) -> dict[str, Any]:
        """The one key an id, or the beginning of one, means.

        Raises:
            TelaError: none or several.
        """
        rows = rows_of(self._control)
        found = [row for row in rows if row["id"] == text] or [
            row for row in rows if text and str(row["id"]).startswith(text)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(str(row["id"]) for row in found[:MAX_SHOWN])
            raise TelaError(f"{clean(text, 80)} means {len(found)} keys", hint=f"say which: {some}", code="ambiguous")
        raise TelaError(
            f"no key is called {clean(text, 80)}", hint="tela keys list --all lists them", code="no_such_key"
        )

    def _publish(self, key: str, body: Body) -> Record:
        draft = Draft(kind_of(body), key, encode_body(body), audience_of(body), seq=1)
        record = seal(draft, self._signer.key, self._signer.sign)
        publish(self._control, [record])
        return record


def rows_of(control: Control) -> list[dict[str, Any]]:
    """Every key the node here knows."""
    rows = control.get("/accounts")["keys"]
    return list(rows) if isinstance(rows, list) else []


def key_states(rows: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """What a table shows of each key; `state` is unclaimed, lapsed, active, expired or revoked."""
    return [
        {
            "id": row["id"],
            "state": row["state"],
            "user": row["user"],
            "project": row["project"],
            "label": row["label"],
            "models": "all" if row["models"] is None else ", ".join(row["models"]) or "none",
            "expires": moment(row["expires_at"]) if row["expires_at"] is not None else "never",
            "by": row["by"],
        }
        for row in sorted(rows, key=lambda row: (str(row["user"]), str(row["label"]), str(row["id"])))
    ]


def revoke_own(key: str, reason: str, *, insecure: bool) -> str:
    """Revoke a key of this account by itself; returns its id.

    Raises:
        TelaError: it is not kept here, or the door refuses.
    """
    config = places_here().config
    kept = next((row for row in read(config) if row.id.startswith(key)), None) or chosen(config, os.environ, None)
    if not kept.id.startswith(key) and kept.id:
        raise TelaError(
            f"no key {clean(key, 80)} is kept here; the one used last is {clean(kept.id, 80)}",
            hint="tela login URL keeps it; or an operator revokes it without --self",
            code="no_key",
        )
    answer = Caller(kept.url, kept.secret, insecure=insecure).post("/v1/keys/self/revoke", {"reason": reason})
    return clean(str(answer.get("id") or kept.id))
