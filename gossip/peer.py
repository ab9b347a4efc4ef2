"""One node's brain: what it says to whom. Frames and time in, instructions out; no socket, no clock.

Eager push: a node sends its own records on every link, and a hub passes news on. Whatever is lost is found by
the roots on pings and repaired (`gossip.sync`). A link that breaks without a farewell becomes a doubt after a
moment.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from gossip.errors import RemoteProtocolError
from gossip.frames import (
    Bye,
    Entries,
    Frame,
    Gauges,
    Ping,
    Records,
    Subscribe,
    Sum,
    Want,
    batches,
    decode,
    encode,
    shelf_of,
)
from gossip.gauges import GaugeBoard
from gossip.hello import REFUSALS
from gossip.instructions import Drop, Instruction, LinkId, Send
from gossip.intake import Intake
from gossip.line import Contact, Line
from gossip.sync import answer_entries, answer_sum, answer_want, opening
from gossip.topology import keeps
from registry.author import Author
from registry.errors import RecordRefused
from registry.ids import key_id
from registry.kinds import Body, Doubt, Node
from registry.lifecycle import Rank, may_move
from registry.record import Audience, Key, Record, record_hash
from registry.record import decode as decode_record
from registry.replica import Entry, Replica, Shelf

PING_S = 2.0
SILENT_S = 6.0  # three pings: one lost to a stall is no reason to drop a link
GRACE_S = 0.5  # a link that is dialled again within this raises no doubt; everyone must see a loss within 2 s
REPAIR_S = 1.5  # a repair that did not help is begun again at the next ping
LAST_REPAIR_S = 60.0
REFUTE_S = 1.0
SEEN = 50_000  # hashes of records known not to be news; beyond, a repeated one costs a signature check again
MAX_REASONS = 64  # reasons of refusal counted apart: they quote the record, and its writer may make up any number


class Peer:
    """The protocol state of one node. Mutable; every method may change it and returns what to do.

    Args:
        replica: the registry, which this class alone merges into.
        author: writes this node's own records.
        is_hub: whether it passes records on and dials other hubs.
        accounts: whether it holds the accounts grant.
    """

    def __init__(self, *, replica: Replica, author: Author, is_hub: bool, accounts: bool = False) -> None:
        self.replica = replica
        self.refused: dict[str, int] = {}  # records that did not decode, by reason; an operator should look
        self.superseded: Record | None = None  # what another run of our key says of itself: two share it
        self.has_agreed = False  # with some hub on what there is, once: a repair came to its end
        self.gauges = GaugeBoard(author.id, is_hub=is_hub)
        self._author = author
        self._intake = Intake(replica)
        self._is_hub = is_hub
        self._accounts = accounts
        self._lines: dict[LinkId, Line] = {}
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._lost: dict[str, float] = {}  # node id -> when its loss becomes a doubt
        self._doubted: set[str] = set()
        self._self: tuple[Node, Rank] | None = None
        self._refute_at: float | None = None
        self._last_refuted = float("-inf")

    # --- links

    def link_up(self, link: LinkId, contact: Contact, now: float, wall: float) -> list[Instruction]:
        """A link is live. Of two to one node the one dialled by the smaller key stays."""
        out: list[Instruction] = []
        for other, line in self._lines.items():
            if line.contact.key == contact.key:
                if not keeps(contact.initiator, line.contact.initiator):
                    return [Send(link, encode(Bye("duplicate"))), Drop(link, "duplicate")]
                out += [Send(other, encode(Bye("duplicate"))), Drop(other, "duplicate")]
        line = self._lines[link] = Line(contact, now)
        self._lost.pop(line.node, None)
        if line.node in self._doubted:
            self._doubted.discard(line.node)
            out += self._doubt(line.node, wall, cleared=True)
        out += self._announce_again()
        out += [*self._push_own(link), self._ping(link, line, now, wall)]
        return [*out, *self.gauges.link_up(link, contact, now)]

    def link_down(self, link: LinkId, now: float) -> list[Instruction]:
        """A link is gone, for whatever reason; unless its node left or has another, it may be doubted soon."""
        out: list[Instruction] = [*self.gauges.link_down(link)]
        line = self._lines.pop(link, None)
        if line is None or any(other.node == line.node for other in self._lines.values()):
            return out
        held = self._node_record(line.contact.key)
        if held is not None and held.order.rank < Rank.LEFT and not line.is_parted:
            self._lost[line.node] = now + GRACE_S
        return out + self._announce_again()

    def expel(self, link: LinkId, reason: str) -> list[Instruction]:
        """Turn a node away that may not be linked any more; neither end doubts the other for it."""
        line = self._lines.get(link)
        if line is not None:
            line.is_parted = True
        return [Send(link, encode(Bye(reason))), Drop(link, reason)]

    def heard(self, link: LinkId, now: float) -> None:
        """Any authenticated record is a sign of life."""
        line = self._lines.get(link)
        if line is not None:
            line.heard = now

    # --- own records

    def announce(self, node: Node, rank: Rank) -> list[Instruction]:
        """Say what is true of this node now; `hubs` is filled in from the live links.

        Raises:
            ValueError: when the rank would go back within this run.
        """
        if self._self is not None and not may_move(self._self[1], rank):
            raise ValueError(f"a run cannot go from {self._self[1].name} back to {rank.name}")
        body = msgspec.structs.replace(node, hubs=self._linked_hubs())
        self._self = (body, rank)
        return self.publish(self._author.write(body, self._author.id, rank=rank))

    def publish(self, record: Record) -> list[Instruction]:
        """Merge a record written here and push it on every link."""
        return self._push([record], frm=None) if self._take(record, is_ours=True) else []

    def say(self, body: Body, subject: str) -> list[Instruction]:
        """Write a record of this node's own and push it."""
        return self.publish(self._author.write(body, subject))

    def leave(self) -> list[Instruction]:
        """Say LEFT and goodbye to everyone; only goodbye where another run has this key, or it would take its place."""
        out = self.announce(self._self[0], Rank.LEFT) if self._self and self.superseded is None else []
        return [*out, *(Send(link, encode(Bye("left"))) for link in self._lines)]

    # --- what comes in

    def receive(self, link: LinkId, data: bytes, now: float, wall: float) -> list[Instruction]:
        """Handle one control frame.

        Raises:
            RemoteProtocolError: when it does not decode; the shell drops the link.
        """
        line = self._lines.get(link)
        frame = decode(data)
        if line is None:
            return []
        line.heard = now
        match frame:
            case None:  # a newer release says more
                return []
            case Ping():
                return self._on_ping(link, line, frame, now, wall)
            case Records():
                return self._on_records(link, line, frame, now)
            case Bye():
                line.is_parted = frame.reason in REFUSALS  # not "left": the record that says so may be lost
                return [Drop(link, frame.reason)]
            case Sum() | Entries() | Want():
                return self._on_repair(link, line, frame, now)
            case Gauges():
                return [*self.gauges.on_gauges(link, frame, now)]
            case Subscribe():
                return [*self.gauges.on_subscribe(link, frame, now)]

    def _on_ping(self, link: LinkId, line: Line, ping: Ping, now: float, wall: float) -> list[Instruction]:
        line.offset = ping.wall - wall
        theirs = dict(zip(Audience, ping.roots, strict=False))
        differing = [
            audience
            for audience, shelf in self._shared(line)
            if audience in theirs and theirs[audience] != shelf.digest.root()
        ]
        if not differing:
            line.mismatches = line.fruitless = 0
            self.has_agreed = self.has_agreed or line.contact.is_hub
            return []
        line.mismatches += 1
        # One end begins, the other only when that did not help: both at once would double every repair.
        begins = self._author.key > line.contact.key or line.mismatches > 1
        if not begins or now < line.repair_at:
            return []
        line.repair_at = now + min(REPAIR_S * 2.0**line.fruitless, LAST_REPAIR_S)
        line.fruitless = min(line.fruitless + 1, 8)
        return [Send(link, encode(opening(audience, self.replica.shelves[audience]))) for audience in differing]

    def _on_repair(self, link: LinkId, line: Line, frame: Sum | Entries | Want, now: float) -> list[Instruction]:
        audience = shelf_of(frame.shelf)
        shelf = dict(self._shared(line)).get(audience)
        if shelf is None:
            raise RemoteProtocolError(f"asked for the {audience.name.lower()} shelf", code="not_granted")
        answers: Iterable[Frame]
        match frame:
            case Sum():
                answers = answer_sum(frame, shelf)
            case Entries():
                answers = answer_entries(frame, shelf)
            case Want():
                answers = answer_want(frame, shelf)
        return list(self._paid(link, line, answers, now))

    def _paid(self, link: LinkId, line: Line, answers: Iterable[Frame], now: float) -> Iterator[Send]:
        """As many of the answers as the peer has credit for; what is cut off is found by a later repair."""
        for answer in answers:
            raw = encode(answer)
            if not line.may_draw(len(raw), now):
                return
            yield Send(link, raw)

    def _on_records(self, link: LinkId, line: Line, frame: Records, now: float) -> list[Instruction]:
        news = [record for raw in frame.raws if (record := self._merge(raw, line)) is not None]
        if not news:
            return []
        line.fruitless = 0
        self.superseded = next(filter(self._is_other_run, news), self.superseded)
        if any(self._doubts_me(record) for record in news) and self._refute_at is None:
            self._refute_at = max(now, self._last_refuted + REFUTE_S)
        return self._push(news, frm=link) if self._is_hub else []

    def _merge(self, raw: bytes, line: Line) -> Record | None:
        name = record_hash(raw)
        if name in self._seen:
            return None
        try:
            record = decode_record(raw)
            if record.key.audience is Audience.ACCOUNTS and not (self._accounts and line.contact.accounts):
                raise RecordRefused("the accounts shelf is not shared on this link")
            news = self._take(record)
        except RecordRefused as refusal:
            self._count(refusal.reason)
            return None
        self._remember(name)
        return record if news else None

    def _take(self, record: Record, *, is_ours: bool = False) -> bool:
        is_new = self.replica.get(record.key) is None
        if is_new and not is_ours and (why := self._intake.objection(record)) is not None:
            raise RecordRefused(why)
        news = self.replica.apply(record)
        if is_new and (entry := self.replica.get(record.key)) is not None:
            self._intake.took(record, entry.body)
        return news

    def _count(self, reason: str) -> None:
        if reason not in self.refused and len(self.refused) >= MAX_REASONS:
            reason = "other reasons"
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _remember(self, name: bytes) -> None:
        self._seen[name] = None
        if len(self._seen) > SEEN:
            self._seen.popitem(last=False)

    # --- time

    def tick(self, now: float, wall: float) -> list[Instruction]:
        """What is due: pings, silent links, doubts, an answer to a doubt about us."""
        out: list[Instruction] = []
        for link, line in list(self._lines.items()):
            if now >= line.heard + SILENT_S:  # as in `next_deadline`, so that rounding cannot tell them apart
                out.append(Drop(link, "silent", is_clean=False))
                out += self.link_down(link, now)
            elif now >= line.next_ping:
                out.append(self._ping(link, line, now, wall))
        for node in [node for node, due in self._lost.items() if now >= due]:
            del self._lost[node]
            self._doubted.add(node)
            out += self._doubt(node, wall)
        if self._refute_at is not None and now >= self._refute_at:
            self._refute_at, self._last_refuted = None, now
            if self._lines and self._self is not None:
                out += self.announce(*self._self)
        return out + self.gauges.flush(now)

    def next_deadline(self) -> float | None:
        """When `tick` should be called again; None while there is nothing to wait for."""
        due = [min(line.next_ping, line.heard + SILENT_S) for line in self._lines.values()]
        due += self._lost.values()
        due += [at for at in (self._refute_at, self.gauges.next_deadline()) if at is not None]
        return min(due, default=None)

    def offsets(self) -> list[float]:
        """How far each linked hub's clock is ahead of ours, in seconds."""
        lines = self._lines.values()
        return [line.offset for line in lines if line.contact.is_hub and line.offset is not None]

    # --- helpers that write

    def _ping(self, link: LinkId, line: Line, now: float, wall: float) -> Send:
        line.next_ping = now + PING_S
        roots = tuple(shelf.digest.root() for _, shelf in self._shared(line))
        return Send(link, encode(Ping(roots, wall)))

    def _push(self, records: list[Record], *, frm: LinkId | None) -> list[Instruction]:
        told = self._told_by(frm)
        out: list[Instruction] = []
        for link, line in self._lines.items():
            if link == frm or line.node in told:
                continue
            shared = [record.raw for record in records if self._may_see(record.key, line)]
            out += [Send(link, encode(batch)) for batch in batches(shared)]
        return out

    def _push_own(self, link: LinkId) -> list[Instruction]:
        """Own records at once, so that a joining node is known before the first repair."""
        line = self._lines[link]
        own = [
            entry.record.raw
            for entry in self.replica
            if entry.record.key.owner == self._author.key and self._may_see(entry.record.key, line)
        ]
        return [Send(link, encode(batch)) for batch in batches(own)]

    def _announce_again(self) -> list[Instruction]:
        if self._self is None or self._self[1] is Rank.LEFT or self._self[0].hubs == self._linked_hubs():
            return []
        return self.announce(*self._self)

    def _doubt(self, node: str, wall: float, *, cleared: bool = False) -> list[Instruction]:
        target = next((entry.record for entry in self.replica.of_kind("node") if entry.record.key.id == node), None)
        if target is None or target.order.rank >= Rank.LEFT:
            return []
        order = target.order
        body = Doubt(run=order.run, seq=order.seq, path="link", since=max(wall, 0.0), cleared=cleared)
        return self.say(body, node)

    # --- helpers that read

    def _shared(self, line: Line) -> list[tuple[Audience, Shelf]]:
        return [
            (audience, shelf)
            for audience, shelf in self.replica.shelves.items()
            if audience is Audience.PUBLIC or (self._accounts and line.contact.accounts)
        ]

    def _may_see(self, key: Key, line: Line) -> bool:
        return key.audience is Audience.PUBLIC or (self._accounts and line.contact.accounts)

    def _linked_hubs(self) -> tuple[str, ...]:
        return tuple(sorted({line.node for line in self._lines.values() if line.contact.is_hub}))[:16]

    def _node_record(self, key: bytes) -> Record | None:
        entry = self._node_entry(key)
        return entry.record if entry else None

    def _node_entry(self, key: bytes) -> Entry | None:
        return self.replica.get(Key(Audience.PUBLIC, "node", key_id(key), key))

    def _told_by(self, frm: LinkId | None) -> frozenset[str]:
        """The hubs which the hub behind a link has told already, by what it says of its own links."""
        contact = self._lines[frm].contact if frm is not None else None
        entry = self._node_entry(contact.key) if contact is not None and contact.is_hub else None
        return frozenset(entry.body.hubs) if entry is not None and isinstance(entry.body, Node) else frozenset()

    def _is_other_run(self, record: Record) -> bool:
        """Whether a record is news of our own node that is not ours: whatever this run wrote it holds already."""
        key, order = record.key, record.order
        return (key.kind, key.owner) == ("node", self._author.key) and order.run >= self._author.run

    def _doubts_me(self, record: Record) -> bool:
        """Whether a record is a doubt about this node that nothing it wrote has answered yet."""
        if record.key.kind != "doubt" or record.key.id != self._author.id:
            return False
        entry, own = self.replica.get(record.key), self._node_record(self._author.key)
        body = entry.body if entry is not None else None
        if not isinstance(body, Doubt) or body.cleared:
            return False
        return own is None or own.order[:3:2] <= (body.run, body.seq)
