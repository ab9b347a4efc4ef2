"""What to do after an attempt: deliver it, try elsewhere, or give up. Pure.

Only before the first byte reached the client. Generation and embedding are safe to repeat: they change
nothing.
"""

from dataclasses import dataclass
from enum import Enum, auto

MAX_ATTEMPTS = 3
DEADLINE_S = 600.0  # one budget for all attempts of a request; the OpenAI client waits as long


class Failure(Enum):
    """How an attempt ended without an answer that may be delivered."""

    NOT_SENT = auto()  # no link, or the worker refused before the engine saw anything
    LOST = auto()  # the link or the engine died on the way
    ENGINE_5XX = auto()  # the engine answered, with an error of its own
    BUSY = auto()  # this node has no room on the link: not the replica's fault
    ENGINE_BUSY = auto()  # 429 or 503: it has no room
    GARBAGE = auto()  # the worker's answer did not decode
    TIMEOUT = auto()


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left for a request."""

    attempts: int  # made so far
    engine_errors: int  # of these, answered with a 5xx
    elapsed_s: float
    deadline_s: float = DEADLINE_S


def may_retry(failure: Failure, spent: Budget) -> bool:
    """Whether to try another replica.

    An engine's own error is repeated on at most one other node: most are the request's fault and would fail
    on each. A timeout is not repeated: the budget is the client's patience, and it is spent.
    """
    if spent.attempts >= MAX_ATTEMPTS or spent.elapsed_s >= spent.deadline_s:
        return False
    match failure:
        case Failure.NOT_SENT | Failure.LOST | Failure.GARBAGE | Failure.BUSY | Failure.ENGINE_BUSY:
            return True
        case Failure.ENGINE_5XX:
            return spent.engine_errors < 2
        case Failure.TIMEOUT:
            return False


def is_replicas_fault(failure: Failure) -> bool:
    """Whether the replica should rest for a moment; a busy one or one that answered is alive."""
    return failure in {Failure.LOST, Failure.NOT_SENT, Failure.GARBAGE}


def failure_of_status(status: int) -> Failure | None:
    """The failure an engine's status means; None when its answer is the answer.

    A redirect would send the client's prompt elsewhere, and a refused key is ours: neither is the client's business.
    """
    if 300 <= status < 400 or status in {401, 407}:
        return Failure.GARBAGE
    if status in {429, 503}:
        return Failure.ENGINE_BUSY
    return Failure.ENGINE_5XX if status >= 500 else None
