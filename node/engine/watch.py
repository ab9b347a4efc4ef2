"""One run of an engine as it is seen from outside: until it is ready, while it serves, until it is down.

It asks and reports. What is done about a run that is down is the supervisor's.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

import aiohttp
import msgspec

from node.engine.families import FAMILIES
from node.engine.fetch import Target
from node.engine.output import cap_log
from node.engine.readiness import Verdict, advice_on, judge, probe, wants_key
from node.engine.spec import EngineSpec
from node.engine.trial import Trial, pause_s, try_families
from node.engine.waiting import Reason, Waiting
from registry.kinds import Cause, Offer
from registry.lifecycle import Rank

FAILURES_TO_DOWN = 3
TRIES = 3  # of a family that neither works nor is refused
_FIRST_RESULT = "loading, waiting for a first result"


class Fall(NamedTuple):
    """The end of a run that nobody asked for."""

    cause: Cause
    phase: str


class Say(Protocol):
    """Publishes changes of the run's state."""

    def __call__(self, **changes: object) -> None:
        """Take fields of `EngineState` by name."""


class Watch:
    """Looks at one run. Mutable: what it saw last.

    Args:
        spec: what it should be.
        target: where it is.
        session: the client to the engine; no proxies, no redirects.
        say: told of every change of phase, offers and rank.
        now: monotonic seconds.
    """

    def __init__(
        self,
        spec: EngineSpec,
        target: Target,
        *,
        session: aiohttp.ClientSession,
        say: Say,
        now: Callable[[], float],
    ) -> None:
        self.serving_since: float | None = None  # None: it has not served
        self._spec = spec
        self._aliases = spec.named
        self._target = target
        self._session = session
        self._say = say
        self._now = now
        self._waiting = Waiting(since=now())
        self._verdict = Verdict(ready=False)
        self._trial = Trial()  # the one that made it ready
        self._families: tuple[str, ...] = FAMILIES  # that are known to work; before the first trial: any
        self._created: dict[str, int] = {}  # as first listed: vLLM says of each model that it was made just now
        self._reported = asyncio.Event()  # the worker saw a failure that no probe has looked into
        self._relisted = asyncio.Event()  # it lists other models than those whose families are known
        self._log_looked_at = now()

    @property
    def names(self) -> Mapping[str, str]:
        """The engine's own name of each model that is offered by another."""
        return self._verdict.names

    def report(self) -> None:
        """Somebody saw it fail: the next probe comes now instead of at the next tick."""
        self._reported.set()

    async def run(self) -> Fall:
        """Watch until it is down."""
        verdict = await self._until_ready()
        self.serving_since = self._now()
        self._offer(verdict, rank=Rank.SERVING)
        self._relisted.clear()  # its families are being learned
        async with asyncio.TaskGroup() as tasks:
            learning = tasks.create_task(self._learn())
            fall = await self._until_down()
            learning.cancel()
        return fall

    async def _until_ready(self) -> Verdict:
        failures = 0
        while True:
            verdict = await self._look()
            pause = self._spec.probe_s
            if verdict.ready:
                if not failures:
                    self._wait(_FIRST_RESULT)
                self._trial = await self._try(verdict, FAMILIES, stop_at_first=True)
                if self._trial.families:
                    self._families = self._trial.families
                    return verdict
                failures += 1
                pause = max(pause, pause_s(failures))
                advice = self._spec.key_advice
                self._wait(wants_key(advice) if self._trial.wants_key else self._trial.phase)
            else:
                failures = 0
                self._wait(verdict.phase)
            await self._mind_log()
            await asyncio.sleep(pause)

    def _wait(self, why: str) -> None:
        advice = advice_on(why, is_ours=self._spec.command is not None)
        self._waiting, phase = self._waiting.seen(Reason(why, advice), self._now())
        if phase is not None:
            self._say(phase=phase)

    async def _until_down(self) -> Fall:
        failures = 0
        while True:
            was_reported = await self._next_tick()
            verdict = await self._look()
            await self._mind_log()
            if verdict.ready:
                failures = 0
                self._offer(verdict)
                continue
            if verdict.is_gone:
                return Fall(Cause(reason="model-gone"), verdict.phase)
            failures += 1
            is_lost = was_reported and self._spec.url is not None  # two witnesses, and no exit to wait for
            if is_lost or failures >= FAILURES_TO_DOWN:
                return Fall(Cause(reason="unhealthy"), verdict.phase)
            self._say(phase=f"{failures} of {FAILURES_TO_DOWN} probes failed")

    async def _next_tick(self) -> bool:
        """Wait for the next probe; return whether a report is why it comes now."""
        spacing_s = min(self._spec.probe_s, self._spec.watch_s)
        await asyncio.sleep(spacing_s)  # a storm of reports is one probe
        with suppress(TimeoutError):
            async with asyncio.timeout(self._spec.watch_s - spacing_s):
                await self._reported.wait()
        was_reported = self._reported.is_set()
        self._reported.clear()
        return was_reported

    async def _look(self) -> Verdict:
        seen = await probe(self._session, self._target, timeout_s=self._spec.probe_timeout_s)
        return judge(
            seen,
            self._spec.model,
            has_served=self.serving_since is not None,
            aliases=self._aliases,
            key_advice=self._spec.key_advice,
        )

    # --- what it offers

    def _offer(self, verdict: Verdict, **changes: object) -> None:
        if verdict.models != self._verdict.models:
            self._relisted.set()
        self._verdict = verdict
        self._say(offers=tuple(map(self._known, verdict.offers)), phase=verdict.phase, **changes)

    def _known(self, offer: Offer) -> Offer:
        created = self._created.setdefault(offer.id, offer.created)
        return msgspec.structs.replace(offer, families=self._families, created=created)

    async def _learn(self) -> None:
        """Find the families beyond the first, and all of them again when the list changes.

        What does not answer now may be busy: it is no reason to think less of an engine that serves.
        """
        known = self._trial.families
        tried = {refusal.partition(" ")[0] for refusal in self._trial.refusals} - {*self._trial.unsettled}
        untried = tuple(family for family in FAMILIES if family not in tried and family not in known)
        while True:
            await self._settle(known, untried)
            await self._relisted.wait()
            self._relisted.clear()
            known, untried = (), FAMILIES

    async def _settle(self, known: tuple[str, ...], untried: tuple[str, ...]) -> None:
        for _ in range(TRIES):
            trial = await self._try(self._verdict, untried)
            known = (*known, *trial.families)
            untried = trial.unsettled
            shown = (*known, *self._families) if untried else known
            self._show_families(tuple(family for family in FAMILIES if family in shown))
            if not untried:
                return
            await asyncio.sleep(self._spec.trial_s)

    def _show_families(self, families: tuple[str, ...]) -> None:
        if families and families != self._families:
            self._families = families
            self._offer(self._verdict)

    async def _try(self, verdict: Verdict, families: tuple[str, ...], *, stop_at_first: bool = False) -> Trial:
        return await try_families(
            self._session,
            self._target,
            verdict.models[0],
            families,
            timeout_s=self._spec.trial_s,
            stop_at_first=stop_at_first,
        )

    async def _mind_log(self) -> None:
        if self._spec.command is None or self._now() - self._log_looked_at < self._spec.watch_s:
            return
        self._log_looked_at = self._now()
        await asyncio.to_thread(cap_log, self._spec.log)
