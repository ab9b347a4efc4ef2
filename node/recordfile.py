"""Records in a file: each with its length and a checksum, so that a broken place is found. Pure.

A file begins with `MAGIC`. A record is length u32, CRC-32 u32, both big-endian, then its raw bytes. What a record
says is checked by whoever decodes it; here they are bytes.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

MAGIC = b"tela records 1\n"
MAX_RAW_B = 4096  # as registry.record.MAX_RECORD_B: no longer envelope is a record
_HEAD = struct.Struct(">II")
_MAX_FRAME_B = _HEAD.size + MAX_RAW_B


class Found(NamedTuple):
    """What a file held up to its first broken place."""

    raws: list[bytes]
    good_b: int  # bytes from the start that are whole
    is_torn: bool  # the end is missing, as after a kill in the middle of a write: cutting it off mends it
    fault: str  # what else is broken; empty: nothing


def frame(raw: bytes) -> bytes:
    """One record as it is written."""
    return _HEAD.pack(len(raw), zlib.crc32(raw)) + raw


def frames(raws: Iterable[bytes]) -> bytes:
    """A whole file of records."""
    return MAGIC + b"".join(map(frame, raws))


def unframe(content: bytes) -> Found:
    """Read a whole file.

    The last frame's worth of bytes may be anything: a kill cuts a write short, and a power cut may leave zeros where
    the file had grown already. A fault further from the end was not made by either.
    """
    if not content.startswith(MAGIC):
        is_torn = MAGIC.startswith(content)
        return Found([], 0, is_torn, "" if is_torn else "it does not begin as a file of records")
    raws: list[bytes] = []
    at = len(MAGIC)
    while at < len(content):
        raw = _raw_at(content, at)
        if raw is None:
            tail = content[at:]
            is_torn = len(tail) <= _MAX_FRAME_B or not any(tail)
            return Found(raws, at, is_torn, "" if is_torn else f"a record at byte {at} is broken")
        raws.append(raw)
        at += _HEAD.size + len(raw)
    return Found(raws, at, False, "")


def _raw_at(content: bytes, at: int) -> bytes | None:
    if at + _HEAD.size > len(content):
        return None
    length, checksum = _HEAD.unpack_from(content, at)
    raw = content[at + _HEAD.size : at + _HEAD.size + length] if 0 < length <= MAX_RAW_B else b""
    return raw if len(raw) == length and length and zlib.crc32(raw) == checksum else None
