"""Giving an order to the fleet: who signs it, the record itself, and waiting until something came of it.

Acts are signed here, in the person's own process. The node that carries the record has no say in it.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from console.client import Control
from console.publishing import publish
from console.signer import Signer, member_signer, operator_signer
from node.fabricdir import FabricDir
from registry.acts import write_act
from registry.ids import key_id
from registry.kinds import Verb
from registry.mandate import OF_MEMBERS
from registry.record import decode
from registry.replica import Replica
from registry.text import clean

FINAL = frozenset({"DONE", "REFUSED"})
POLL_S = 0.1


class Order(NamedTuple):
    """What is to be done, to what."""

    verb: Verb
    target: str  # a node's id
    run: int  # of the node, as it was looked at; 0: whichever
    reason: str


def signer_for(verb: str, member: str, fabric: FabricDir, passphrase_file: str | None) -> Signer:
    """Who signs: the member for the own nodes, as far as that reaches; else the operator.

    Args:
        verb: what is to be done.
        member: the id of the member whose node it is.
        fabric: where this account's keys are.
        passphrase_file: unlocks the operator key without a terminal.

    Raises:
        TelaError: neither key is here, or it stays locked.
    """
    seed = fabric.member_seed()
    if seed is not None and verb in OF_MEMBERS:
        mine = member_signer(seed)
        if key_id(mine.key) == member:
            return mine
    return operator_signer(fabric, passphrase_file)


def give(control: Control, order: Order, signer: Signer) -> str:
    """Sign an order and hand it to the node here; returns the record's hash in hex.

    Raises:
        TelaError: it counts nowhere, with the reason.
    """
    view = control.get("/view")
    record = write_act(
        _held_acts(control, view, signer.key),
        order.verb,
        order.target,
        owner=signer.key,
        sign=signer.sign,
        at=float(view["at"]),
        run=order.run,
        reason=clean(order.reason),
    )
    publish(control, [record])
    return record.order.hash.hex()


def _held_acts(control: Control, view: Mapping[str, Any], owner: bytes) -> Replica:
    """The acts a new one is numbered above: those that stand, and the signer's own.

    What counts nowhere is left out: a stranger's act with the highest number there is would end all others.
    """
    stands = {str(act["hash"]) for act in view["acts"] if act["in_force"]}
    replica = Replica()
    for raw in control.get("/records?kind=act")["records"]:
        record = decode(b64decode(raw))
        if record.key.owner == owner or record.order.hash.hex() in stands:
            replica.apply(record)
    return replica


def follow(
    control: Control,
    name: str,
    *,
    within_s: float,
    now: Callable[[], float],
    pause: Callable[[float], None],
    tell: Callable[[Mapping[str, Any]], None],
) -> Mapping[str, Any]:
    """Watch an act until it is done or refused, or time is up; returns its last state.

    Args:
        control: the node here.
        name: the record's hash in hex.
        within_s: how long to watch.
        now: monotonic seconds.
        pause: waits so many seconds.
        tell: called with every state that is new.
    """
    deadline, last = now() + within_s, ""
    while True:
        state: Mapping[str, Any] = control.get(f"/act?hash={name}")
        if state["state"] != last:
            last = str(state["state"])
            tell(state)
        if last in FINAL or now() >= deadline:
            return state
        pause(POLL_S)
