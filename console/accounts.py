"""The operator's side of API keys: records for the accounts shelf, signed here and published through a node."""

import os
import secrets
from collections.abc import Iterable
from typing import Any

from console.caller import Caller
from console.client import Control
from console.credentials import chosen
from console.here import control_here, places_here
from console.publishing import publish
from console.signer import Signer, operator_signer
from console.views.words import moment
from node.fabricdir import find
from registry.errors import TelaError
from registry.kinds import Body, KeyGrant, Revocation, audience_of, encode_body, kind_of
from registry.record import Draft, Record, seal
from registry.text import clean

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS = 10


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
        self.now = float(control.get("/view")["at"])
        self.url = url

    @classmethod
    def open(cls, fabric: str | None, passphrase_file: str | None) -> "Accounts":
        """Find a node here and unlock the operator key.

        Raises:
            TelaError: no node, no operator key, or the node does not hold the shelf.
        """
        control = control_here(fabric)
        about = control.get("/self")
        if not about["accounts"]:
            raise TelaError(
                "the node here does not hold the accounts shelf",
                hint="do this on an ingress, or start a node here with --role observer,accounts",
                code="no_accounts",
            )
        directory = find(places_here().config, fabric or str(about["fabric"]["name"]))
        url = str(about["url"] or about["http"] or directory.door)
        return cls(control, operator_signer(directory, passphrase_file), url or "URL")

    def publish_grant(self, grant: KeyGrant) -> str:
        """Publish a new key; returns its id.

        Raises:
            TelaError: this operator may not.
        """
        key = "k_" + "".join(secrets.choice(_BASE62) for _ in range(_ID_CHARS))
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
        found = [row for row in rows_of(self._control) if str(row["id"]).startswith(text)]
        if len(found) == 1:
            return found[0]
        what = "no key is" if not found else f"{len(found)} keys are"
        raise TelaError(
            f"{what} called {clean(text, 80)}", hint="`tela keys list --all` lists them", code="no_such_key"
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


def key_states(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What to show of each key; `state` is unclaimed, lapsed, active, expired or revoked."""
    return [
        {
            "id": str(row["id"]),
            "state": str(row["state"]),
            "user": clean(str(row["user"])),
            "project": clean(str(row["project"])),
            "label": clean(str(row["label"])),
            "models": ", ".join(row["models"]) if row["models"] else "all",
            "expires": moment(row["expires_at"]) if row["expires_at"] else "never",
        }
        for row in rows
    ]


def revoke_own(key: str, reason: str) -> str:
    """Revoke a key of this account by itself; returns what to say."""
    kept = chosen(places_here().config, os.environ, None)
    if kept.id and not kept.id.startswith(key):
        raise TelaError(
            f"the key used here is {kept.id}, not {clean(key, 80)}", hint="tela login URL with that key first"
        )
    answer = Caller(kept.url, kept.secret).post("/v1/keys/self/revoke", {"reason": reason})
    return f"{clean(str(answer.get('id', kept.id)))} is revoked"
