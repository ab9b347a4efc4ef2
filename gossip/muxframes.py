"""TMX1 on the wire: records to frames, frames to records, and every limit of the format.

A record holds whole frames, one after the other; a frame never straddles records. What no correct peer can
send is refused in `decode`, before the first frame of its record has any effect. What a frame means is
`gossip.mux`.
"""

from struct import Struct
from typing import Final

from gossip.errors import RemoteProtocolError
from gossip.muxevents import ResetCode

OPEN: Final = 1  # a new stream: kind u8, then the opener's head
HEAD: Final = 2  # the acceptor's head, once
DATA: Final = 3
CREDIT: Final = 4  # absolute offset u64: the peer may send up to that byte; sid 0 is the link
STOP: Final = 5  # code u32: the receiver wants no more
RESET: Final = 6  # code u32: both directions end now
GOAWAY: Final = 8  # code u32: no new streams, please
CTL: Final = 9  # gossip, on sid 0

END: Final = 1  # the only flag: the sender's half of the stream is complete

MAX_RECORD_B: Final = 65_536  # what one encrypted record may carry
HEADER_B: Final = 8
MAX_DATA_B: Final = 16_384  # 1.6 ms on a 10 MB/s path: what an urgent frame may have to wait for
MAX_HEAD_B: Final = 40_960  # a request's headers as the door takes them, and their framing
MAX_CONTROL_B: Final = MAX_RECORD_B - HEADER_B
MAX_SID: Final = 2**31 - 1  # then the link is replaced; ids are never used again

SEND_BUFFER_B: Final = 262_144  # queued per stream before its sender should wait: one stream window
MAX_CONTROL_QUEUED_B: Final = 4_194_304
CONTROL_FLOOR_B: Final = 4_096  # what a small CTL frame is billed, so at most 1,024 of them wait

_HEADER = Struct("!BBHI")
_OPENING = Struct("!BBHIB")
_CODED = Struct("!BBHII")
_CREDIT = Struct("!BBHIQ")

# By type: (shortest payload, longest payload, flags that may be set, lowest sid, highest sid)
_RULES: Final = {
    OPEN: (1, 1 + MAX_HEAD_B, END, 1, MAX_SID),
    HEAD: (0, MAX_HEAD_B, END, 1, MAX_SID),
    DATA: (0, MAX_DATA_B, END, 1, MAX_SID),
    CREDIT: (8, 8, 0, 0, MAX_SID),
    STOP: (4, 4, 0, 1, MAX_SID),
    RESET: (4, 4, 0, 1, MAX_SID),
    GOAWAY: (4, 4, 0, 0, 0),
    CTL: (0, MAX_CONTROL_B, 0, 0, 0),
}


_KNOWN_CODES: Final = {int(code): code for code in ResetCode}

Frame = tuple[int, int, int, bytes]  # type, flags, sid, payload


def decode(record: bytes) -> list[Frame]:
    """The frames of one record.

    Raises:
        RemoteProtocolError: a length lies, a type is unknown, or a frame breaks the limits of its type.
    """
    end = len(record)
    if end > MAX_RECORD_B:
        raise RemoteProtocolError(f"a record of {end} bytes, more than {MAX_RECORD_B}", code="protocol")
    frames: list[Frame] = []
    at = 0
    while at < end:
        if end - at < HEADER_B:
            raise RemoteProtocolError("a frame header is cut off", code="protocol")
        kind, flags, size, sid = _HEADER.unpack_from(record, at)
        at += HEADER_B
        stop = at + size
        rule = _RULES.get(kind)
        if rule is None:
            raise RemoteProtocolError(f"unknown frame type {kind}", code="protocol")
        low, high, may_set, first_sid, last_sid = rule
        if stop > end or not low <= size <= high:
            raise RemoteProtocolError(f"a frame of type {kind} with {size} bytes", code="protocol")
        if not first_sid <= sid <= last_sid or flags & ~may_set:
            raise RemoteProtocolError(f"a frame of type {kind} on {sid}, flags {flags}", code="protocol")
        frames.append((kind, flags, sid, record[at:stop]))
        at = stop
    return frames


def code_in(payload: bytes) -> int:
    """The code of a STOP, RESET or GOAWAY payload; a `ResetCode` when we know it."""
    code = int.from_bytes(payload)
    return _KNOWN_CODES.get(code, code)


def open_frame(sid: int, kind: int, head: bytes) -> bytes:
    """An OPEN frame; `kind` is one byte."""
    return _OPENING.pack(OPEN, 0, len(head) + 1, sid, kind) + head


def frame(kind: int, sid: int, payload: bytes) -> bytes:
    """A HEAD, DATA or CTL frame without END."""
    return _HEADER.pack(kind, 0, len(payload), sid) + payload


def data_header(sid: int, size: int, flags: int) -> bytes:
    """The header of a DATA frame whose payload follows it."""
    return _HEADER.pack(DATA, flags, size, sid)


def coded_frame(kind: int, sid: int, code: int) -> bytes:
    """A STOP, RESET or GOAWAY frame; `code` is 32 bits."""
    return _CODED.pack(kind, 0, 4, sid, code)


def credit_frame(sid: int, offset: int) -> bytes:
    """A CREDIT frame: the peer may send up to byte `offset` of the stream, or of the link on sid 0."""
    return _CREDIT.pack(CREDIT, 0, 8, sid, offset)


def with_end(written: bytes, sid: int) -> bytes | None:
    """The same frame with END set if it is the OPEN or HEAD of stream `sid`, otherwise None."""
    kind, _, size, its_sid = _HEADER.unpack_from(written)
    if its_sid != sid or kind not in {OPEN, HEAD}:
        return None
    return _HEADER.pack(kind, END, size, sid) + written[HEADER_B:]
