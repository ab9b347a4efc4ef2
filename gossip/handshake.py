"""TLK1, the handshake of a link: SIGMA-I over `crypto_kx`, Ed25519 and BLAKE2b in three messages.

Bytes in, bytes and keys out; seeds, nonce and `now` come from the caller. It knows nothing of
memberships: the caller reads the other end's HELLO, decides, and answers with `gossip.secure`'s
verdict (M4). `docs/protocol-link.md` is the specification.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b
from hmac import compare_digest

from nacl.bindings import (
    crypto_kx_client_session_keys,
    crypto_kx_seed_keypair,
    crypto_kx_server_session_keys,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from gossip.errors import LocalProtocolError
from gossip.transcript import (
    CLAIM_B,
    KEY_B,
    MAC_B,
    MAX_HELLO_B,
    Introduction,
    Role,
    chain,
    check_point,
    derive,
    extract,
    first_mac,
    introduce,
    recognise,
    refusal,
)

LINK_MAGIC = b"TLK1"
CIRCUIT_MAGIC = b"TLKE"  # the same handshake end to end inside a relayed stream

# One integer for the wire. Version 1 (2026-11): as specified, suite 0.
VERSION = 1
_VERSION_AND_SUITE = bytes((VERSION, 0))

NONCE_B = 16
_HEAD_B = len(LINK_MAGIC) + len(_VERSION_AND_SUITE) + KEY_B + NONCE_B
M1_B = _HEAD_B + MAC_B
MAX_M2_B = KEY_B + CLAIM_B + MAX_HELLO_B
MAX_M3_B = CLAIM_B + MAX_HELLO_B


def network_key(fabric_id: bytes) -> bytes:
    """Return NK, which keeps the links of two fabrics apart. No secret: whoever knows the id has it."""
    if not fabric_id:
        raise _misuse("a fabric id is not empty")
    return blake2b(fabric_id, digest_size=KEY_B, person=b"tela1-net").digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Established:
    """A handshake that ended well: who is there, and the keys of this link alone."""

    peer: bytes  # the Ed25519 id key of the other end
    payload: bytes = field(repr=False)  # its HELLO, authenticated
    send_key: bytes = field(repr=False)
    receive_key: bytes = field(repr=False)
    binding: bytes = field(repr=False)  # thF: names this link, equal at both ends


class ReplayGuard:
    """The M1s of the last minutes, each welcome once. Mutable: every `admit` remembers.

    A full guard forgets the oldest. Refusing instead would let a flood shut the door on everybody,
    while a replayed M1 costs one answer its sender cannot read.

    Args:
        capacity: MACs kept; the default holds 54 new links a second for the whole time, in 3 MB.
        keep_s: seconds a MAC is remembered after it was last seen.
    """

    __slots__ = ("_capacity", "_keep_s", "_seen")

    def __init__(self, *, capacity: int = 16_384, keep_s: float = 300.0) -> None:
        if capacity < 1:
            raise _misuse("a replay guard remembers at least one message")
        self._capacity = capacity
        self._keep_s = keep_s
        self._seen: OrderedDict[bytes, float] = OrderedDict()  # in order of the time last seen

    @property
    def size(self) -> int:
        """How many MACs it remembers. Not `__len__`, which would make an empty guard false."""
        return len(self._seen)

    def admit(self, mac: bytes, now: float) -> bool:
        """Return whether this MAC is new, and remember it either way."""
        seen = self._seen
        while seen and now - next(iter(seen.values())) > self._keep_s:
            seen.popitem(last=False)
        is_new = mac not in seen
        seen[mac] = now
        seen.move_to_end(mac)
        if len(seen) > self._capacity:
            seen.popitem(last=False)
        return is_new


class _Step(Enum):
    FRESH = auto()
    HALF = auto()  # we spoke once, the other end's answer is due
    OVER = auto()  # done or failed; a core is used once


class Initiator:
    """The end that dialled. Mutable: each call is one step, and a refusal ends it.

    Args:
        seed: our 32-byte Ed25519 seed.
        network: `network_key` of the fabric.
        payload: our HELLO, at most `MAX_HELLO_B`.
        pinned: the id key we dialled; None accepts any and leaves the choice to the caller.
        ephemeral_seed: 32 fresh random bytes, never used before.
        nonce: 16 fresh random bytes.
        magic: the domain, `LINK_MAGIC` or `CIRCUIT_MAGIC`.

    Raises:
        LocalProtocolError: an argument of the wrong size, or a call out of turn.
    """

    __slots__ = ("_ephemeral", "_m1", "_network", "_payload", "_pinned", "_seed", "_step")

    def __init__(
        self,
        *,
        seed: bytes,
        network: bytes,
        payload: bytes,
        pinned: bytes | None,
        ephemeral_seed: bytes,
        nonce: bytes,
        magic: bytes = LINK_MAGIC,
    ) -> None:
        _check_ours(seed, network, payload, ephemeral_seed, magic)
        _check_size("nonce", nonce, NONCE_B)
        if pinned is not None:
            _check_size("pinned id", pinned, KEY_B)
        self._seed = seed
        self._network = network
        self._payload = payload
        self._pinned = pinned
        self._ephemeral = crypto_kx_seed_keypair(ephemeral_seed)
        head = magic + _VERSION_AND_SUITE + self._ephemeral[0] + nonce
        self._m1 = head + first_mac(network, head)
        self._step = _Step.FRESH

    def first(self) -> bytes:
        """Return M1, which opens the handshake."""
        _check_step(self._step, _Step.FRESH)
        self._step = _Step.HALF
        return self._m1

    def receive(self, m2: bytes | bytearray) -> tuple[bytes, Established]:
        """Read M2; return M3 and the keys. Nothing but the other end's verdict may follow M3.

        Raises:
            RemoteProtocolError: M2 is not an answer to our M1 by whom we dialled.
        """
        _check_step(self._step, _Step.HALF)
        self._step = _Step.OVER
        (public, secret), self._ephemeral = self._ephemeral, (b"", b"")
        m2 = bytes(m2)  # the websocket layer hands bytearray
        _check_length("M2", m2, KEY_B + CLAIM_B, MAX_M2_B)
        theirs, box = m2[:KEY_B], m2[KEY_B:]
        _check_ephemeral(theirs, public)
        th = chain(chain(bytes(KEY_B), self._m1), theirs)
        try:
            r2i, i2r = crypto_kx_client_session_keys(public, secret, theirs)
        except CryptoError as error:
            raise refusal("the ephemeral key is of low order", "point") from error
        prk = extract(self._network, i2r=i2r, r2i=r2i, th=th)
        own, _ = crypto_sign_seed_keypair(self._seed)
        met = recognise(Role.RESPONDER, prk, th, box=box, own=own, pinned=self._pinned)
        m3, end = introduce(Role.INITIATOR, prk, met.th, seed=self._seed, payload=self._payload)
        return m3, _established(met, prk, end, sends=b"i2r", receives=b"r2i")


class Responder:
    """The end that was dialled. Mutable: each call is one step, and a refusal ends it.

    Until M1 proved to know the network nothing is computed but one hash.

    Args:
        seed: our 32-byte Ed25519 seed.
        network: `network_key` of the fabric.
        payload: our HELLO, at most `MAX_HELLO_B`.
        ephemeral_seed: 32 fresh random bytes, never used before.
        guard: shared by all responders of this node.
        magic: the domain, `LINK_MAGIC` or `CIRCUIT_MAGIC`.

    Raises:
        LocalProtocolError: an argument of the wrong size, or a call out of turn.
    """

    __slots__ = (
        "_ephemeral_seed",
        "_guard",
        "_magic",
        "_network",
        "_payload",
        "_prk",
        "_seed",
        "_step",
        "_th",
    )

    def __init__(
        self,
        *,
        seed: bytes,
        network: bytes,
        payload: bytes,
        ephemeral_seed: bytes,
        guard: ReplayGuard,
        magic: bytes = LINK_MAGIC,
    ) -> None:
        _check_ours(seed, network, payload, ephemeral_seed, magic)
        self._seed = seed
        self._network = network
        self._payload = payload
        self._ephemeral_seed = ephemeral_seed
        self._guard = guard
        self._magic = magic
        self._prk = self._th = b""
        self._step = _Step.FRESH

    def receive_first(self, m1: bytes | bytearray, now: float) -> bytes:
        """Read M1 at `now` (monotonic seconds); return M2.

        Raises:
            RemoteProtocolError: M1 is of another protocol, version or network, or a replay.
        """
        _check_step(self._step, _Step.FRESH)
        self._step = _Step.OVER
        seed, self._ephemeral_seed = self._ephemeral_seed, b""
        m1 = bytes(m1)
        theirs = self._check_first(m1, now)
        public, secret = crypto_kx_seed_keypair(seed)
        _check_ephemeral(theirs, public)
        th = chain(chain(bytes(KEY_B), m1), public)
        try:
            i2r, r2i = crypto_kx_server_session_keys(public, secret, theirs)
        except CryptoError as error:
            raise refusal("the ephemeral key is of low order", "point") from error
        self._prk = extract(self._network, i2r=i2r, r2i=r2i, th=th)
        box, self._th = introduce(Role.RESPONDER, self._prk, th, seed=self._seed, payload=self._payload)
        self._step = _Step.HALF
        return public + box

    def receive_last(self, m3: bytes | bytearray) -> Established:
        """Read M3; return who dialled and the keys. The caller now owes a verdict.

        Raises:
            RemoteProtocolError: M3 is not the end of this handshake.
        """
        _check_step(self._step, _Step.HALF)
        self._step = _Step.OVER
        prk, self._prk = self._prk, b""
        m3 = bytes(m3)
        _check_length("M3", m3, CLAIM_B, MAX_M3_B)
        own, _ = crypto_sign_seed_keypair(self._seed)
        met = recognise(Role.INITIATOR, prk, self._th, box=m3, own=own, pinned=None)
        return _established(met, prk, met.th, sends=b"r2i", receives=b"i2r")

    def _check_first(self, m1: bytes, now: float) -> bytes:
        """Return the ephemeral key of an M1 that is new and of our network."""
        _check_length("M1", m1, M1_B, M1_B)
        head, mac = m1[:_HEAD_B], m1[_HEAD_B:]
        if head[:4] != self._magic:
            raise refusal(f"not a {self._magic.decode('ascii', 'replace')} handshake", "magic")
        if head[4:6] != _VERSION_AND_SUITE:
            raise refusal(f"version {head[4]}, suite {head[5]} is not spoken here", "version")
        if not compare_digest(mac, first_mac(self._network, head)):
            raise refusal("the sender does not know this fabric", "network")
        if not self._guard.admit(mac, now):
            raise refusal("this first message was seen before", "replay")
        return head[6 : 6 + KEY_B]


def _established(met: Introduction, prk: bytes, th: bytes, *, sends: bytes, receives: bytes) -> Established:
    return Established(
        peer=met.peer,
        payload=met.payload,
        send_key=derive(prk, sends, th),
        receive_key=derive(prk, receives, th),
        binding=th,
    )


def _check_ours(seed: bytes, network: bytes, payload: bytes, ephemeral_seed: bytes, magic: bytes) -> None:
    _check_size("seed", seed, KEY_B)
    _check_size("network key", network, KEY_B)
    _check_size("ephemeral seed", ephemeral_seed, KEY_B)
    _check_size("magic", magic, len(LINK_MAGIC))
    if not isinstance(payload, bytes) or len(payload) > MAX_HELLO_B:
        raise _misuse(f"a HELLO is at most {MAX_HELLO_B} bytes")


def _check_size(what: str, value: bytes, size_b: int) -> None:
    if not isinstance(value, bytes) or len(value) != size_b:
        raise _misuse(f"the {what} must be {size_b} bytes")


def _check_length(what: str, message: bytes, least_b: int, most_b: int) -> None:
    if not least_b <= len(message) <= most_b:
        raise refusal(f"{what} has {len(message)} bytes, not {least_b} to {most_b}", "length")


def _check_ephemeral(theirs: bytes, ours: bytes) -> None:
    check_point(theirs)
    if theirs == ours:
        raise refusal("our own ephemeral key came back", "reflected")


def _check_step(step: _Step, wanted: _Step) -> None:
    if step is not wanted:
        raise _misuse(f"a handshake goes forward once: {wanted.name} wanted, it is {step.name}")


def _misuse(message: str) -> LocalProtocolError:
    return LocalProtocolError(message, code="handshake_misuse")
