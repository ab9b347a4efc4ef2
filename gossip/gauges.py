"""Gauges: numbers that are true for a moment (load, queue, rates), and so are in no record. Pure.

A node says its own to hubs and to whoever subscribed. A hub passes what a node told it to subscribers, and asks
other hubs for theirs while a leaf wants them; what came through a hub goes to no further hub. Each link carries
only what changed, at most every two seconds. A gauge is a claim for display: nothing may be decided by it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gossip.frames import MAX_GAUGE_ROWS, MAX_GAUGES, GaugeRow, Gauges, Subscribe, encode
from gossip.instructions import LinkId, Send
from gossip.line import Contact
from registry.ids import key_id

EACH_S = 2.0  # people do not read faster, and a busy fabric's screens must not cost more than its requests
MAX_NODES = 4_096  # nodes whose gauges are held of hubs; one could make up any number
_NAME = re.compile(r"[a-z_]{1,24}\Z")
_MAX_VALUE = 2**53


class Gauge(NamedTuple):
    """What a node measured."""

    values: dict[str, int]
    at: float  # when, on this loop's clock


class _Held(NamedTuple):
    gauge: Gauge
    link: LinkId | None  # which it came on; None: our own
    is_direct: bool  # the node said it itself


class _Reader:
    """The other end of a link, as a reader of gauges. Changed only by `GaugeBoard`."""

    __slots__ = ("changed", "due", "is_hub", "is_subscribed", "node", "sent")

    def __init__(self, node: str, *, is_hub: bool) -> None:
        self.node = node
        self.is_hub = is_hub
        self.is_subscribed = False
        self.changed: set[str] = set()  # nodes whose gauges it may have to be told
        self.sent: dict[str, dict[str, int]] = {}  # what it was told last
        self.due = float("-inf")  # not to be told anything before


class GaugeBoard:
    """What is held of all gauges, and who is told. Mutable; methods return what to send.

    Args:
        me: this node's id.
        is_hub: whether it passes gauges on.
    """

    def __init__(self, me: str, *, is_hub: bool) -> None:
        self._me = me
        self._is_hub = is_hub
        self._is_wanted_here = False
        self._held: dict[str, _Held] = {}
        self._readers: dict[LinkId, _Reader] = {}

    def all(self) -> dict[str, Gauge]:
        """The latest gauges by node id, the own among them."""
        return {node: held.gauge for node, held in self._held.items()}

    # --- what this node does

    def measure(self, values: Mapping[str, int], now: float) -> list[Send]:
        """Say what this node measures now; the same again costs nothing.

        Raises:
            ValueError: a name, a number or how many there are is beyond what a frame takes.
        """
        if len(values) > MAX_GAUGES:
            raise ValueError(f"{len(values)} gauges, at most {MAX_GAUGES}")
        for name, value in values.items():
            if not _NAME.match(name) or abs(value) > _MAX_VALUE:
                raise ValueError(f"no gauge: {name!r} = {value}")
        held = self._held.get(self._me)
        if held is not None and held.gauge.values == values:
            return []
        self._held[self._me] = _Held(Gauge(dict(values), now), None, is_direct=True)
        self._mark(self._me)
        return self.flush(now)

    def subscribe(self, now: float, *, on: bool) -> list[Send]:
        """Ask hubs for the gauges of all nodes, or for no more of them."""
        before = self._wants
        self._is_wanted_here = on
        return self._ask_hubs(before) + self.flush(now)

    # --- links

    def link_up(self, link: LinkId, contact: Contact, now: float) -> list[Send]:
        """A link is live."""
        reader = self._readers[link] = _Reader(key_id(contact.key), is_hub=contact.is_hub)
        reader.changed = self._known_to(link, reader)
        asked = [Send(link, encode(Subscribe(on=True)))] if reader.is_hub and self._wants else []
        return asked + self.flush(now)

    def link_down(self, link: LinkId) -> list[Send]:
        """A link is gone, and with it what came on it; other hubs are asked for that again."""
        before = self._wants
        reader = self._readers.pop(link, None)
        gone = [node for node, held in self._held.items() if held.link == link]
        for node in gone:
            del self._held[node]
        if reader is not None and reader.is_hub and gone and self._wants:
            return self._tell_hubs(on=True)
        return self._ask_hubs(before)

    def on_subscribe(self, link: LinkId, frame: Subscribe, now: float) -> list[Send]:
        """The other end wants gauges from now on, all of them first, or no more."""
        before = self._wants
        reader = self._readers.get(link)
        if reader is None:
            return []
        reader.is_subscribed = frame.on
        reader.sent.clear()
        reader.changed = self._known_to(link, reader)
        return self._ask_hubs(before) + self.flush(now)

    def on_gauges(self, link: LinkId, frame: Gauges, now: float) -> list[Send]:
        """Gauges came: from a node its own, from a hub also others' where they were asked for."""
        reader = self._readers.get(link)
        if reader is None:
            return []
        takes_others = reader.is_hub and self._wants
        for row in frame.rows:
            is_direct = row.node == reader.node
            if is_direct or (takes_others and row.node != self._me):
                self._hold(_Held(Gauge(row.values, now - row.age_ms / 1000), link, is_direct), row.node)
        return self.flush(now)

    # --- time

    def flush(self, now: float) -> list[Send]:
        """Whatever may be told now."""
        return [
            Send(link, encode(frame))
            for link, reader in self._readers.items()
            if reader.changed and now >= reader.due
            for frame in self._news(reader, now)
        ]

    def next_deadline(self) -> float | None:
        """When `flush` should be called again; None: nothing waits."""
        return min((reader.due for reader in self._readers.values() if reader.changed), default=None)

    # --- inside

    @property
    def _wants(self) -> bool:
        """Whether hubs are to send what others measured: it is looked at here, or at a leaf behind this hub."""
        readers = self._readers.values()
        return self._is_wanted_here or (
            self._is_hub and any(reader.is_subscribed and not reader.is_hub for reader in readers)
        )

    def _ask_hubs(self, before: bool) -> list[Send]:
        wants = self._wants
        if wants == before:
            return []
        if not wants:
            self._held = {node: held for node, held in self._held.items() if held.is_direct}
        return self._tell_hubs(on=wants)

    def _tell_hubs(self, *, on: bool) -> list[Send]:
        frame = encode(Subscribe(on=on))
        return [Send(link, frame) for link, reader in self._readers.items() if reader.is_hub]

    def _hold(self, new: _Held, node: str) -> None:
        held = self._held.get(node)
        if held is not None and not new.is_direct and not _replaces(new, held):
            return
        if held is None and len(self._held) >= MAX_NODES:
            self._forget_oldest()
        self._held[node] = new
        self._mark(node)

    def _forget_oldest(self) -> None:
        """Make room: a quarter at once, so that a hub that makes nodes up does not cost a sort for each."""
        others = sorted((held.gauge.at, node) for node, held in self._held.items() if not held.is_direct)
        for _, node in others[: max(len(others) // 4, 1)]:
            del self._held[node]

    def _mark(self, node: str) -> None:
        for link, reader in self._readers.items():
            if self._may_tell(node, link, reader):
                reader.changed.add(node)

    def _known_to(self, link: LinkId, reader: _Reader) -> set[str]:
        return {node for node in self._held if self._may_tell(node, link, reader)}

    def _may_tell(self, node: str, link: LinkId, reader: _Reader) -> bool:
        held = self._held[node]
        if held.link is None:
            return reader.is_hub or reader.is_subscribed
        is_round_trip = held.link == link or node == reader.node
        is_one_hub_on = held.is_direct or not reader.is_hub
        return self._is_hub and reader.is_subscribed and is_one_hub_on and not is_round_trip

    def _news(self, reader: _Reader, now: float) -> Iterator[Gauges]:
        gauges = {node: self._held[node].gauge for node in sorted(reader.changed) if node in self._held}
        reader.changed = set()
        news = {node: gauge for node, gauge in gauges.items() if reader.sent.get(node) != gauge.values}
        if news:
            reader.due = now + EACH_S
            if len(reader.sent) > MAX_NODES:  # of nodes that came and went; telling some twice is cheaper than counting
                reader.sent.clear()
            reader.sent.update((node, gauge.values) for node, gauge in news.items())
        return _packed(news, now)


def _replaces(new: _Held, held: _Held) -> bool:
    """Whether what a hub passed on replaces what is held: never what the node says itself, nor what is younger."""
    if held.is_direct:
        return False
    return held.link == new.link or (new.gauge.at >= held.gauge.at and new.gauge.values != held.gauge.values)


def _packed(gauges: Mapping[str, Gauge], now: float) -> Iterator[Gauges]:
    rows = [GaugeRow(node, max(int((now - gauge.at) * 1000), 0), gauge.values) for node, gauge in gauges.items()]
    for start in range(0, len(rows), MAX_GAUGE_ROWS):
        yield Gauges(tuple(rows[start : start + MAX_GAUGE_ROWS]))
