"""Removing an operator: what they signed is looked at, taken over or left to end, and then the charter goes on.

What is taken over is published before the charter's successor, so that nothing stops counting in between. Refuses to
remove somebody whose word cannot be looked at here, unless it is meant to end.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console.charters import Known, put, replica_of, written
from console.client import Control
from console.naming import operator_named, removed
from console.signer import Signer
from console.takeover import (
    ACCOUNTS,
    KINDS,
    Estate,
    Judged,
    Loss,
    estate,
    judge,
    loss,
    missing_verbs,
    signed_again,
    with_records,
)
from console.views.words import counted
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import ACCOUNTS_ROLES, Charter
from registry.record import Record
from registry.text import clean

AT_ONCE = 64  # records a node takes in one question
MAX_SHOWN = 16
# What the registry says of a grant whose twin it prefers, which it does until the charter drops the twin's signer.
TWIN = "another operator's key has this id"


class Removal(NamedTuple):
    """Who may what no more."""

    who: str
    verbs: tuple[str, ...] | None  # None: everything
    scope: str | None  # None: every one

    def of(self, charter: Charter) -> Charter:
        """The charter after it.

        Raises:
            TelaError: as `console.naming.removed`.
        """
        return removed(charter, self.who, self.verbs, self.scope)


class Prospect(NamedTuple):
    """A removal that was signed and not told to anybody yet."""

    successor: Record
    before: Judged | None  # None: nothing could be looked at
    after: Judged | None
    held: Estate | None
    has_keys: bool  # the accounts shelf was looked at

    @property
    def lost(self) -> Loss:
        """What counts no more when nothing is taken over."""
        assert self.before is not None  # only asked where something was looked at
        assert self.after is not None
        return loss(self.before, self.after)


def check(now: Known, removal: Removal) -> None:
    """Refuse what cannot be looked at here, before anybody is asked for a passphrase.

    Raises:
        TelaError: no node runs here that could say what this operator signed (`no_node`), or none that holds keys
            (`no_accounts`); or the removal cannot be.
    """
    key, after = operator_named(now.charter, removal.who).key, removal.of(now.charter)
    lost = _lost_verbs(now.charter, after, key)
    who = clean(removal.who, 80)
    if now.control is None:
        if not lost.isdisjoint({"owner", "keys"}):
            raise TelaError(
                f"no node of {now.fabric.name} runs here, so it is not known whom {who} invited and to whom they gave "
                "keys, which all would end",
                hint="tela start --role observer,accounts --detach, then again; or let it all end: --void",
                code="no_node",
            )
    elif "keys" in lost and not now.control.about["accounts"]:
        raise TelaError(
            f"the keys that {who} granted would end, and none could be looked at: the node here does not hold them",
            hint=f"repeat it on {_holders(now.control)}; or remove what is not about keys here first: --verbs; or let "
            "them all end: --void",
            code="no_accounts",
        )


def prospect(now: Known, signer: Signer, removal: Removal) -> Prospect:
    """Sign the successor, and see what it would end.

    Raises:
        TelaError: the signer may not, or the node here does not say what it holds.
    """
    successor = written(now, signer, removal.of)
    if now.control is None:
        return Prospect(successor, None, None, None, has_keys=False)
    has_keys = bool(now.control.about["accounts"])
    replica = replica_of(now.control, KINDS + (ACCOUNTS if has_keys else ()))
    for record in now.charters:
        replica.apply(record)
    fabric = now.fabric.fabric_id
    before = judge(replica, fabric, float(now.control.get("/view")["at"]))
    after = with_records(before, fabric, [successor])
    held = estate(before, after, operator_named(now.charter, removal.who).key)
    return Prospect(successor, before, after, held, has_keys)


def take_over(now: Known, signer: Signer, removal: Removal, seen: Prospect) -> Estate | None:
    """Sign everything again and publish it; the successor is not told yet. None when nothing could be looked at.

    Raises:
        TelaError: the signer may not sign all of it, or something would end all the same; nothing was published then.
    """
    if now.control is None or seen.held is None or seen.before is None or seen.after is None:
        return None
    _refuse_what_it_may_not(signer, removal, seen.held, seen.after.charter)
    records = signed_again(seen.held, seen.before, signer.key, signer.sign)
    final = with_records(seen.before, now.fabric.fabric_id, [*records, seen.successor])
    left = loss(seen.before, final)
    if not left.is_empty:
        raise TelaError(
            f"not everything could be taken over from {clean(removal.who, 80)}: {said_of(left)}",
            hint="nothing was changed; --void removes them all the same",
            code="not_taken_over",
        )
    for at in range(0, len(records), AT_ONCE):
        _hand_over(now.control, records[at : at + AT_ONCE])
    return seen.held


def finish(now: Known, seen: Prospect) -> Known:
    """Tell the successor to the node here, and keep it."""
    return put(now, seen.successor)


def said_of(lost: Loss) -> str:
    """What ends, in words; empty when nothing does."""
    revived = counted(len(lost.revived), "revoked key")
    parts = [
        f"{counted(len(lost.members), 'member')} end" + ("s" if len(lost.members) == 1 else "") if lost.members else "",
        f"{counted(len(lost.keys), 'key')} end" + ("s" if len(lost.keys) == 1 else "") if lost.keys else "",
        f"{_acts(f'{each.act.verb} {each.act.target}' for each in lost.acts)} count no more" if lost.acts else "",
        f"{revived} {'is' if len(lost.revived) == 1 else 'are'} valid again" if lost.revived else "",
    ]
    return "; ".join(part for part in parts if part)


def taken(held: Estate) -> list[str]:
    """What was taken over, a line for each kind of thing."""
    used = [record.key.id for record, _ in held.invites if record.key.id not in held.unused]
    lines = [
        _line("invite", used),
        _line("invite", sorted(held.unused), ", not used yet (tela operators revoke ID takes one back)"),
        _line("membership", [key_id(body.member) for _, body in held.memberships]),
        _line("key", [row.id for row in held.grants]),
        _line("revocation", [record.key.id for record in held.revocations], " of keys"),
        _line("order", [f"{each.act.verb} {each.act.target}" for each in held.acts]),
    ]
    return [line for line in lines if line]


def _line(what: str, names: Sequence[str], more: str = "") -> str:
    return f"{counted(len(names), what)}{more}: {_some(names)}" if names else ""


def _acts(names: Iterable[str]) -> str:
    listed = list(names)
    return f"{counted(len(listed), 'order')} ({_some(listed)})"


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(clean(name, 80) for name in names[:MAX_SHOWN]) + rest


def _refuse_what_it_may_not(signer: Signer, removal: Removal, held: Estate, charter: Charter) -> None:
    missing = missing_verbs(held, charter, signer.key)
    if not missing:
        return
    who, name = clean(removal.who, 80), clean(signer.name)
    is_operator = any(each.key == signer.key for each in charter.operators)
    ways = f"tela operators grant {name} --verbs {','.join(missing)}" if is_operator else "another owner removes them"
    raise TelaError(
        f"{name} may not {' or '.join(missing)} for the whole fabric once this is done, so not take over from {who}: "
        + "; ".join(taken(held)),
        hint=f"{ways}, then again; or let it all end: --void",
        code="not_entitled",
    )


def _lost_verbs(before: Charter, after: Charter, key: bytes) -> frozenset[str]:
    """Verbs that an operator has in fewer scopes after."""

    def held(charter: Charter) -> set[tuple[str, str]]:
        return {(each.scope, verb) for each in charter.operators if each.key == key for verb in each.verbs}

    return frozenset(verb for _, verb in held(before) - held(after))


def _holders(control: Control) -> str:
    """Nodes that hold the accounts shelf, by name."""
    names = [
        clean(str(node["name"]))
        for node in control.get("/view")["nodes"]
        if node["state"] == "SERVING" and not ACCOUNTS_ROLES.isdisjoint(map(str, node["roles"]))
    ]
    return " or ".join(names[:4]) or "an ingress (tela start --role observer,accounts starts one here)"


def _hand_over(control: Control, records: Sequence[Record]) -> None:
    answer = control.post("/records", {"records": [b64encode(record.raw).decode() for record in records]})
    for record, result in zip(records, answer["results"], strict=True):
        if not result["counts"] and result["why"] != TWIN:
            raise TelaError(
                f"the {record.key.kind} {record.key.id} was signed again, but counts nowhere: "
                f"{clean(str(result['why']))}",
                hint="the operator was not removed; what was taken over does no harm; do it again",
                code="not_taken_over",
            )
