"""Who may do what, and what was signed by somebody who may not: the charter as people read it. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

from console.views.forks import forks_of
from console.views.table import plain
from registry.charter import InForce
from registry.ids import key_id
from registry.kinds import Charter
from registry.record import Record
from registry.text import clean

SIGNED_BY_PEOPLE = frozenset({"charter", "invite", "membership", "act", "key", "revocation"})
MAX_REFUSED = 20
OPERATOR_COLUMNS = ("name", "verbs", "scope", "key", "you")


def authority(in_force: InForce, view: Mapping[str, Any] | None, *, mine: bytes) -> dict[str, Any]:
    """Everything the charter says, and its forks.

    Args:
        in_force: the charter, and successors that are not followed.
        view: what a node here answers to `/view`; None: there is none.
        mine: this account's operator key; empty: it has none.
    """
    record, charter = in_force.current
    names = {str(each["id"]): clean(str(each["name"])) for each in (view or {}).get("nodes", [])}
    return {
        "fabric": clean(charter.name),
        "charter": record.order.seq,
        "hash": record.order.hash.hex(),
        "signed_by": _signer(charter, record.key.owner),
        "operators": [_operator(each.key, each.name, each.verbs, each.scope, mine) for each in charter.operators],
        "hubs": [
            {"id": key_id(each.key), "name": names.get(key_id(each.key), ""), "urls": list(each.urls)}
            for each in charter.hubs
        ],
        "issuers": [{"id": key_id(key), "name": names.get(key_id(key), "")} for key in charter.issuers],
        "recovery": bool(charter.recovery),
        "forks": [
            {
                "hash": fork.record.order.hash.hex(),
                "charter": fork.record.order.seq,
                "signed_by": _past_signer(in_force, fork.record),
                "pending": list(fork.pending),
                "unseats": fork.unseats,
            }
            for fork in forks_of(in_force)
        ],
        "refused": [
            {
                "kind": str(each["kind"]),
                "id": clean(str(each["id"])),
                "by": clean(str(each["by"])),
                "why": clean(str(each["why"])),
            }
            for each in (view or {}).get("refused", [])
        ],
    }


def lines(shown: Mapping[str, Any], covered: Collection[tuple[str, str]] = ()) -> list[str]:
    """The same as text.

    Args:
        shown: what `authority` says.
        covered: kind and id of what counts by another signer's word: it was taken over, and nobody need look.
    """
    text = [plain([_row(each) for each in shown["operators"]], OPERATOR_COLUMNS), ""]
    text.append(f"charter   {shown['charter']} of {shown['fabric']}, signed by {shown['signed_by']}")
    text += [f"hub       {each['name'] or each['id']}  {', '.join(each['urls'])}" for each in shown["hubs"]]
    text += [f"issuer    {each['name'] or each['id']}" for each in shown["issuers"]]
    if not shown["issuers"]:
        text.append("issuer    every ingress")
    text += [line for each in shown["forks"] if each["pending"] for line in _fork(each)]
    return text + _refused([each for each in shown["refused"] if (each["kind"], each["id"]) not in covered])


def _fork(fork: Mapping[str, Any]) -> list[str]:
    """A charter that is not followed, as long as something of it does not hold."""
    again = "          if they come first again, sign it with --recovery: that is followed before any other"
    return [
        f"FORK      charter {fork['charter']} {fork['hash'][:12]} signed by {fork['signed_by']} is not followed: two "
        "owners changed the charter at once. What it said, unless nobody wants it any more, is to be done again:",
        *(f"          {command}" for command in fork["pending"]),
        *([again] if fork["unseats"] else []),
    ]


def _refused(refused: list[Mapping[str, str]]) -> list[str]:
    """What people signed and counts nowhere; certificates that ended are only in the JSON."""
    signed = [each for each in refused if each["kind"] in SIGNED_BY_PEOPLE]
    text = [f"REFUSED   {each['kind']} {each['id']} by {each['by']}: {each['why']}" for each in signed[:MAX_REFUSED]]
    return text + ([f"          and {len(signed) - MAX_REFUSED} more: --json"] if len(signed) > MAX_REFUSED else [])


def _operator(key: bytes, name: str, verbs: tuple[str, ...], scope: str, mine: bytes) -> dict[str, Any]:
    return {
        "name": clean(name),
        "verbs": list(verbs),
        "scope": clean(scope),
        "key": key.hex(),
        "id": key_id(key),
        "you": key == mine,
    }


def _row(operator: Mapping[str, Any]) -> dict[str, object]:
    return {**operator, "key": operator["id"], "you": "you" if operator["you"] else None}


def _past_signer(in_force: InForce, fork: Record) -> str:
    """Whoever signed a fork, by the charter it follows: they may be an operator no more."""
    at = fork.order.seq - 1
    charter = in_force.former[at] if 0 <= at < len(in_force.former) else in_force.current.charter
    return _signer(charter, fork.key.owner)


def _signer(charter: Charter, key: bytes) -> str:
    if key == charter.recovery:
        return "the recovery key"
    return next((clean(each.name) for each in charter.operators if each.key == key), key_id(key))
