"""What happens on a link's streams, as values: the mux returns them, the link hands them on."""

from dataclasses import dataclass
from enum import IntEnum


class ResetCode(IntEnum):
    """Why a stream or a link ended early. Only REFUSED says that nothing was started: safe to retry."""

    CANCEL = 1  # nobody waits for the answer any more
    REFUSED = 2
    OVERLOAD = 3
    TIMEOUT = 4
    INTERNAL = 5
    FLOW = 6
    FLOW_STALL = 7  # the reader held its window for too long
    TRUNCATED = 8  # the link broke; made locally, for streams that never got their end
    GONE = 9
    ENGINE = 10  # the engine behind the answering node failed


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a stream."""

    sid: int
    kind: int  # 1 request, 2 ask, 3 circuit; others are for the application to reset
    head: bytes


@dataclass(frozen=True, slots=True)
class Replied:
    """The acceptor's head arrived."""

    sid: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes of a stream, in order. They hold credit until `Mux.consumed`."""

    sid: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The peer's half is complete; after our own `Mux.stop` merely over, since bytes were dropped."""

    sid: int


@dataclass(frozen=True, slots=True)
class ResetReceived:
    """The stream is over in both directions; what came before may be incomplete."""

    sid: int
    code: int  # a ResetCode when we know it


@dataclass(frozen=True, slots=True)
class Stopped:
    """The peer reads no more of this stream; further sends are dropped. End or reset it."""

    sid: int
    code: int  # a ResetCode when we know it


@dataclass(frozen=True, slots=True)
class Writable:
    """A stream whose `Mux.room` had run out has at least half its send buffer free again."""

    sid: int


@dataclass(frozen=True, slots=True)
class Control:
    """A gossip control frame."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class WentAway:
    """The peer takes no new streams; those that live go on."""

    code: int


StreamEvent = Replied | Received | Ended | ResetReceived | Stopped | Writable
Event = Opened | Replied | Received | Ended | ResetReceived | Stopped | Writable | Control | WentAway
