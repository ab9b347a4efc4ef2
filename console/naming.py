"""Changes of a charter's lists: operators, hubs, issuers. Each takes the charter in force and returns the next.

Pure, except that a node here is asked which node a name means. Refuses what would leave a fabric without an owner, and
names that mean nobody.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from console.charters import Known, held, successor
from console.founding import checked_word, usage
from console.views.names import node_named
from registry.charter import OWNER, VERBS
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Charter, Hub, Operator
from registry.text import clean

SCOPES = ("provider:", "project:")
KEY_B = 32


class NodeKey(NamedTuple):
    """A node that was named."""

    name: str
    key: bytes
    urls: tuple[str, ...] = ()


def verbs_of(told: Iterable[str]) -> tuple[str, ...]:
    """Verbs as typed, in the order of the design.

    Raises:
        TelaError: one that does not exist, or none (`usage`).
    """
    words = {word.strip() for each in told for word in each.split(",") if word.strip()}
    for word in sorted(words - set(VERBS)):
        raise usage(f"there is no verb {clean(word, 40)!r}", f"there are {', '.join(VERBS)}")
    if not words:
        raise usage("no verb was named", f"there are {', '.join(VERBS)}")
    return tuple(verb for verb in VERBS if verb in words)


def scope_of(text: str) -> str:
    """A scope as typed.

    Raises:
        TelaError: it is none (`usage`).
    """
    kind, colon, name = text.partition(":")
    if text == "fabric" or (colon and f"{kind}:" in SCOPES and checked_word("--scope", name)):
        return text
    raise usage(f"--scope {clean(text, 80)!r} is none", "fabric, provider:NAME or project:NAME")


def public_key(text: str) -> bytes:
    """A public key as `tela operators request` shows it.

    Raises:
        TelaError: it is none (`usage`).
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_B:
        raise usage("--key is not a public key", "64 hex digits, as `tela operators request` shows them")
    return key


# --- operators


def added(charter: Charter, name: str, key: bytes, verbs: tuple[str, ...], scope: str) -> Charter:
    """With one more operator.

    Raises:
        TelaError: the name or the key is taken.
    """
    for each in charter.operators:
        if each.key == key or each.name == name:
            what = f"the key is {clean(each.name)}'s" if each.key == key else f"there is an operator {clean(name)}"
            raise TelaError(
                f"{what} already",
                hint=f"tela operators grant {clean(each.name)} gives more verbs",
                code="operator_exists",
            )
    line = Operator(key=key, name=name, verbs=verbs, scope=scope)
    return successor(charter, operators=(*charter.operators, line))


def granted(charter: Charter, who: str, verbs: tuple[str, ...], scope: str) -> Charter:
    """With more for an operator.

    Raises:
        TelaError: there is no such operator, or it would change nothing.
    """
    key = operator_named(charter, who).key
    lines = list(charter.operators)
    at = next((at for at, each in enumerate(lines) if each.key == key and each.scope == scope), None)
    if at is None:
        lines.append(Operator(key=key, name=operator_named(charter, who).name, verbs=verbs, scope=scope))
    elif set(verbs) <= set(lines[at].verbs):
        raise TelaError(f"{clean(who)} may {', '.join(verbs)} ({scope}) already", code="nothing_to_do")
    else:
        both = tuple(verb for verb in VERBS if verb in {*lines[at].verbs, *verbs})
        lines[at] = Operator(key=key, name=lines[at].name, verbs=both, scope=scope)
    return successor(charter, operators=tuple(lines))


def removed(charter: Charter, who: str, verbs: tuple[str, ...] | None, scope: str | None) -> Charter:
    """Without these verbs of an operator in this scope; None: all of them.

    Raises:
        TelaError: there is no such operator, it would change nothing, or nobody would be left to change a charter.
    """
    key = operator_named(charter, who).key
    lines = [
        each if each.key != key or (scope is not None and each.scope != scope) else _less(each, verbs)
        for each in charter.operators
    ]
    kept = tuple(each for each in lines if each.verbs)
    if kept == charter.operators:
        raise TelaError(
            f"{clean(who)} may nothing of that", hint="`tela operators list` shows it", code="nothing_to_do"
        )
    if not any(OWNER in each.verbs and each.scope == "fabric" for each in kept):
        raise TelaError(
            f"{clean(who)} is the last owner of the fabric: nobody could change its charter again",
            hint=f"make somebody else one first: tela operators grant NAME --verbs {OWNER}",
            code="last_owner",
        )
    return successor(charter, operators=kept)


def _less(line: Operator, verbs: tuple[str, ...] | None) -> Operator:
    left = () if verbs is None else tuple(verb for verb in line.verbs if verb not in verbs)
    return Operator(key=line.key, name=line.name, verbs=left, scope=line.scope)


def operator_named(charter: Charter, who: str) -> Operator:
    """The first line of the operator whom a name or an id means.

    Raises:
        TelaError: there is none.
    """
    found = next((each for each in charter.operators if each.name == who), None)
    found = found or next((each for each in charter.operators if key_id(each.key) == who), None)
    if found is None:
        names = ", ".join(dict.fromkeys(clean(each.name) for each in charter.operators))
        raise TelaError(f"no operator is called {clean(who, 80)}", hint=f"there is {names}", code="no_such_operator")
    return found


# --- hubs and issuers


def hub_added(charter: Charter, key: bytes, urls: tuple[str, ...]) -> Charter:
    """With a hub, or with new URLs of one."""
    hub = Hub(key=key, urls=urls)
    if any(each.key == key for each in charter.hubs):
        return successor(charter, hubs=tuple(hub if each.key == key else each for each in charter.hubs))
    return successor(charter, hubs=(*charter.hubs, hub))


def hub_removed(charter: Charter, key: bytes) -> Charter:
    """Without a hub.

    Raises:
        TelaError: it is the last one, without which nobody can be accepted.
    """
    left = tuple(each for each in charter.hubs if each.key != key)
    if not left:
        raise TelaError(
            "it is the only hub of the charter, and only hubs let new members in",
            hint="name another one first: tela operators hub add NODE",
            code="last_hub",
        )
    return successor(charter, hubs=left)


def issuer_added(charter: Charter, key: bytes) -> Charter:
    """With an issuer.

    Raises:
        TelaError: it is one already.
    """
    if key in charter.issuers:
        raise TelaError("it is an issuer already", code="nothing_to_do")
    return successor(charter, issuers=(*charter.issuers, key))


def issuer_removed(charter: Charter, key: bytes) -> Charter:
    """Without an issuer; without the last, every ingress may mint."""
    return successor(charter, issuers=tuple(each for each in charter.issuers if each != key))


def node_of(now: Known, text: str) -> NodeKey:
    """The node a name means, with its key, as a node here knows it.

    Raises:
        TelaError: no node runs here, or none is called that.
    """
    if now.control is None:
        raise TelaError(
            f"no node of {now.fabric.name} runs here, so it is not known who {clean(text, 80)} is",
            hint="tela start --role observer --detach, then again",
            code="no_node",
        )
    row: Mapping[str, Any] = node_named(now.control.get("/view")["nodes"], text)
    owners = [each.key.owner for each in held(now.control, "node") if each.key.id == row["id"]]
    if not owners:
        raise TelaError(
            f"{clean(str(row['name']))} is gone", hint="`tela nodes` lists who is there", code="no_such_node"
        )
    return NodeKey(clean(str(row["name"])), owners[0], tuple(map(str, row["urls"])))


def hub_of(charter: Charter, text: str) -> NodeKey | None:
    """The hub of the charter with this id, or the beginning of it; None when that is none."""
    return _one((each.key for each in charter.hubs), text)


def hub_named(now: Known, text: str) -> NodeKey:
    """The hub of the charter that a name or an id means.

    Raises:
        TelaError: none.
    """
    found = hub_of(now.charter, text) or node_of(now, text)
    return _among(found, [each.key for each in now.charter.hubs], "hub")


def issuer_named(now: Known, text: str) -> NodeKey:
    """The issuer of the charter that a name or an id means.

    Raises:
        TelaError: none.
    """
    found = _one(now.charter.issuers, text) or node_of(now, text)
    return _among(found, now.charter.issuers, "issuer")


def _one(keys: Iterable[bytes], text: str) -> NodeKey | None:
    found = [key for key in keys if text and key_id(key).startswith(text)]
    return NodeKey(key_id(found[0]), found[0]) if len(found) == 1 else None


def _among(found: NodeKey, keys: Iterable[bytes], what: str) -> NodeKey:
    listed = list(keys)
    if found.key in listed:
        return found
    shown = ", ".join(key_id(key) for key in listed) or "none"
    raise TelaError(f"{found.name} is no {what} of the charter", hint=f"there is {shown}", code="no_such_node")
