"""Taking an invite or a membership back: finding which is meant, and the act that says so."""

from collections.abc import Iterator
from typing import NamedTuple

from console.charters import Known, held, owners
from console.publishing import publish
from console.signer import Signer
from registry.acts import write_act
from registry.charter import OWNER, may
from registry.errors import TelaError
from registry.kinds import Invite, Membership, read_body
from registry.record import Record
from registry.replica import Replica
from registry.text import clean


class Revocable(NamedTuple):
    """Something that can be taken back."""

    what: str  # invite or member
    id: str
    provider: str
    about: str  # for people


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
        return found[0]
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


def _all(records: list[Record]) -> Iterator[Revocable]:
    for record in records:
        body = read_body(record)
        if isinstance(body, Invite):
            about = f"{clean(body.provider)}, {', '.join(map(clean, body.roles))}, up to {body.max_nodes} nodes"
            yield Revocable("invite", record.key.id, body.provider, about)
        elif isinstance(body, Membership):
            about = f"{clean(body.provider)}, {', '.join(map(clean, body.roles))}"
            yield Revocable("member", record.key.id, body.provider, about)
