"""Reading a node's log: the file itself where it is this account's own, else a question over the links.

A question is signed here by whoever may know. What comes is as it was written: not yet safe to show.
"""

import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from console.client import QUIET_S, Control
from console.here import control_here, fabric_here, places_here
from console.signer import Signer, member_signer, operator_signer
from console.views.names import node_named
from node.ask.question import MAX_TAIL_B, Question, encode
from node.ask.tail import LOOK_S, PART_B, more, tail
from node.fabricdir import FabricDir, read_seed
from registry.errors import TelaError
from registry.ids import key_id
from registry.record import seed_signer
from registry.text import clean, is_id

OWN_LOG = "node"  # the name for tela's own log, beside those of engine slots
FOLLOW_S = 86_400.0  # a log may be silent for long
MAX_SHOWN = 4


class Wish(NamedTuple):
    """Which log, and how much of it."""

    node: str | None  # its name; None: the node here
    slot: str | None  # of the engine, or `node`; None: the first engine, or tela's own where there is none
    lines: int
    follow: bool  # go on with what is written from then on


def log_tail(
    fabric: str | None, wish: Wish, passphrase_file: str | None, pause: Callable[[float], None]
) -> Iterator[str]:
    """The last lines of a log.

    Args:
        fabric: which one; None: the only one.
        wish: what is wanted.
        passphrase_file: unlocks the operator key, where that is needed.
        pause: waits so many seconds.

    Raises:
        TelaError: there is no such node or log, or it is not for this person.
    """
    directory = fabric_here(fabric)
    control = _control(fabric, directory)
    view = control.get("/view")
    row = node_named(view["nodes"], wish.node or str(control.about["node"]["id"]))
    slot = wish.slot or _first_slot(view, row)
    path = _own_file(directory, row, slot)
    if path is not None:
        parts = _of_file(path, wish, pause)
    else:
        parts = _of_node(control, view, row, _question(view, row, slot, wish, directory, passphrase_file), wish)
    yield from _lines(parts)


def _control(fabric: str | None, directory: FabricDir) -> Control:
    try:
        return control_here(fabric)
    except TelaError as error:
        if error.code != "no_node":
            raise
        lie = f"{places_here().state / directory.name}/HOST-SLOT"
        hint = f"{error.hint}; the logs of your own nodes are files in {lie}"
        raise TelaError(error.message, hint=hint, code=error.code) from None


def _first_slot(view: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The slot somebody means who names none."""
    held = [each for each in view["replicas"] if each["node"] == row["id"]]
    there = sorted(held, key=lambda each: (each["state"] == "LEFT", str(each["slot"])))
    return str(there[0]["slot"]) if there else OWN_LOG


# --- the own file


def _own_file(directory: FabricDir, row: Mapping[str, Any], slot: str) -> Path | None:
    """The log of a node of this account that lies on this host or on a home it shares; None: not here.

    The names come from other nodes, so only the node's own key in that directory says that it is the one.

    Raises:
        TelaError: it is here, and has no such log.
    """
    name = f"{row['host']}-{row['slot']}"
    if not (is_id(name) and is_id(slot)) or "/" in name + slot:
        return None
    state = places_here().state / directory.name / name
    try:
        seed = read_seed(state / "node.key")
    except TelaError:
        return None
    if seed is None or key_id(seed_signer(seed)[0]) != row["id"]:
        return None
    path = state / f"{slot}.log"
    if path.is_file():
        return path
    there = ", ".join(sorted(each.stem for each in state.glob("*.log"))) or "none: it writes to a terminal"
    raise TelaError(
        f"{clean(str(row['name']), 80)} has no log {slot}", hint=f"--slot names one; there is {there}", code="no_log"
    )


def _of_file(path: Path, wish: Wish, pause: Callable[[float], None]) -> Iterator[bytes]:
    text, place = tail(path, wish.lines, MAX_TAIL_B)
    yield text
    while wish.follow:
        part, place = more(path, place)
        yield part
        if len(part) < PART_B:
            pause(LOOK_S)


# --- over the links


def _question(
    view: Mapping[str, Any],
    row: Mapping[str, Any],
    slot: str,
    wish: Wish,
    directory: FabricDir,
    passphrase_file: str | None,
) -> bytes:
    signer = _signer(directory, str(row["member"]), passphrase_file)
    question = Question(
        q="log",
        args={"slot": "" if slot == OWN_LOG else slot, "lines": wish.lines, "follow": wish.follow},
        node=str(row["id"]),
        at=float(view["at"]),
        nonce=secrets.token_bytes(16),
    )
    return encode(question, signer.key, signer.sign)


def _signer(fabric: FabricDir, member: str, passphrase_file: str | None) -> Signer:
    seed = fabric.member_seed()
    if seed is not None and key_id((mine := member_signer(seed)).key) == member:
        return mine
    return operator_signer(fabric, passphrase_file)


def _of_node(
    control: Control, view: Mapping[str, Any], row: Mapping[str, Any], question: bytes, wish: Wish
) -> Iterator[bytes]:
    asked = {"node": str(row["id"]), "question": b64encode(question).decode()}
    try:
        yield from control.raw("/ask", asked, timeout_s=FOLLOW_S if wish.follow else QUIET_S)
    except TelaError as error:
        if error.code != "not_linked":
            raise
        raise _not_linked(view, row) from None


def _not_linked(view: Mapping[str, Any], row: Mapping[str, Any]) -> TelaError:
    """A question goes to the next node only; somebody linked to the one in question can ask it."""
    names = {str(each["id"]): str(each["name"]) for each in view["nodes"]}
    hubs = [clean(names.get(str(hub), str(hub)), 80) for hub in row["hubs"]][:MAX_SHOWN]
    where = f"it says it is linked to {', '.join(hubs)}: ask there" if hubs else "it is linked to nobody that is known"
    return TelaError(
        f"the node here has no link to {clean(str(row['name']), 80)}, so it cannot ask it",
        hint=f"{where}; its owner finds the file in tela's state directory",
        code="not_linked",
    )


def _lines(parts: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
