"""The numbers of a measurement: when requests are due, what each was, what they come to.

Pure: it measures nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final

# With fewer, the 99th percentile is decided by fifty requests or less: one garbage collection.
P99_NEEDS: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request. Times are seconds since the run began; the ones that never came are None."""

    scheduled_s: float  # when it was to be sent; latency counts from here
    sent_s: float
    end_s: float  # the end of the answer, or when it failed
    first_s: float | None = None  # the first byte of the body, or the first event of a stream
    status: int = 0  # 0: no answer came
    bytes: int = 0  # of the body
    events: int = 0  # `data:` lines of a stream, without [DONE]
    is_complete: bool = False  # the whole body by its framing; of a stream, [DONE] too
    error: str | None = None  # one of the reasons in load.py; an HTTP status alone is none

    @property
    def is_success(self) -> bool:
        """Whether the client got all it asked for."""
        return self.is_complete and self.error is None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a set of values lies, in the unit of the values."""

    count: int
    p50: float
    p90: float
    p99: float | None  # None: too few values to say, P99_NEEDS
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one load came to. Spreads are of the requests that succeeded; None when none did."""

    asked: int
    succeeded: int
    failures: dict[str, int]  # by error, or by status
    rate_per_s: float  # successes that ended within the run
    latency_ms: Spread | None  # from the scheduled time to the end
    service_ms: Spread | None  # from the send to the end
    first_ms: Spread | None  # from the scheduled time; of a stream, the TTFT
    late_ms: Spread | None  # of sends behind their schedule: beyond a millisecond doubt the generator
    bytes: int
    events: int
    generator_cpu_s: float
    latencies_ms: list[float]  # empty unless asked for
    firsts_ms: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What one side costs more than the other, from rounds measured in pairs."""

    median: float  # of the differences, one per pair
    least: float
    most: float
    pooled: float  # the difference of the figures over all rounds


def arrivals(rate_per_s: float, seconds: float, rng: Random | None) -> list[float]:
    """Return when requests are due, in seconds: a Poisson process, or without `rng` an even pace."""
    if rng is None:
        return [number / rate_per_s for number in range(round(rate_per_s * seconds))]
    due: list[float] = []
    at_s = rng.expovariate(rate_per_s)
    while at_s < seconds:
        due.append(at_s)
        at_s += rng.expovariate(rate_per_s)
    return due


def summarise(
    samples: Sequence[Sample], *, seconds: float, generator_cpu_s: float = 0.0, with_values: bool = False
) -> Summary:
    """Return what a run of `seconds` came to."""
    good = [sample for sample in samples if sample.is_success]
    bad = (sample for sample in samples if not sample.is_success)
    latencies_ms = [1e3 * (sample.end_s - sample.scheduled_s) for sample in good]
    firsts_ms = [1e3 * (sample.first_s - sample.scheduled_s) for sample in good if sample.first_s is not None]
    return Summary(
        asked=len(samples),
        succeeded=len(good),
        failures=dict(Counter(sample.error or f"HTTP {sample.status}" for sample in bad)),
        rate_per_s=sum(sample.end_s <= seconds for sample in good) / seconds if seconds else 0.0,
        latency_ms=spread(latencies_ms),
        service_ms=spread([1e3 * (sample.end_s - sample.sent_s) for sample in good]),
        first_ms=spread(firsts_ms),
        late_ms=spread([1e3 * (sample.sent_s - sample.scheduled_s) for sample in samples]),
        bytes=sum(sample.bytes for sample in samples),
        events=sum(sample.events for sample in samples),
        generator_cpu_s=generator_cpu_s,
        latencies_ms=latencies_ms if with_values else [],
        firsts_ms=firsts_ms if with_values else [],
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile: the least value with `percent` % of them at or below it.

    It is always one of the values, never between two. `percent` is from 1 to 100.

    Raises:
        ValueError: there are no values, or `percent` is out of range.
    """
    return _nearest_rank(sorted(values), percent)


def spread(values: Sequence[float]) -> Spread | None:
    """Return how values lie; None when there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        p50=_nearest_rank(ordered, 50),
        p90=_nearest_rank(ordered, 90),
        p99=_nearest_rank(ordered, 99) if len(ordered) >= P99_NEEDS else None,
        worst=ordered[-1],
    )


def paired_difference(direct: Sequence[float], through: Sequence[float]) -> float:
    """Return the median of `through - direct` over pairs taken close together.

    Drift of the machine moves both sides of a pair and so leaves the difference alone.

    Raises:
        ValueError: there are no pairs, or one side has more values than the other.
    """
    return median(_differences(direct, through))


def added(
    direct: Sequence[float],
    through: Sequence[float],
    *,
    pooled_direct: float,
    pooled_through: float,
) -> Added:
    """Return what `through` costs more, from one value per round and the values over all rounds.

    Raises:
        ValueError: there are no pairs, or one side has more values than the other.
    """
    differences = _differences(direct, through)
    return Added(
        median=median(differences),
        least=min(differences),
        most=max(differences),
        pooled=pooled_through - pooled_direct,
    )


def ratio(through: float, direct: float) -> float | None:
    """Return `through / direct`; None when direct is nothing to compare with."""
    return through / direct if direct else None


def _nearest_rank(ordered: Sequence[float], percent: int) -> float:
    if not ordered or not 1 <= percent <= 100:
        raise ValueError("a percentile needs values and a percent from 1 to 100")
    return ordered[(percent * len(ordered) + 99) // 100 - 1]  # the ceiling, in whole numbers


def _differences(direct: Sequence[float], through: Sequence[float]) -> list[float]:
    if not direct:
        raise ValueError("no pairs")
    return [after - before for before, after in zip(direct, through, strict=True)]
