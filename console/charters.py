"""The charter of a fabric as this account can know it, and changing it: a successor, signed here.

A node that runs here knows the newest; without one the account's own file is read, and a change waits there until a
node carries it.
"""

from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from console.client import Control, find
from console.publishing import publish
from console.signer import Signer
from node.fabricdir import FabricDir
from node.places import Places
from registry.charter import OWNER, Chartered, InForce, charter_in_force, may, succeed
from registry.errors import RecordRefused, TelaError
from registry.kinds import Charter, read_body
from registry.lattice import supersedes
from registry.record import Key, Record, decode
from registry.replica import Replica
from registry.text import clean


class Known(NamedTuple):
    """What is known of a fabric's charter."""

    fabric: FabricDir
    in_force: InForce
    charters: tuple[Record, ...]  # every one that is held, the founding one first
    control: Control | None  # a node of ours that runs here; None: read from the file

    @property
    def charter(self) -> Charter:
        """The one in force."""
        return self.in_force.current.charter


def node_here(places: Places, fabric: FabricDir, *, accounts: bool = False) -> Control | None:
    """A running node of this account in this very fabric; None when there is none.

    Args:
        places: where sockets are.
        fabric: which one.
        accounts: of several rather one that holds the accounts shelf.

    Raises:
        TelaError: there is one, but it does not answer; or it is one of another fabric that is called the same.
    """
    try:
        return find(places, fabric.name, fabric_id=fabric.fabric_hex, accounts=accounts)
    except TelaError as error:
        if error.code != "no_node":
            raise
        return None


def held(control: Control, kind: str) -> list[Record]:
    """Every record of a kind that a node holds.

    Raises:
        TelaError: it does not say, or there are more than it says at once (`too_many`).
    """
    answer = control.get(f"/records?kind={kind}")
    if not answer["complete"]:
        raise TelaError(
            f"the node here holds more {kind} records than it shows at once",
            hint="tela nodes --all shows whose they are; tela operators revoke ends what is not wanted",
            code="too_many",
        )
    return [decode(b64decode(raw)) for raw in answer["records"]]


def replica_of(control: Control, kinds: Iterable[str]) -> Replica:
    """What a node holds of some kinds, to be judged here as every node judges it.

    Raises:
        TelaError: as `held`.
    """
    replica = Replica()
    for kind in kinds:
        for record in held(control, kind):
            replica.apply(record)
    return replica


def covered(control: Control, refused: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """Kind and id of invites and memberships that one signer's word does not carry any more, and another's does.

    Args:
        control: a node.
        refused: what it says counts nowhere.
    """
    lost = Counter((str(each["kind"]), str(each["id"])) for each in refused)
    kinds = {"invite", "membership"} & {kind for kind, _ in lost}
    there = Counter((kind, record.key.id) for kind in kinds for record in held(control, kind))
    return frozenset(each for each in lost if there[each] > lost[each])


def known(fabric: FabricDir, control: Control | None) -> Known:
    """The charter in force, as far as it can be known here.

    Raises:
        TelaError: the files of the fabric are broken.
    """
    records = [record for record in fabric.records() if record.key.kind == "charter"]
    if control is not None:
        records += held(control, "charter")
    charters = tuple(sorted(_newest(records), key=lambda record: record.order[2:]))
    in_force = charter_in_force(fabric.fabric_id, [Chartered(each, body) for each, body in _read(charters)])
    assert in_force is not None  # the fabric's id is taken from the founding charter in its file
    return Known(fabric, in_force, charters, control)


def change(now: Known, signer: Signer, new: Callable[[Charter], Charter]) -> Known:
    """Sign a successor of the charter in force, hand it to the node here, and keep it in the account's file.

    Args:
        now: what is known.
        signer: an owner of the whole fabric, or the recovery key.
        new: what the successor says, given the charter in force.

    Raises:
        TelaError: the signer may not (`not_entitled`), the charter grew too large, or another owner was faster.
    """
    return put(now, written(now, signer, new))


def written(now: Known, signer: Signer, new: Callable[[Charter], Charter]) -> Record:
    """Sign a successor of the charter in force; nobody is told yet.

    Raises:
        TelaError: the signer may not (`not_entitled`), or the charter grew too large.
    """
    current = now.in_force.current
    if not may(current.charter, signer.key, OWNER) and signer.key != current.charter.recovery:
        raise TelaError(
            f"{clean(signer.name)} may not change the charter of {now.fabric.name}",
            hint=f"an owner of the whole fabric may: {', '.join(owners(current.charter)) or 'the recovery key'}",
            code="not_entitled",
        )
    return _written(current, new(current.charter), signer)


def put(now: Known, record: Record) -> Known:
    """Hand a successor to the node here, and keep it in the account's file.

    Raises:
        TelaError: another owner was faster (`charter_forked`), or it counts nowhere.
    """
    if now.control is not None:
        _publish(now, now.control, record)
    keep_charters(now.fabric, [*now.charters, record])
    return known(now.fabric, now.control)


def _publish(now: Known, control: Control, record: Record) -> None:
    """Hand a successor to the node here.

    Raises:
        TelaError: it is not followed (`charter_forked`), or counts nowhere.
    """
    try:
        publish(control, [record])
    except TelaError as error:
        if known(now.fabric, control).in_force.current == now.in_force.current:
            raise
        raise TelaError(
            "another owner changed the charter at the same moment, and theirs is followed",
            hint="tela operators list shows it; then do yours again",
            code="charter_forked",
        ) from error


def keep_charters(fabric: FabricDir, charters: Iterable[Record]) -> None:
    """Put charters into the account's file beside what else is there."""
    records = fabric.records()
    merged = _newest((*records, *charters))
    if set(merged) != set(records):
        fabric.save_records(merged)


def owners(charter: Charter, provider: str = "") -> list[str]:
    """Names of those who may admit members, for the whole fabric or also for a provider."""
    return [clean(each.name) for each in charter.operators if may(charter, each.key, OWNER, provider=provider)]


def name_of(charter: Charter, key: bytes) -> str:
    """The operator of a key by name; empty when it is none."""
    return next((clean(each.name) for each in charter.operators if each.key == key), "")


def _written(current: Chartered, new: Charter, signer: Signer) -> Record:
    try:
        record = succeed(current, new, signer.key, signer.sign)
        read_body(record)
    except RecordRefused as refusal:
        raise TelaError(
            f"such a charter is not possible: {refusal.reason}",
            hint="it has at most 16 lines of operators, 16 hubs and 16 issuers: remove what is not needed",
            code="bad_charter",
        ) from None
    return record


def _newest(records: Iterable[Record]) -> list[Record]:
    """One record for each register, as every replica would hold it."""
    registers: dict[Key, Record] = {}
    for record in records:
        if supersedes(record, registers.get(record.key)):
            registers[record.key] = record
    return list(registers.values())


def _read(records: Iterable[Record]) -> list[tuple[Record, Charter]]:
    return [(record, body) for record in records if isinstance(body := read_body(record), Charter)]


def successor(charter: Charter, **fields: object) -> Charter:
    """A charter that says something else in these fields."""
    return msgspec.structs.replace(charter, **fields)
