"""Joining: from an invitation to a fabric's directory with a membership that a hub accepted.

The member's key is on disk before it is shown to anybody, since an invite is used up by the first key that a hub saw.
A membership that is there already is replaced only by one that was accepted.
"""

import asyncio
import contextlib
import os
from random import SystemRandom
from typing import TYPE_CHECKING, NamedTuple

from console.founding import membership_record, up_to
from console.tokens import Invitation
from console.views.words import moment
from node.clock import SystemClock
from node.config import HubAddress
from node.fabricdir import FabricDir, checked_name, find, free_name, names
from node.places import Places
from registry.charter import certify
from registry.clock import LEEWAY_S, is_expired
from registry.errors import TelaError
from registry.ids import key_id
from registry.kinds import Acceptance, Certificate, Membership, read_body
from registry.record import Record, seed_signer

if TYPE_CHECKING:
    from node.identity import Credentials
    from node.joining import Knock

DAY_S = 86_400.0
MAX_SKEW_S = 600.0  # beyond it hubs speak of clocks, not of expiries
# The node that knocks leaves again at once, which frees its place in the membership for the person's first real node,
# perhaps on another host. Where its goodbye is lost the place is taken while its certificate lasts. So that lasts
# seconds where clocks agree, by what they are allowed to differ; and as long as they may differ where it is too short.
BRIEF_S = 15.0 - LEEWAY_S
LONG_S = MAX_SKEW_S - LEEWAY_S
TOO_BRIEF = frozenset({"expired", "clock_off"})
FINAL = frozenset({"exhausted", "revoked", "invite_expired", "invite_unknown", "not_admitted"})


class Joined(NamedTuple):
    """What came of it."""

    invitation: Invitation
    fabric: FabricDir
    member: str  # its id
    until: float | None  # unix seconds; None: nobody accepted it yet
    is_only: bool  # this account belongs to no other fabric


class Joining:
    """One use of an invitation. Lives for one command.

    Args:
        invitation: what the token said.
        places: of this account.
    """

    def __init__(self, invitation: Invitation, places: Places) -> None:
        self._invitation = invitation
        self._places = places
        self._clock = SystemClock()

    def join(self, name: str | None, *, offline: bool, within_s: float) -> Joined:
        """Do it.

        Args:
            name: what to call the fabric here; None: its own name.
            offline: do not ask a hub.
            within_s: how long to wait for one.

        Raises:
            TelaError: the invite does not count any more, or no hub could be asked.
        """
        held = self._held()
        if held is not None and offline:
            self._refuse_to_replace(held)
        if held is not None and name is not None and name != held.name:
            raise TelaError(
                f"this fabric is known here already, as {held.name}",
                hint=f"leave --name out, or move that one away first: mv {held.path} {held.path}.old",
                code="fabric_exists",
            )
        seed = (held.member_seed() if held is not None else None) or os.urandom(32)
        records = self._records(seed)
        fabric = held if held is not None else self._create(name, seed, records)
        if held is not None and held.member_seed() is None:
            held.save_member_seed(seed)
        accepted = None if offline else self._accepted(fabric, seed, records, within_s)
        if held is not None or accepted is not None:
            _take(fabric, records, accepted, self._invitation)
        until = None if accepted is None else _until(accepted, self._invitation)
        return Joined(self._invitation, fabric, _id_of(seed), until, len(names(self._places.config)) == 1)

    def _held(self) -> FabricDir | None:
        """The directory of this fabric, if this account has one."""
        config = self._places.config
        for name in names(config):
            fabric = find(config, name)
            with contextlib.suppress(TelaError):  # a broken one is not in the way
                if fabric.fabric_id == self._invitation.fabric_id:
                    return fabric
        return None

    def _refuse_to_replace(self, held: FabricDir) -> None:
        """Offline nobody says that the new membership is worth more than the one that is there."""
        if any(each.key.kind == "membership" and not _is_of(each, self._invitation) for each in held.records()):
            raise TelaError(
                f"you are a member of {held.name} already, by another invite",
                hint="leave --offline out: a hub has to accept this invite before it takes the other's place",
                code="already_member",
            )

    def _records(self, seed: bytes) -> tuple[Record, ...]:
        member, _ = seed_signer(seed)
        invitation = self._invitation
        membership = membership_record(invitation.invite, invitation.seed, member)
        return *invitation.charters, invitation.record, membership

    def _create(self, name: str | None, seed: bytes, records: tuple[Record, ...]) -> FabricDir:
        invitation, config = self._invitation, self._places.config
        called = checked_name(name) if name is not None else free_name(config, invitation.name)
        return FabricDir.create(config, called, records, invitation.hubs, invitation.door, member_seed=seed)

    # --- asking a hub

    def _accepted(self, fabric: FabricDir, seed: bytes, records: tuple[Record, ...], within_s: float) -> Record:
        """A hub's word that the invite is ours.

        Raises:
            TelaError: it is not, or nobody could be asked.
        """
        knock = self._knock(fabric, seed, records, within_s, BRIEF_S)
        if knock.refusal in TOO_BRIEF:
            knock = self._knock(fabric, seed, records, within_s, LONG_S)
        if knock.accepted is not None:
            return knock.accepted
        if knock.refusal in FINAL and _is_worthless(fabric, self._invitation):
            _forget(fabric)
        raise refusal_of(knock.refusal, self._invitation, fabric, self._clock.wall())

    def _knock(
        self, fabric: FabricDir, seed: bytes, records: tuple[Record, ...], within_s: float, lasts_s: float
    ) -> "Knock":
        from gossip.websocket import WebsocketNetwork  # noqa: PLC0415 - not for --offline
        from node.joining import knock  # noqa: PLC0415 - the same
        from node.settings import read_file, resolve  # noqa: PLC0415 - the same
        from node.starting import hostname  # noqa: PLC0415 - the same
        from node.statedir import StateDir, boot_id, process_start  # noqa: PLC0415 - the same

        host = resolve({}, os.environ, read_file(self._places.config / "config.toml"))["host"].value or hostname()
        pid = os.getpid()
        state = StateDir.claim(
            self._places.state, fabric.name, str(host), slot=None, boot_id=boot_id(), pid=pid, start=process_start(pid)
        )
        try:
            mine = self._credentials(fabric, seed, records, state.seed(), lasts_s)
            network, rng = WebsocketNetwork(), SystemRandom()
            asked = knock(mine, state.host, state.slot, network=network, clock=self._clock, rng=rng, within_s=within_s)
            return asyncio.run(asked)
        finally:
            state.release()

    def _credentials(
        self, fabric: FabricDir, seed: bytes, records: tuple[Record, ...], node_seed: bytes, lasts_s: float
    ) -> "Credentials":
        """Those of a node that only looks, for a moment."""
        from node.identity import Credentials  # noqa: PLC0415 - not for --offline

        member, sign = seed_signer(seed)
        node, _ = seed_signer(node_seed)
        now = self._clock.wall()
        body = Certificate(node=node, roles=("observer",), not_after=now + lasts_s)
        return Credentials(
            seed=node_seed,
            key=node,
            member_seed=seed,
            member_key=member,
            fabric_id=self._invitation.fabric_id,
            fabric_name=fabric.name,
            charters=self._invitation.charters,
            membership=records[-1],
            invite=self._invitation.record,
            acceptance=None,
            certificate=certify(body, member, sign, seq=int(now * 1000)),
            roles=("observer",),
            hubs=self._invitation.hubs,
        )


def refusal_of(code: str | None, invitation: Invitation, fabric: FabricDir, now: float) -> TelaError:
    """What to tell a person whose invite a hub refused, or who reached no hub."""
    ended = moment(invitation.invite.accept_by)
    if code is not None:
        unknown = (f"the hub refused: {code}", "upgrade tela here and there, then join again")
        what, hint = _refusals(invitation).get(code, unknown)
        return TelaError(what, hint=hint, code=code)
    if is_expired(invitation.invite.accept_by, now):
        return TelaError(
            f"no hub answered, and this invite had to be used by {ended}",
            hint=_ask_again(invitation),
            code="unreachable",
        )
    return TelaError(
        f"no hub of {fabric.name} answered: {_listed(invitation.hubs)}",
        hint=f"is one running, and can this host reach it? Join again before {ended}; what was made is kept in "
        f"{fabric.path}",
        code="unreachable",
    )


def _ask_again(invitation: Invitation) -> str:
    return f"ask {invitation.by} for a new one (tela invite)"


def _refusals(invitation: Invitation) -> dict[str, tuple[str, str]]:
    """What to say for each code of `gossip.hello.REFUSALS` that a person with an invite can meet, and what to do."""
    by, again, invite = invitation.by, _ask_again(invitation), invitation.invite
    return {
        "invite_expired": (f"this invite had to be used by {moment(invite.accept_by)}", again),
        "exhausted": (
            "this invite was used already, by another key",
            f"it is for one person. If that was you, copy the fabric's directory from where you joined; else {again}, "
            "and say that somebody else used this one",
        ),
        "revoked": ("this invite was taken back by an operator", f"ask {by} why, and for a new one"),
        "invite_unknown": ("the fabric does not know whoever signed this invite as one who may invite", again),
        "not_admitted": ("the hub knows nobody who stands behind this invite", again),
        "clock_off": (
            "this host's clock and the hub's are more than ten minutes apart",
            "compare `date -u` here with a clock you trust; whoever runs this host sets it (timedatectl, chronyc)",
        ),
        "not_accepted": (
            "the nodes that were reached may not accept invites",
            f"ask {by} for an invite with the address of a hub of the charter (tela invite --hub)",
        ),
        "too_many": (
            f"your membership allows {up_to(invite.max_nodes)}, and they are there already",
            "stop one of them (tela stop), then join again",
        ),
        "narrowed": ("what you may do here changed just now, and the hub links this host anew", "join again"),
        "not_ready": (
            "the hub started a moment ago and has not heard yet whom others accepted",
            "join again in half a minute",
        ),
        "evicted": ("an operator evicted the node of this host", f"ask {by}"),
    }


def _listed(hubs: tuple[HubAddress, ...]) -> str:
    return ", ".join(url for hub in hubs for url in hub.urls[:2]) or "the invite names none"


def _take(fabric: FabricDir, records: tuple[Record, ...], accepted: Record | None, invitation: Invitation) -> None:
    """Put the new membership in place of an older one; other records stay."""
    membership = records[-1]
    kept = [record for record in fabric.records() if not _is_replaced(record, membership, invitation, accepted)]
    new = {record.order.hash: record for record in (*kept, *records, *([accepted] if accepted else []))}
    fabric.save_records(new.values())
    hubs = {hub.key: hub for hub in (*fabric.hubs(), *invitation.hubs)}
    fabric.save_hubs(hubs.values())
    if invitation.door and not fabric.door:
        fabric.save_door(invitation.door)


def _is_replaced(record: Record, membership: Record, invitation: Invitation, accepted: Record | None) -> bool:
    if record.key.kind == "membership":
        body = read_body(record)
        return isinstance(body, Membership) and key_id(body.member) == membership.key.id
    return accepted is not None and record.key == accepted.key and record.key.id == invitation.record.key.id


def _is_of(record: Record, invitation: Invitation) -> bool:
    """Whether a membership was made of this invite."""
    return record.key.owner == invitation.invite.key


def _is_worthless(fabric: FabricDir, invitation: Invitation) -> bool:
    """Whether a directory holds nothing but what this invite made, which no hub accepted."""
    records = fabric.records()
    return not fabric.operator_path.exists() and all(
        each.key.kind in {"charter", "invite"} or (each.key.kind == "membership" and _is_of(each, invitation))
        for each in records
    )


def _forget(fabric: FabricDir) -> None:
    """Remove what was made for an invite that will never count, and nothing else."""
    for name in ("hubs.json", "door", "member.key", "id", "records"):
        (fabric.path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody put a file of their own there
        fabric.path.rmdir()


def _until(accepted: Record, invitation: Invitation) -> float:
    body = read_body(accepted)
    assert isinstance(body, Acceptance)  # asked for by its kind
    return body.renewed + invitation.invite.days * DAY_S


def _id_of(seed: bytes) -> str:
    return key_id(seed_signer(seed)[0])
