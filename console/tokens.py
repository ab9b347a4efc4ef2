"""The token of an invite: everything a stranger needs to join, in one word. Pure.

It holds the secret half of the invite's key, so whoever has it can use the invite. What is read back is checked as far
as it proves itself; whether the invite still counts is for a hub to say.
"""

import base64
import binascii
import re
import zlib
from typing import Annotated, NamedTuple

import msgspec

from node.config import HubAddress
from registry.charter import OWNER, Chartered, charter_in_force, may
from registry.errors import RecordRefused, TelaError
from registry.kinds import Charter, HttpUrl, Invite, PublicKey, Url, read_body
from registry.record import MAX_RECORD_B, Record, decode, seed_signer
from registry.text import clean

PREFIX = "tela_invite_"
KEY_PREFIX, CLAIM_PREFIX = "tela_sk_", "tela_claim_"
VERSION = 1
MAX_CHARTERS = 64
MAX_HUBS = 16
MAX_TOKEN_CHARS = 262_144
_MAX_PACKED_B = 524_288  # of the same, unpacked: 64 charters of 4 KB and the rest
_CRC_B = 4
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_RECORD = Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_B)]


class _Hub(msgspec.Struct, frozen=True, array_like=True):
    key: PublicKey
    urls: Annotated[tuple[Url, ...], msgspec.Meta(min_length=1, max_length=16)]


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """What is in the token. Fields are added at the end; a change of meaning is a new version."""

    v: int
    name: str
    charters: Annotated[tuple[_RECORD, ...], msgspec.Meta(min_length=1, max_length=MAX_CHARTERS)]
    invite: _RECORD
    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    hubs: Annotated[tuple[_Hub, ...], msgspec.Meta(max_length=MAX_HUBS)]
    door: HttpUrl = ""


class Invitation(NamedTuple):
    """An invite and what is needed to use it."""

    name: str  # of the fabric
    charters: tuple[Record, ...]  # the founding one first
    record: Record
    invite: Invite
    seed: bytes  # of the invite's key
    hubs: tuple[HubAddress, ...]
    door: str  # URL of an ingress; empty when none is known

    @property
    def fabric_id(self) -> bytes:
        """The founding charter's hash."""
        return self.charters[0].order.hash

    @property
    def by(self) -> str:
        """The operator who signed it, by name."""
        operators = _charter(self.charters).operators
        return next((clean(each.name) for each in operators if each.key == self.record.key.owner), "an operator")


def write_token(invitation: Invitation) -> str:
    """The word to give to a person."""
    packed = _Packed(
        v=VERSION,
        name=invitation.name,
        charters=tuple(record.raw for record in invitation.charters),
        invite=invitation.record.raw,
        seed=invitation.seed,
        hubs=tuple(_Hub(key=hub.key, urls=hub.urls) for hub in invitation.hubs),
        door=invitation.door,
    )
    payload = zlib.compress(msgspec.msgpack.encode(packed), 9)
    payload += zlib.crc32(payload).to_bytes(_CRC_B)
    return PREFIX + base64.urlsafe_b64encode(payload).decode().rstrip("=")


def read_token(text: str) -> Invitation:
    """What a token says. Line breaks and spaces a mail program put in do not matter.

    Raises:
        TelaError: it is none (`bad_invite`), or is something else that is named.
    """
    word = "".join(text[: 2 * MAX_TOKEN_CHARS].split())
    if (what := _other_secret(word)) is not None:
        raise what
    try:
        packed = _unpack(word)
        return _checked(packed)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _malformed(str(error)) from None
    except RecordRefused as refusal:
        raise _malformed(refusal.reason) from None


def _unpack(word: str) -> _Packed:
    if len(word) > MAX_TOKEN_CHARS:
        raise _malformed(f"it is longer than {MAX_TOKEN_CHARS} characters")
    coded = word.removeprefix(PREFIX)
    try:
        payload = base64.b64decode(coded + "=" * (-len(coded) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("a character is not one of an invite, or some are missing") from None
    body, crc = payload[:-_CRC_B], payload[-_CRC_B:]
    if len(payload) <= _CRC_B or zlib.crc32(body).to_bytes(_CRC_B) != crc:
        raise _malformed("its checksum does not fit, so something of it is missing or changed")
    unpacking = zlib.decompressobj()
    try:
        packed = unpacking.decompress(body, _MAX_PACKED_B)
    except zlib.error:
        raise _malformed("it does not unpack") from None
    if not unpacking.eof:
        raise _malformed("it does not unpack")
    version = msgspec.msgpack.decode(packed)
    if isinstance(version, list) and version and isinstance(version[0], int) and version[0] > VERSION:
        raise TelaError(
            "this invite was made by a newer release of tela", hint="upgrade tela here, then join", code="bad_invite"
        )
    return msgspec.msgpack.decode(packed, type=_Packed)


def _checked(packed: _Packed) -> Invitation:
    charters = tuple(sorted(map(decode, packed.charters), key=lambda record: record.order.seq))
    record = decode(packed.invite)
    body = read_body(record)
    if not isinstance(body, Invite) or seed_signer(packed.seed)[0] != body.key:
        raise _malformed("its secret does not belong to it")
    if _NAME.match(packed.name) is None:
        raise _malformed("it names no fabric")
    if not may(_charter(charters), record.key.owner, OWNER, provider=body.provider):
        raise TelaError(
            "this invite was signed by nobody who may invite",
            hint="whoever gave it to you has to ask an owner of the fabric: tela operators list shows them",
            code="invite_unknown",
        )
    hubs = tuple(HubAddress(key=hub.key, urls=hub.urls) for hub in packed.hubs)
    return Invitation(packed.name, charters, record, body, packed.seed, hubs, packed.door)


def _charter(charters: tuple[Record, ...]) -> Charter:
    held = [Chartered(record, body) for record in charters if isinstance(body := read_body(record), Charter)]
    in_force = charter_in_force(charters[0].order.hash, held)
    if in_force is None or charters[0].order.seq != 0 or len(held) != len(charters):
        raise _malformed("it holds no founding charter")
    return in_force.current.charter


def _other_secret(word: str) -> TelaError | None:
    """What a word is that is no invite; None for what may be one."""
    if word.startswith(PREFIX):
        return None
    if word.startswith(KEY_PREFIX):
        what = "this is an API key, not an invite"
        hint = (
            "a key calls models: tela login URL keeps it. To run nodes, ask an operator for an invite (tela_invite_…)"
        )
    elif word.startswith(CLAIM_PREFIX):
        what = "this is a claim for an API key, not an invite"
        hint = "tela keys claim CLAIM --url URL makes a key of it. To run nodes, ask an operator for an invite"
    elif not word:
        what, hint = "there is no invite in it", "it is one word that begins with tela_invite_"
    else:
        what, hint = "this is no invite", "one begins with tela_invite_; give it as a file: tela join @FILE"
    return TelaError(what, hint=hint, code="bad_invite")


def _malformed(why: str) -> TelaError:
    return TelaError(
        f"the invite is damaged: {clean(why)}",
        hint="copy it again, whole, best as a file: tela join @FILE; or ask for a new one",
        code="bad_invite",
    )
