"""What the control API asks of the node it shows. The node hands it in; nothing here knows how it is known."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from node.control.schema import SelfView
from node.events import Event
from registry.record import Record
from registry.replica import Replica
from registry.views import Snapshot


class Measured(Protocol):
    """The latest gauges of a node (`gossip.gauges.Gauge`)."""

    @property
    def values(self) -> Mapping[str, int]:
        """By name."""

    @property
    def at(self) -> float:
        """Loop time they came at."""


class Journal(Protocol):
    """The node's own events (`node.eventlog.EventLog`)."""

    def since(self, seq: int, limit: int) -> Sequence[Event]:
        """At most `limit` events numbered above `seq`, oldest first."""

    last_seq: int  # the number of the newest event; 0 when there is none


class Source(NamedTuple):
    """Everything the API shows and does, as callables.

    Attributes:
        about: this process, for `/self`.
        snapshot: the registry's views of this moment.
        replica: the records themselves.
        fabric_id: the hash of the founding charter.
        epoch: a word no other start of this node uses; its run does.
        fabric: unix seconds, fabric time.
        now: loop time, the clock of gauges.
        node: the id of this node.
        accounts: whether this node holds the accounts shelf.
        publish: merges records and tells the fabric; says of each whether it was news.
        events: the journal; None on a node that keeps none.
        gauges: the latest gauges by node id.
        holders: ids of the hubs among the known ones that hold the record with a hash, this node included; within 3 s.
        ask: a question as bytes to a node by id; yields the answer's bytes. Raises TelaError before the first of them
            when the answer is no, and in between when it breaks.
    """

    about: Callable[[], SelfView]
    snapshot: Callable[[], Snapshot]
    replica: Replica
    fabric_id: bytes
    epoch: str
    fabric: Callable[[], float]
    now: Callable[[], float]
    node: str
    accounts: bool
    publish: Callable[[Sequence[Record]], Sequence[bool]]
    events: Journal | None
    gauges: Callable[[], Mapping[str, Measured]]
    holders: Callable[[bytes], Awaitable[frozenset[str]]]
    ask: Callable[[str, bytes], AsyncGenerator[bytes, None]]
