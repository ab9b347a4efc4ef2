"""Charters that are not followed: what of them is still to be done, and how. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from registry.charter import OWNER, VERBS, InForce
from registry.ids import key_id
from registry.kinds import Charter, read_body
from registry.record import Record
from registry.text import clean


class Fork(NamedTuple):
    """A charter that is not followed."""

    record: Record
    pending: tuple[str, ...]  # commands that do again what it said and does not hold; empty: it is settled
    unseats: bool  # one of them takes the owner verb from somebody, who could win again


class _Facts(NamedTuple):
    """What a charter says, so that two can be compared."""

    verbs: frozenset[tuple[bytes, str, str]]  # key, scope, verb
    hubs: frozenset[tuple[bytes, tuple[str, ...]]]
    issuers: frozenset[bytes]


def forks_of(in_force: InForce) -> list[Fork]:
    """Every charter that is not followed, with what is left of it."""
    return [_fork(record, in_force) for record in in_force.forks]


def _fork(record: Record, in_force: InForce) -> Fork:
    body, at = read_body(record), record.order.seq - 1
    if not isinstance(body, Charter) or not 0 <= at < len(in_force.former):
        return Fork(record, (), unseats=False)
    # `former` begins with the founding charter, so a charter's number is its place; a fork follows one of them.
    was, wanted, now = _facts(in_force.former[at]), _facts(body), _facts(in_force.current.charter)
    added = (wanted.verbs - was.verbs) - now.verbs
    gone = (was.verbs - wanted.verbs) & now.verbs
    current = in_force.current.charter
    commands = [*_adds(added, body, current), *_removes(gone, current)]
    commands += _hubs(was, wanted, now)
    commands += [_issuer("add", key) for key in sorted((wanted.issuers - was.issuers) - now.issuers)]
    commands += [_issuer("remove", key) for key in sorted((was.issuers - wanted.issuers) & now.issuers)]
    return Fork(record, tuple(commands), unseats=any(verb == OWNER for _, _, verb in gone))


def _facts(charter: Charter) -> _Facts:
    return _Facts(
        frozenset((each.key, each.scope, verb) for each in charter.operators for verb in each.verbs),
        frozenset((hub.key, hub.urls) for hub in charter.hubs),
        frozenset(charter.issuers),
    )


def _adds(added: frozenset[tuple[bytes, str, str]], wanted: Charter, current: Charter) -> list[str]:
    commands = []
    known = {each.key: each.name for each in current.operators}
    names = {each.key: each.name for each in wanted.operators}
    for key, scope in sorted({(key, scope) for key, scope, _ in added}):
        verbs = _verbs(verb for each, within, verb in added if (each, within) == (key, scope))
        what = f"grant {clean(known[key])}" if key in known else f"add {clean(names[key])} --key {key.hex()}"
        commands.append(f"tela operators {what} --verbs {verbs} --scope {clean(scope)}")
        known.setdefault(key, names[key])
    return commands


def _removes(gone: frozenset[tuple[bytes, str, str]], current: Charter) -> list[str]:
    commands = []
    held = _facts(current).verbs
    for key in sorted({key for key, _, _ in gone}):
        name = clean(next(each.name for each in current.operators if each.key == key))
        if {each for each in held if each[0] == key} <= gone:
            commands.append(f"tela operators remove {name}")
            continue
        for scope in sorted({within for each, within, _ in gone if each == key}):
            verbs = _verbs(verb for each, within, verb in gone if (each, within) == (key, scope))
            commands.append(f"tela operators remove {name} --verbs {verbs} --scope {clean(scope)}")
    return commands


def _hubs(was: _Facts, wanted: _Facts, now: _Facts) -> list[str]:
    added = (wanted.hubs - was.hubs) - now.hubs
    before, kept, there = ({key for key, _ in facts.hubs} for facts in (was, wanted, now))
    gone = (before - kept) & there
    commands = [
        " ".join([f"tela operators hub add {key_id(key)}", *(f"--url {clean(url)}" for url in urls)])
        for key, urls in sorted(added)
    ]
    return commands + [f"tela operators hub remove {key_id(key)}" for key in sorted(gone)]


def _issuer(verb: str, key: bytes) -> str:
    return f"tela operators issuer {verb} {key_id(key)}"


def _verbs(told: Iterable[str]) -> str:
    listed = set(told)
    return ",".join([verb for verb in VERBS if verb in listed] + sorted(map(clean, listed - set(VERBS))))
