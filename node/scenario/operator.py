"""An operator of the demo's fabric: signs orders and keys, and hands them in at a node's control socket."""

from random import Random
from typing import NamedTuple

from accounting.claims import claim_digest, mint_claim
from node.client import Control
from node.control.schema import Published
from registry.acts import write_act
from registry.kinds import Body, KeyGrant, Revocation, Verb, audience_of, encode_body, kind_of
from registry.record import Draft, Record, Sign, seal

CLAIM_S = 600.0


class Given(NamedTuple):
    """A record that was handed in, and what the node made of it."""

    record: Record
    told: Published


class Offered(NamedTuple):
    """A key that waits to be claimed."""

    id: str
    claim: str
    told: Published


class Operator:
    """Somebody the charter names.

    Args:
        key: the public key.
        sign: signs with it.
        control: a node to hand records in at.
    """

    def __init__(self, key: bytes, sign: Sign, control: Control) -> None:
        self._key = key
        self._sign = sign
        self._control = control

    async def order(self, verb: Verb, node: str) -> Given:
        """Give an order about a node."""
        now = (await self._control.view()).at
        held = await self._control.acts()
        act = write_act(held, verb, node, owner=self._key, sign=self._sign, at=now, reason="the demo's check")
        return Given(act, await self._control.publish(act))

    async def offer_key(self, rng: Random) -> Offered:
        """Grant a key that whoever has the claim may fetch, once."""
        claim, name = mint_claim(rng.randbytes(32)), f"k_{rng.randbytes(5).hex()}"
        by = (await self._control.view()).at + CLAIM_S
        grant = KeyGrant(label="check", user="check", claim=claim_digest(claim), claim_by=by)
        return Offered(name, claim, await self._publish(name, grant))

    async def revoke_key(self, name: str) -> Published:
        """End a key."""
        return await self._publish(name, Revocation(reason="the demo's check", at=(await self._control.view()).at))

    async def _publish(self, name: str, body: Body) -> Published:
        draft = Draft(kind_of(body), name, encode_body(body), audience_of(body), seq=1)
        return await self._control.publish(seal(draft, self._key, self._sign))
