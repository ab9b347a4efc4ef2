"""Who this account is in each of its fabrics, and where its credentials lie. Opens nothing that is sealed.

What is broken or exposed becomes a line that says so, with what to do, rather than an end of everything else.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from console.charters import Known, known, node_here
from console.sealed import NOTE, Sealed
from console.signer import sealed_key
from node.fabricdir import FabricDir
from node.places import Places
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Acceptance, Invite, Membership, read_body
from registry.record import Record, seed_signer
from registry.text import clean

DAY_S = 86_400.0
Row = dict[str, Any]
T = TypeVar("T")


def fabric_row(fabric: FabricDir, places: Places) -> Row:
    """Everything about one fabric; `trouble` lists what is wrong."""
    row: Row = {"name": fabric.name, "path": str(fabric.path), "id": None, "charter": None, "trouble": []}
    row |= {"node": None, "member": None, "operator": None, "door": ""}
    now = _tried(lambda: _known(fabric, places, row), row)
    if now is not None:
        row["id"], row["charter"] = fabric.fabric_id.hex(), now.in_force.current.record.order.seq
        row["node"] = None if now.control is None else _node(now)
    row["door"] = _tried(lambda: fabric.door, row) or ""
    row["member"] = _tried(lambda: _member(fabric, now), row)
    row["operator"] = _tried(lambda: _operator(fabric, now), row)
    row["credentials"] = [_file(path) for path in (fabric.member_path, fabric.operator_path) if path.exists()]
    return row


def api_key_rows(places: Places) -> tuple[list[Row], list[Row]]:
    """API keys kept here, and trouble with their file. No secret is in them."""
    from console import credentials  # noqa: PLC0415 - beside its own directory's name

    path = places.config / credentials.NAME
    held: Row = {"trouble": []}
    rows = _tried(lambda: credentials.read(places.config), held) or []
    shown = [{"id": each.id, "label": clean(each.label), "url": clean(each.url), **_file(path)} for each in rows]
    return shown, held["trouble"]


def _known(fabric: FabricDir, places: Places, row: Row) -> Known:
    return known(fabric, _tried(lambda: node_here(places, fabric), row))


def _tried(what: Callable[[], T], row: Row) -> T | None:
    try:
        return what()
    except TelaError as error:
        said = {"text": error.message, "remedy": error.hint}
        if said not in row["trouble"]:
            row["trouble"].append(said)
        return None


def _node(now: Known) -> Row:
    assert now.control is not None
    node = now.control.about["node"]
    return {"name": clean(str(node["name"])), "id": str(node["id"]), "until": node["until"]}


def _member(fabric: FabricDir, now: Known | None) -> Row | None:
    seed = fabric.member_seed()
    if seed is None:
        return None
    key, _ = seed_signer(seed)
    bodies = [(record, read_body(record)) for record in fabric.records()]
    body = next((each for _, each in bodies if isinstance(each, Membership) and each.member == key), None)
    row: Row = {"id": key_id(key), "provider": None, "roles": [], "max_nodes": None, "until": None, "accepted": False}
    if body is None:
        raise TelaError(
            f"{fabric.path / 'records'} holds no membership of the key in {fabric.member_path.name}",
            hint="join again: tela join @FILE",
        )
    row |= {"provider": clean(body.provider), "roles": list(map(clean, body.roles)), "max_nodes": body.max_nodes}
    is_mine = now is not None and now.control is not None and now.control.about.get("member") == row["id"]
    row["until"] = _until(body, bodies, now if is_mine else None)
    row["accepted"] = row["until"] is not None
    return row


def _until(membership: Membership, bodies: "list[tuple[Record, Any]]", now: Known | None) -> float | None:
    """When the membership ends as far as is known; None: no hub accepted it yet.

    Hubs extend it while nodes are seen, and the node here knows by how much; its own certificate may end earlier.
    """
    invites = [body for _, body in bodies if isinstance(body, Invite)]
    words = [body for _, body in bodies if isinstance(body, Acceptance) and body.member == membership.member]
    if now is not None and now.control is not None:
        from console.charters import held  # noqa: PLC0415 - one of many nodes' members

        live = [read_body(record) for record in held(now.control, "acceptance")]
        words += [body for body in live if isinstance(body, Acceptance) and body.member == membership.member]
    if membership.not_after is not None and not invites:
        return membership.not_after
    if not words or not invites:
        return None
    return max(word.renewed for word in words) + max(invite.days for invite in invites) * DAY_S


def _operator(fabric: FabricDir, now: Known | None) -> Row | None:
    sealed = sealed_key(fabric)
    if sealed is None:
        return None
    lines = [] if now is None else [each for each in now.charter.operators if each.key == sealed.key]
    return {
        "name": clean(lines[0].name if lines else sealed.name),
        "id": key_id(sealed.key),
        "key": sealed.key.hex(),
        "may": [{"verbs": list(each.verbs), "scope": clean(each.scope)} for each in lines],
        "how": sealed.how,
        "locked": sealed.how != "none",
        "state": _lock_state(sealed),
    }


def _lock_state(sealed: Sealed) -> str:
    if sealed.how == "passphrase":
        return "locked; its passphrase is asked for at each signature"
    if sealed.how == "none":
        return f"unlocked: {NOTE}"
    from console.agent_keys import agent_of  # noqa: PLC0415 - few keep theirs there

    try:
        there = any(each.key == sealed.key for each in agent_of(os.environ).identities())
    except TelaError as error:
        return f"locked: {error.message}"
    return "in your ssh-agent" if there else "locked: the ssh-agent does not hold it (ssh-add)"


def _file(path: Path) -> Row:
    try:
        return {"path": str(path), "mode": f"{path.stat().st_mode & 0o7777:04o}"}
    except OSError as error:
        return {"path": str(path), "mode": error.strerror or "?"}
