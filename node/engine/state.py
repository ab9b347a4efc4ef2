"""What is true of an engine slot: the value a supervisor publishes at each change."""

from dataclasses import dataclass

from registry.kinds import Cause, Offer
from registry.lifecycle import Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What is true of the slot's current run."""

    slot: str
    run: int  # 0: there was none yet; never published
    rank: Rank = Rank.JOIN
    offers: tuple[Offer, ...] = ()  # with the families that gave a result, under their aliases
    phase: str = ""  # with its hint, when there is one
    cause: Cause | None = None  # None: it is neither down nor gone
    draining: bool = False
    pid: int | None = None  # None: no process of ours
