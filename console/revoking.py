"""Taking an invite or a membership back: finding which is meant, and the act that says so."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from console.charters import Known, held, owners, replica_of
from console.client import Control
from console.publishing import publish
from console.signer import Signer
from registry.acts import write_act
from registry.charter import OWNER, may
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Invite, Membership, read_body
from registry.record import Record
from registry.replica import Replica
from registry.text import clean
from registry.validity import standing

KINDS = ("charter", "invite", "membership", "acceptance", "certificate", "node", "act")
MAX_SHOWN = 8


class Revocable(NamedTuple):
    """Something that can be taken back."""

    what: str  # invite or member
    id: str
    provider: str
    about: str  # for people
    ends: tuple[str, ...] = ()  # members, with their nodes, who are in the fabric by it alone


def revocable(now: Known, text: str) -> Revocable:
    """The one invite or member that an id, or the beginning of one, means.

    Raises:
        TelaError: no node runs here that knows them, or it means none or several.
    """
    if now.control is None:
        raise TelaError(
            f"no node of {now.fabric.name} runs here to hand a revocation to",
            hint="tela start --role observer --detach, then again",
            code="no_node",
        )
    known = {each.id: each for kind in ("invite", "membership") for each in _all(held(now.control, kind))}
    found = [each for each in known.values() if text and each.id.startswith(text)]
    if len(found) == 1:
        return _with_ends(now, now.control, found[0])
    if found:
        listed = ", ".join(f"{each.what} {each.id}" for each in found[:8])
        raise TelaError(f"{clean(text, 80)} means {len(found)}", hint=f"say which: {listed}", code="ambiguous")
    raise TelaError(
        f"no invite and no member is called {clean(text, 80)}",
        hint="`tela invite` says an invite's id, `tela nodes --json` the member of each node",
        code="no_such_member",
    )


def revoke_act(now: Known, found: Revocable, signer: Signer, reason: str) -> Record:
    """Sign the act and hand it to the node here.

    Raises:
        TelaError: this operator may not.
    """
    assert now.control is not None  # `revocable` asked it
    if not may(now.charter, signer.key, OWNER, provider=found.provider):
        who = ", ".join(owners(now.charter, found.provider)) or "nobody"
        raise TelaError(
            f"{clean(signer.name)} may not revoke for provider {found.provider}", hint=f"{who} may", code="not_entitled"
        )
    replica = Replica()
    for record in held(now.control, "act"):
        replica.apply(record)
    at = float(now.control.get("/view")["at"])
    act = write_act(replica, "revoke", found.id, owner=signer.key, sign=signer.sign, at=at, reason=clean(reason, 200))
    publish(now.control, [act])
    return act


def _with_ends(now: Known, control: Control, found: Revocable) -> Revocable:
    """With the members who end, as the registry judges what the node here holds."""
    view = control.get("/view")
    replica = replica_of(control, KINDS)
    admissions = standing(replica, now.fabric.fabric_id, float(view["at"])).admissions
    ends = [
        (key_id(member), admission)
        for member, admission in admissions.items()
        if found.id in {admission.invite, key_id(member)}
    ]
    said = tuple(f"member {member} of {clean(each.provider)}{_nodes(view, member)}" for member, each in sorted(ends))
    about = f"{found.about}; ends {', '.join(said)}" if said else f"{found.about}; no member is in by it"
    return found._replace(about=about, ends=said)


def _nodes(view: Mapping[str, Any], member: str) -> str:
    """The nodes of a member that are there, in brackets."""
    names = [clean(str(each["name"])) for each in view["nodes"] if each["member"] == member and each["state"] != "LEFT"]
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f" ({', '.join(sorted(names)[:MAX_SHOWN])}{more})" if names else ""


def _all(records: list[Record]) -> Iterator[Revocable]:
    for record in records:
        body = read_body(record)
        if isinstance(body, Invite):
            about = f"{clean(body.provider)}, {', '.join(map(clean, body.roles))}, up to {body.max_nodes} nodes"
            yield Revocable("invite", record.key.id, body.provider, about)
        elif isinstance(body, Membership):
            about = f"{clean(body.provider)}, {', '.join(map(clean, body.roles))}"
            yield Revocable("member", record.key.id, body.provider, about)
