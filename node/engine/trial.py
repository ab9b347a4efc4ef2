"""One real result of an engine: the smallest question of each family, asked.

An engine that lists a model may still be unable to run it, and none says which endpoints a model serves. Only what
answered is offered.
"""

from collections.abc import Iterable
from typing import NamedTuple

import aiohttp

from node.engine.families import FAMILIES, PATHS, TRIAL_ID, is_result, smallest_question
from node.engine.fetch import Answer, Target, fetch

MAX_RESULT_B = 1 << 20  # a vector of 16,000 numbers in JSON is a third of it
_FIRST_S, _LONGEST_S = 1.0, 30.0
_LATER = frozenset({"408", "409", "425", "429", "silent", "reset", "refused"})  # it may answer another time


class Trial(NamedTuple):
    """What came of trying families."""

    families: tuple[str, ...] = ()  # that gave a result
    refusals: tuple[str, ...] = ()  # of the others, as "chat 500"
    unsettled: tuple[str, ...] = ()  # that may give one another time
    wants_key: bool = False

    @property
    def phase(self) -> str:
        """What is to be said when nothing gave a result."""
        return f"loading, no result: {', '.join(self.refusals)}"


async def try_families(
    session: aiohttp.ClientSession,
    target: Target,
    model: str,
    families: Iterable[str] = FAMILIES,
    *,
    timeout_s: float,
    stop_at_first: bool = False,
) -> Trial:
    """Ask an engine for one token, or one vector, of each family.

    Args:
        session: without environment proxies.
        target: the engine.
        model: by its own name.
        families: which, in this order.
        timeout_s: for each; one that is silent so long ends the trial.
        stop_at_first: one result is enough.
    """
    trial = Trial()
    left = list(families)
    while left:
        family = left.pop(0)
        answer = await fetch(
            session,
            target,
            PATHS[family],
            timeout_s=timeout_s,
            limit_b=MAX_RESULT_B,
            question=smallest_question(family, model),
            request_id=TRIAL_ID,
        )
        trial = _after(trial, family, answer)
        if answer.status == "silent":
            return trial._replace(unsettled=(*trial.unsettled, *left))
        if stop_at_first and trial.families:
            break
    return trial


def _after(trial: Trial, family: str, answer: Answer) -> Trial:
    if answer.status == "200" and is_result(family, answer.body):
        return trial._replace(families=(*trial.families, family))
    status = "garbled" if answer.status == "200" else answer.status
    may_later = status in _LATER or (len(status) == 3 and status.startswith("5") and status != "501")
    return trial._replace(
        refusals=(*trial.refusals, f"{family} {status}"),
        unsettled=(*trial.unsettled, family) if may_later else trial.unsettled,
        wants_key=trial.wants_key or answer.wants_key,
    )


def pause_s(failures: int) -> float:
    """How long to wait before an engine that gave no result is asked again.

    Args:
        failures: in a row, at least one.
    """
    return min(_LONGEST_S, _FIRST_S * 2.0 ** min(failures - 1, 10))
