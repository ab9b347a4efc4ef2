"""What a running node learnt that its account should start from next time: charters, its own proofs, hubs.

Pure, but for `save`. It adds and renews; it never takes a record of another member away, and never trusts a hub that
the registry does not admit.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gossip.invited import words
from node.config import HubAddress
from node.fabricdir import FabricDir
from registry.charter import OWNER, may
from registry.ids import key_id
from registry.kinds import Charter, Invite
from registry.lifecycle import Rank
from registry.record import Key, Record
from registry.replica import Replica
from registry.validity import Standing
from registry.views import Snapshot

MAX_HUBS = 16
MAX_URLS = 8  # of one hub


class Learnt(NamedTuple):
    """What is worth keeping."""

    records: tuple[Record, ...]  # charters that are followed; the member's invite and its latest acceptances
    hubs: tuple[HubAddress, ...]  # the charter's first, then those that take links now
    evicted: frozenset[str]  # ids of nodes that were put out


def learnt(replica: Replica, view: Snapshot, member: bytes) -> Learnt | None:
    """What a node knows now; None while it does not know the charter.

    Args:
        replica: what it holds.
        view: the same, judged.
        member: the key of its member.
    """
    in_force = view.standing.in_force
    if in_force is None:
        return None
    charter = in_force.current.charter
    proofs = _proofs(replica, view.standing, charter, member)
    evicted = frozenset(view.standing.evicted)
    return Learnt((*_followed(replica, in_force.current.record), *proofs), _hubs(view, charter), evicted)


def save(fabric: FabricDir, what: Learnt) -> tuple[str, ...]:
    """Put what is newer into the account's directory; says what was: "records", "hubs".

    Raises:
        TelaError: a file is broken, or the file system refuses; what was there stays.
    """
    saved = []
    held = fabric.records()
    records = merged(held, what.records)
    if records != held:
        fabric.save_records(records)
        saved.append("records")
    known = fabric.hubs()
    hubs = merged_hubs(known, what)
    if hubs != known:
        fabric.save_hubs(hubs)
        saved.append("hubs")
    return tuple(saved)


def merged(held: tuple[Record, ...], news: Iterable[Record]) -> tuple[Record, ...]:
    """Records with what is newer; of an invite and its acceptances only what is told, in place of what is held.

    So an invite that another operator took over replaces the one whose signer counts no more, and words of hubs that
    count no more do not pile up.
    """
    told = tuple(news)
    renewed = {(each.key.kind, each.key.id) for each in told if each.key.kind in {"invite", "acceptance"}}
    kept = [each for each in held if (each.key.kind, each.key.id) not in renewed]
    registers: dict[Key, Record] = {each.key: each for each in kept}
    for each in told:
        before = registers.get(each.key)
        if before is None or before.order < each.order:
            registers[each.key] = each
    after = tuple(registers.values())
    return held if set(after) == set(held) else after


def merged_hubs(held: tuple[HubAddress, ...], what: Learnt) -> tuple[HubAddress, ...]:
    """Hubs with their latest addresses first, without those that were put out; at most 16."""
    known = {each.key: each.urls for each in held}
    hubs = {each.key: each.urls for each in what.hubs}
    order = dict.fromkeys([*hubs, *known])
    for key, urls in known.items():
        hubs[key] = tuple(dict.fromkeys((*hubs.get(key, ()), *urls)))[:MAX_URLS]
    chosen = [key for key in order if key_id(key) not in what.evicted][:MAX_HUBS]
    after = {key: HubAddress(key=key, urls=hubs[key]) for key in chosen}
    in_place = [after[key] for key in known if key in after]
    return (*in_place, *(each for key, each in after.items() if key not in known))


def _followed(replica: Replica, current: Record) -> list[Record]:
    """The charter in force and those it followed; a stranger's charters are not worth a place."""
    by_hash = {entry.record.order.hash: entry for entry in replica.of_kind("charter")}
    found: list[Record] = []
    entry = by_hash.get(current.order.hash)
    while entry is not None and isinstance(entry.body, Charter):
        found.append(entry.record)
        entry = by_hash.get(entry.body.prev)
    return found[::-1]


def _proofs(replica: Replica, standing: Standing, charter: Charter, member: bytes) -> list[Record]:
    """The member's invite, signed by one who may invite now, and the latest words that count on it."""
    admission = standing.admissions.get(member)
    if admission is None or not admission.invite:
        return []
    said = [word for word in words(admission.invite, replica, standing) if word.body.member == member]
    hubs = {hub.key for hub in charter.hubs}
    # Whoever knows nothing but the charter knows its hubs, and has to be told of any other by somebody.
    named = [word for word in said if word.record.key.owner in hubs]
    chosen = [
        max(some, key=lambda word: (word.body.renewed, word.record.order.hash)).record for some in (said, named) if some
    ]
    return [*_invite(replica, charter, admission.invite), *dict.fromkeys(chosen)]


def _invite(replica: Replica, charter: Charter, name: str) -> list[Record]:
    counting = [
        record
        for record, body in replica.of_kind("invite")
        if record.key.id == name
        and isinstance(body, Invite)
        and may(charter, record.key.owner, OWNER, provider=body.provider)
    ]
    return [min(counting, key=lambda record: record.order.hash)] if counting else []


def _hubs(view: Snapshot, charter: Charter) -> tuple[HubAddress, ...]:
    said = {row.key: row.node.urls for row in view.nodes.values() if row.is_hub and row.rank is Rank.SERVING}
    named = {hub.key: hub.urls for hub in charter.hubs}
    keys = dict.fromkeys([*named, *sorted(said)])
    found = {key: tuple(dict.fromkeys((*said.get(key, ()), *named.get(key, ()))))[:MAX_URLS] for key in keys}
    return tuple(HubAddress(key=key, urls=urls) for key, urls in found.items() if urls)
