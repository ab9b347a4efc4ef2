"""Knocking: a new member shows itself to a hub once, so that the invite is accepted while it still can be."""

import asyncio
from random import Random
from typing import NamedTuple

from gossip.mesh import Identity, Mesh
from gossip.peer import Peer
from gossip.topology import Address
from gossip.transport import Network
from node.identity import Credentials
from node.known import anchors
from registry.author import Author
from registry.charter import Chartered, charter_in_force
from registry.clock import Clock
from registry.kinds import Acceptance, Charter, Node, read_body
from registry.lifecycle import Rank
from registry.record import Record, seed_signer
from registry.replica import Replica
from registry.views import Views

KNOCK_S = 10.0
LOOK_S = 0.05
NOT_READY = "not_ready"  # a hub that will answer in a moment


class Knock(NamedTuple):
    """What came of it."""

    accepted: Record | None  # a hub's word that the invite is ours
    refusal: str | None  # a code of `gossip.hello.REFUSALS`; None: nobody refused
    offset_s: float  # the hubs' clock minus ours, as far as it is known


async def knock(
    mine: Credentials,
    host: str,
    slot: int,
    *,
    network: Network,
    clock: Clock,
    rng: Random,
    within_s: float = KNOCK_S,
) -> Knock:
    """Dial the hubs that are known until one of them accepted, or refused, or time is up.

    The only word of this node is that it left: so it takes no place in its membership and stands in no list.
    """
    replica = Replica()
    for record in (*mine.charters, *mine.proofs()):
        replica.apply(record)
    key, sign = seed_signer(mine.seed)
    views = Views(replica, mine.fabric_id)
    charter = _charter(mine)
    named = anchors(charter, mine.hubs) if charter else {hub.key: hub.urls for hub in mine.hubs}
    mesh = Mesh(
        identity=Identity(seed=mine.seed, key=key, fabric_id=mine.fabric_id),
        peer=Peer(replica=replica, author=Author(key, sign, 0), is_hub=False),
        network=network,
        clock=clock,
        rng=rng,
        known=lambda: [Address(hub, urls, ingress=True, is_anchor=True) for hub, urls in named.items()],
        proofs=mine.proofs,
        standing=lambda: views.at(clock.wall()).standing,
        anchors=lambda: frozenset(named),
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(mesh.run())
        try:
            return await _until_answered(mine, replica, mesh, clock, within_s)
        finally:
            if mesh.linked():
                mesh.tell(lambda peer: peer.announce(_gone(mine, host, slot), Rank.LEFT))
            await mesh.farewell()
            running.cancel()


def _gone(mine: Credentials, host: str, slot: int) -> Node:
    return Node(host=host, slot=slot, member=mine.member_key, roles=mine.roles)


async def _until_answered(mine: Credentials, replica: Replica, mesh: Mesh, clock: Clock, within_s: float) -> Knock:
    def heard() -> Knock | None:
        offset = mesh.fabric_now() - clock.wall()
        if (record := _acceptance(mine, replica)) is not None:
            return Knock(record, None, offset)
        final = [refused.code for refused in mesh.refused.values() if refused.code != NOT_READY]
        return Knock(None, final[0], offset) if final and not mesh.linked() else None

    try:
        async with asyncio.timeout(within_s):
            while (answer := heard()) is None:  # noqa: ASYNC110 - the mesh holds a refusal and tells nobody
                await asyncio.sleep(LOOK_S)
            return answer
    except TimeoutError:
        is_waiting = any(refused.code == NOT_READY for refused in mesh.refused.values())
        return Knock(None, NOT_READY if is_waiting else None, 0.0)


def _acceptance(mine: Credentials, replica: Replica) -> Record | None:
    if mine.invite is None:
        return None
    words = [
        record
        for record, body in replica.of_kind("acceptance")
        if record.key.id == mine.invite.key.id and isinstance(body, Acceptance) and body.member == mine.member_key
    ]
    return max(words, key=lambda record: record.order, default=None)


def _charter(mine: Credentials) -> Charter | None:
    held = [Chartered(record, body) for record in mine.charters if isinstance(body := read_body(record), Charter)]
    in_force = charter_in_force(mine.fabric_id, held)
    return in_force.current.charter if in_force else None
