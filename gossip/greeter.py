"""Begins handshakes as this node, at either end: with its key, fresh dice and a greeting as true as it is now.

It decides nothing: whom to dial is the dialler's, whom to let in the gate's.
"""

from collections.abc import Callable
from random import Random

from gossip.frames import CAPABILITY
from gossip.handshake import Initiator, ReplayGuard, Responder, network_key
from gossip.hello import Hello, encode_hello
from registry.record import Record


class Greeter:
    """Mutable: its guard remembers who knocked.

    Args:
        seed: of this node's key.
        fabric_id: where it belongs.
        release: what it says it runs.
        is_hub: whether it takes links.
        accounts: whether it holds the accounts grant and wants that shelf.
        proofs: what shows its right to be here, as it is now.
        wall: unix seconds.
        rng: a `SystemRandom` outside tests.
    """

    def __init__(
        self,
        *,
        seed: bytes,
        fabric_id: bytes,
        release: str,
        is_hub: bool,
        accounts: bool,
        proofs: Callable[[], tuple[Record, ...]],
        wall: Callable[[], float],
        rng: Random,
    ) -> None:
        self._seed = seed
        self._network = network_key(fabric_id)
        self._release = release
        self._is_hub = is_hub
        self._accounts = accounts
        self._proofs = proofs
        self._wall = wall
        self._rng = rng
        self._guard = ReplayGuard()

    def to(self, key: bytes) -> Initiator:
        """The handshake with a node that is dialled; no other key will do."""
        return Initiator(
            seed=self._seed,
            network=self._network,
            payload=self._hello(),
            pinned=key,
            ephemeral_seed=self._rng.randbytes(32),
            nonce=self._rng.randbytes(16),
        )

    def answer(self) -> Responder:
        """The handshake with whoever connected."""
        return Responder(
            seed=self._seed,
            network=self._network,
            payload=self._hello(),
            ephemeral_seed=self._rng.randbytes(32),
            guard=self._guard,
        )

    def _hello(self) -> bytes:
        return encode_hello(
            Hello(
                capability=CAPABILITY,
                release=self._release,
                hub=self._is_hub,
                accounts=self._accounts,
                proofs=tuple(proof.raw for proof in self._proofs()),
                wall=self._wall(),
            )
        )
