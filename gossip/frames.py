"""Control frames: what two peers say beside their streams. Bytes to values and back, limits, versions.

A frame is one type byte and a msgpack array. A type that is not known is skipped, so newer peers may say
more; a known type that does not decode is a fault of the peer.
"""

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Annotated

import msgspec

from gossip.errors import RemoteProtocolError
from registry.digest import BUCKETS, DIGEST_B
from registry.record import MAX_RECORD_B, Audience

CAPABILITY = 2
# What each capability integer added. A node speaks its own and the one before.
#  1 · 2026-12-01 · records, pings with roots, repair by digests and entries
#  2 · 2026-12-01 · greetings with an invite, its acceptance and the time; gauges and who subscribes to them

MAX_FRAME_B = 60_000  # fits one control frame of the mux with room to spare
MAX_RECORDS = 500
PAIR_B = 16  # 8 bytes of register address, 8 of record hash
MAX_GAUGES = 16  # of one node
MAX_GAUGE_ROWS = 80  # at most 700 bytes each

Root = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Sums = Annotated[bytes, msgspec.Meta(min_length=BUCKETS * DIGEST_B, max_length=BUCKETS * DIGEST_B)]
Raw = Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_B)]
Shelf = Annotated[int, msgspec.Meta(ge=0, le=1)]
Bucket = Annotated[int, msgspec.Meta(ge=0, lt=BUCKETS)]
NodeId = Annotated[str, msgspec.Meta(pattern=r"^[a-z2-7]{24}\Z")]
GaugeName = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,24}\Z")]
GaugeValue = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """A sign of life with the roots of the shelves both ends may share."""

    roots: Annotated[tuple[Root, ...], msgspec.Meta(max_length=2)]  # by Audience
    wall: float  # unix seconds on the sender's clock


class Records(msgspec.Struct, frozen=True, array_like=True):
    """Records, pushed or asked for."""

    raws: Annotated[tuple[Raw, ...], msgspec.Meta(max_length=MAX_RECORDS)]


class Sum(msgspec.Struct, frozen=True, array_like=True):
    """The bucket digests of one shelf: the first step of a repair."""

    shelf: Shelf
    sums: Sums


class Entries(msgspec.Struct, frozen=True, array_like=True):
    """What the sender holds in one bucket; pairs of address and record hash, concatenated."""

    shelf: Shelf
    bucket: Bucket
    pairs: bytes


class Want(msgspec.Struct, frozen=True, array_like=True):
    """Addresses of registers whose records the sender asks for, 8 bytes each, concatenated."""

    shelf: Shelf
    slots: bytes


class Bye(msgspec.Struct, frozen=True, array_like=True):
    """An orderly end of the link and its reason, so that it raises no doubt."""

    reason: Annotated[str, msgspec.Meta(max_length=64)]


class GaugeRow(msgspec.Struct, frozen=True, array_like=True):
    """What one node measured, and how long ago."""

    node: NodeId
    age_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    values: Annotated[dict[GaugeName, GaugeValue], msgspec.Meta(max_length=MAX_GAUGES)]


class Gauges(msgspec.Struct, frozen=True, array_like=True):
    """Gauges of nodes: the sender's own, or such as a hub passes on."""

    rows: Annotated[tuple[GaugeRow, ...], msgspec.Meta(max_length=MAX_GAUGE_ROWS)]


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
    """Whether the sender wants gauges; asked again, it wants them all anew."""

    on: bool


Frame = Ping | Records | Sum | Entries | Want | Bye | Gauges | Subscribe

_TYPES: dict[int, type[Frame]] = {
    1: Ping,
    2: Records,
    3: Sum,
    4: Entries,
    5: Want,
    6: Bye,
    7: Gauges,
    8: Subscribe,
}
_TAGS = {body: tag for tag, body in _TYPES.items()}
_DECODERS = {tag: msgspec.msgpack.Decoder(body) for tag, body in _TYPES.items()}
_ENCODER = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    return bytes((_TAGS[type(frame)],)) + _ENCODER.encode(frame)


def decode(data: bytes) -> Frame | None:
    """A frame from outside; None for a type this release does not know.

    Raises:
        RemoteProtocolError: when a known type does not decode.
    """
    if not data or len(data) > MAX_FRAME_B:
        raise RemoteProtocolError(f"control frame of {len(data)} bytes", code="bad_frame")
    decoder = _DECODERS.get(data[0])
    if decoder is None:
        return None
    try:
        frame: Frame = decoder.decode(data[1:])
    except (msgspec.MsgspecError, RecursionError) as error:  # the latter from fields that are skipped unread
        raise RemoteProtocolError(f"control frame {data[0]} refused: {error}", code="bad_frame") from None
    if isinstance(frame, Ping) and not isfinite(frame.wall):  # one NaN would spoil the median of all hubs' clocks
        raise RemoteProtocolError("ping without a time", code="bad_frame")
    if isinstance(frame, Entries) and len(frame.pairs) % PAIR_B:
        raise RemoteProtocolError("entries cut short", code="bad_frame")
    if isinstance(frame, Want) and len(frame.slots) % DIGEST_B:
        raise RemoteProtocolError("want cut short", code="bad_frame")
    return frame


def batches(raws: Iterable[bytes]) -> Iterator[Records]:
    """Records packed into as few frames as fit the limits."""
    held: list[bytes] = []
    size = 0
    for raw in raws:
        if held and (size + len(raw) + 8 > MAX_FRAME_B - 64 or len(held) == MAX_RECORDS):
            yield Records(tuple(held))
            held, size = [], 0
        held.append(raw)
        size += len(raw) + 8
    if held:
        yield Records(tuple(held))


def shelf_of(number: int) -> Audience:
    """The shelf a frame speaks of."""
    return Audience(number)
