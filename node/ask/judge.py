"""Who may ask this node what. Pure but for the nonces it has seen, which a signed question may use once."""

from typing import NamedTuple

from node.ask.question import Asked
from registry.charter import may
from registry.errors import TelaError
from registry.validity import Standing

FRESH_S = 120.0  # two hosts' clocks differ by so much at most, before their own warnings
MAX_NONCES = 512  # of one key within twice that time; only members' and operators' keys come so far

FLEET = "fleet"


class Whom(NamedTuple):
    """The node that is asked."""

    node: str
    member: bytes  # whose node it is


def may_ask(asked: Asked, asking: str, whom: Whom, standing: Standing, now: float) -> TelaError | None:
    """Why a question is not answered; None when it is.

    Args:
        asked: the question.
        asking: the node at the other end of the link.
        whom: this node.
        standing: who is entitled to what.
        now: unix seconds, fabric time.
    """
    question = asked.question
    if question.node != whom.node:
        return TelaError("the question is for another node", code="not_for_us")
    if abs(question.at - now) > FRESH_S:
        return TelaError(
            f"the question is {abs(question.at - now):.0f} s old or early",
            hint="ask again; if that does not help, a clock is wrong",
            code="stale",
        )
    if not any(node == asking for node, _ in standing.grants):
        return TelaError("the node that asks is no member of this fabric", code="not_admitted")
    if question.q == "log":
        return _may_read_log(asked.signer, whom, standing)
    if asked.signer and asked.signer not in standing.admissions and not _is_operator(asked.signer, standing):
        return TelaError("the key that signed the question is no member's and no operator's", code="not_admitted")
    return None


def _may_read_log(signer: bytes, whom: Whom, standing: Standing) -> TelaError | None:
    if not signer:
        return TelaError("a log is shown to persons only: the question must be signed", code="unsigned")
    if signer == whom.member and signer in standing.admissions:
        return None
    grant = standing.grants.get((whom.node, whom.member))
    provider = grant.provider if grant is not None else ""
    if standing.in_force is not None and may(standing.in_force.current.charter, signer, FLEET, provider=provider):
        return None
    return TelaError(
        "this log is for the owner of the node, and for operators who may fleet here",
        hint="tela whoami shows what your keys may",
        code="forbidden",
    )


def _is_operator(key: bytes, standing: Standing) -> bool:
    return standing.in_force is not None and any(
        operator.key == key for operator in standing.in_force.current.charter.operators
    )


class Nonces:
    """The nonces of signed questions that are still fresh. Mutable."""

    def __init__(self) -> None:
        self._seen: dict[bytes, dict[bytes, float]] = {}  # by signer, oldest first

    def use(self, asked: Asked, now: float) -> TelaError | None:
        """Note the nonce of a question that may be asked; why not, when it was used before."""
        seen = self._seen.setdefault(asked.signer, {})
        for nonce in [nonce for nonce, at in seen.items() if at < now - 2 * FRESH_S]:
            del seen[nonce]
        if asked.question.nonce in seen:
            return TelaError("this question was answered before", hint="ask anew", code="replayed")
        if len(seen) >= MAX_NONCES:
            return TelaError("too many questions", hint="wait some minutes", code="busy")
        seen[asked.question.nonce] = now
        return None
