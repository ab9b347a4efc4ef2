"""Who a node is: its key, the certificate its member signs for it, and what shows that the member belongs here.

Refuses roles the membership does not give, before any other node has to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from node.config import HubAddress
from node.fabricdir import FabricDir
from node.statedir import StateDir
from registry.charter import Chartered, certify, charter_in_force
from registry.errors import TelaError
from registry.kinds import Acceptance, Certificate, Charter, Invite, Membership, read_body
from registry.record import Record, seed_signer

CERTIFIED_S = 7 * 86_400.0  # a node that is gone frees its place in its membership after so long at the latest
FREE_ROLES = frozenset({"observer"})  # to look is every member's right, so no membership names it


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Everything a node shows, and what it signs with."""

    seed: bytes = field(repr=False)
    key: bytes
    member_seed: bytes = field(repr=False)
    member_key: bytes
    fabric_id: bytes
    fabric_name: str  # what the fabric is called here
    charters: tuple[Record, ...]  # the founding one first
    membership: Record
    invite: Record | None  # None: the membership was signed by an owner
    acceptance: Record | None  # None: no hub's word is held
    certificate: Record
    roles: tuple[str, ...]
    hubs: tuple[HubAddress, ...]

    def proofs(self) -> tuple[Record, ...]:
        """What a greeting carries: membership and certificate, then the invite behind them and its acceptance."""
        proofs = [self.membership, self.certificate]
        if self.invite is not None:
            proofs.append(self.invite)
            if self.acceptance is not None:
                proofs.append(self.acceptance)
        return tuple(proofs)

    def renewed(self, now: float) -> "Credentials":
        """The same with a certificate that begins at `now` (unix seconds)."""
        certificate = _certify(self.key, self.member_seed, _membership(self.membership), self.roles, now)
        return replace(self, certificate=certificate)


def identify(fabric: FabricDir, state: StateDir, roles: Iterable[str], *, now: float) -> Credentials:
    """The identity of the node that lives in a state directory.

    Args:
        fabric: what its member holds.
        state: holds the node's key; one is made when there is none.
        roles: what the node wants to be.
        now: unix seconds.

    Raises:
        TelaError: this account is no member (`no_member`), its membership does not give the roles
            (`role_not_granted`) or has ended (`membership_expired`), or a file is broken or exposed.
    """
    records = fabric.records()
    charters = tuple(sorted((each for each in records if each.key.kind == "charter"), key=lambda each: each.order.seq))
    member_seed = fabric.member_seed()
    if member_seed is None:
        raise TelaError(
            f"{fabric.path} holds no member's key: this account may not run nodes in {fabric.name}",
            hint="ask an operator for an invite, then tela join @FILE",
            code="no_member",
        )
    member_key, _ = seed_signer(member_seed)
    record = _membership_of(fabric, records, member_key)
    membership = _membership(record)
    wanted = tuple(roles)
    _check(membership, wanted, now, who_grants=_owners(charters, fabric.fabric_id, membership.provider))
    invite = next((each for each in records if _invites(each, record)), None)
    seed = state.seed()
    key, _ = seed_signer(seed)
    return Credentials(
        seed=seed,
        key=key,
        member_seed=member_seed,
        member_key=member_key,
        fabric_id=fabric.fabric_id,
        fabric_name=fabric.name,
        charters=charters,
        membership=record,
        invite=invite,
        acceptance=_accepted(records, invite, member_key) if invite else None,
        certificate=_certify(key, member_seed, membership, wanted, now),
        roles=wanted,
        hubs=fabric.hubs(),
    )


def _certify(key: bytes, member_seed: bytes, membership: Membership, roles: tuple[str, ...], now: float) -> Record:
    member_key, sign = seed_signer(member_seed)
    ends = now + CERTIFIED_S if membership.not_after is None else min(now + CERTIFIED_S, membership.not_after)
    body = Certificate(node=key, roles=roles, not_after=ends)
    return certify(body, member_key, sign, seq=int(now * 1000))


def _membership(record: Record) -> Membership:
    body = read_body(record)
    assert isinstance(body, Membership)  # chosen by its kind, which read_body holds it to
    return body


def _membership_of(fabric: FabricDir, records: tuple[Record, ...], member_key: bytes) -> Record:
    for record in records:
        if record.key.kind == "membership" and _membership(record).member == member_key:
            return record
    raise TelaError(
        f"{fabric.path / 'records'} holds no membership of the key in {fabric.member_path.name}",
        hint="join again: tela join @FILE",
        code="no_member",
    )


def _check(membership: Membership, wanted: tuple[str, ...], now: float, *, who_grants: tuple[str, ...]) -> None:
    ask = f"ask {' or '.join(who_grants)}" if who_grants else "ask an operator"
    if membership.not_after is not None and now > membership.not_after:
        raise TelaError("this membership has ended", hint=f"{ask} for an invite", code="membership_expired")
    missing = [role for role in wanted if role not in membership.roles and role not in FREE_ROLES]
    if missing:
        given = ", ".join(membership.roles) or "none"
        raise TelaError(
            f"the membership does not give the role {', '.join(missing)}; it gives {given}",
            hint=f"{ask} for an invite with --roles {','.join(wanted)}",
            code="role_not_granted",
        )


def _owners(charters: tuple[Record, ...], fabric_id: bytes, provider: str) -> tuple[str, ...]:
    bodies = [(record, read_body(record)) for record in charters]
    in_force = charter_in_force(fabric_id, [Chartered(rec, body) for rec, body in bodies if isinstance(body, Charter)])
    if in_force is None:
        return ()
    scopes = ("fabric", f"provider:{provider}")
    operators = in_force.current.charter.operators
    return tuple(each.name for each in operators if "owner" in each.verbs and each.scope in scopes)


def _invites(record: Record, membership: Record) -> bool:
    if record.key.kind != "invite":
        return False
    body = read_body(record)
    return isinstance(body, Invite) and body.key == membership.key.owner


def _accepted(records: tuple[Record, ...], invite: Record, member_key: bytes) -> Record | None:
    """The latest word of a hub that it accepted this member under this invite."""
    of_ours = [
        record
        for record in records
        if record.key.kind == "acceptance" and record.key.id == invite.key.id
        if isinstance(body := read_body(record), Acceptance) and body.member == member_key
    ]
    return max(of_ours, key=lambda record: record.order, default=None)
