"""What shows that a node may be here, and the records it knows before it has heard anything."""

import msgspec

from node.config import NodeConfig
from node.identity import CERTIFIED_S
from registry.charter import certify
from registry.clock import LEEWAY_S, Clock
from registry.errors import RecordRefused, TelaError
from registry.kinds import Certificate, Charter, read_body
from registry.record import Record, decode, seed_signer
from registry.replica import Replica

DAY_S = 86_400.0


class Proofs:
    """What shows that this node may be here. Mutable: its certificate is signed again while it runs."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.membership = decode(config.membership)
        self.certificate = decode(config.certificate)
        self.invite = decode(config.invite) if config.invite else None
        self.member = self.certificate.key.owner
        self.charters = [decode(config.charter)]
        self.others = [decode(raw) for raw in config.records]

    @property
    def fabric_id(self) -> bytes:
        """The hash of the founding charter."""
        return self.charters[0].order.hash

    @property
    def charter(self) -> Charter:
        """The founding charter."""
        body = read_body(self.charters[0])
        if not isinstance(body, Charter):
            raise TelaError("the first record is no charter", hint="join the fabric again", code="bad_charter")
        return body

    def first(self) -> list[Record]:
        """What is known before anything was heard."""
        invited = [self.invite] if self.invite else []
        return [*self.charters, *invited, self.membership, *self.others, self.certificate]

    def teach(self, replica: Replica) -> None:
        """Put into a replica what is known first, but for what others wrote and this release refuses.

        Raises:
            TelaError: what this node itself shows is refused.
        """
        own = {record.order.hash for record in [*self.charters, self.membership, self.certificate]}
        for record in self.first():
            try:
                replica.apply(record)
            except RecordRefused as refusal:
                if record.order.hash in own:
                    text = f"this release does not take the {record.key.kind} this node shows: {refusal.reason}"
                    hint = "use the release that made it, or join the fabric again: tela join @FILE"
                    raise TelaError(text, hint=hint, code="bad_proof") from refusal

    def shown(self, replica: Replica) -> tuple[Record, ...]:
        """What a greeting carries: membership, certificate, the invite behind them and a word of its acceptance."""
        proofs = [self.membership, self.certificate]
        if self.invite is not None:
            proofs.append(self.invite)
            accepted = [
                entry.record for entry in replica.of_kind("acceptance") if entry.record.key.id == self.invite.key.id
            ]
            proofs += sorted(accepted, key=lambda record: record.order)[-1:]
        return tuple(proofs)

    def is_overtaken(self, replica: Replica) -> bool:
        """Whether another certificate stands above it: of an earlier run, whose clock was ahead."""
        held = replica.get(self.certificate.key)
        return held is not None and held.record.order > self.certificate.order

    def is_due(self) -> bool:
        """Whether the certificate should be signed again: a day of it is gone, or the clock was set since."""
        body = read_body(self.certificate)
        left_s = body.not_after - self._clock.wall() if isinstance(body, Certificate) else 0.0
        return not CERTIFIED_S - DAY_S < left_s <= CERTIFIED_S + LEEWAY_S

    def certify_again(self, replica: Replica) -> Record | None:
        """A certificate that lasts longer, above any that is held; None without the member's key."""
        seed, body = self._config.member_seed, read_body(self.certificate)
        if seed is None or not isinstance(body, Certificate):
            return None
        key, sign = seed_signer(seed)
        wall = self._clock.wall()
        longer = msgspec.structs.replace(body, not_after=wall + CERTIFIED_S)
        held = replica.get(self.certificate.key)  # its number may be of a clock that was ahead
        last = max(self.certificate.order.seq, held.record.order.seq if held is not None else 0)
        self.certificate = certify(longer, key, sign, seq=max(int(wall * 1000), last + 1))
        return self.certificate
