"""Measuring two targets in interleaved rounds: what the second costs more than the first.

The load comes from a child process each round; the processor time of the processes under measurement is
read from /proc around it. Nothing here starts or ends what is measured.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import IO, Final, Literal

import msgspec

from registry.errors import TelaError
from tests.bench.load import Load, Order, Target
from tests.bench.stats import Added, Spread, Summary, added, ratio, spread

Side = Literal["direct", "through"]
Roles = Mapping[str, int | Sequence[int]]  # the processes of each role

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One load of one side."""

    side: Side
    summary: Summary  # without the single values
    cpu_s: dict[str, float]  # of each role while the load ran, to the 10 ms
    cpu_ms_per_request: dict[str, float]
    rss_mb: dict[str, float]  # of each role when the load ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All rounds of one side together."""

    asked: int
    succeeded: int
    failures: dict[str, int]
    rate_per_s: float  # the median round
    latency_ms: Spread | None
    first_ms: Spread | None
    cpu_ms_per_request: dict[str, float]
    rss_mb: dict[str, float]  # the most of any round
    generator_cpu_ms_per_request: float
    late_p90_ms: float  # of sends behind schedule, the worst round: the generator's own share


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two targets under the same load. What was added is in milliseconds; None without a success."""

    load: Load
    is_stream: bool
    rounds: list[Round]  # in the order they ran
    direct: Figures
    through: Figures
    added_p50_ms: Added | None
    added_p90_ms: Added | None
    added_p99_ms: float | None  # pooled; None: too few requests to say
    added_first_p50_ms: Added | None
    rate_ratio: float | None  # through to direct, the median of the pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A round with its single values, which are not kept once they are pooled."""

    round: Round
    latencies_ms: list[float]
    firsts_ms: list[float]


def pairs(direct: Target, through: Target, *, rounds: int, load: Load, roles: Roles) -> Paired:
    """Load both targets `rounds` times each, in turns: direct, through, through, direct, ...

    Turning the order round cancels what drifts. `roles` names the processes whose cost is of interest,
    like {"ingress": 17, "worker": [18, 19], "engine": 20}.

    Raises:
        TelaError: a process of `roles` is gone, or the load generator failed.
    """
    targets: dict[Side, Target] = {"direct": direct, "through": through}
    in_turns: tuple[Side, ...] = ("direct", "through", "through", "direct")
    processes = {role: [pids] if isinstance(pids, int) else list(pids) for role, pids in roles.items()}
    taken = [
        _take(side, targets[side], load, processes)
        for side in (in_turns * rounds)[: 2 * rounds]  # of four, the first two or all make pairs
    ]
    return _paired(taken, load, is_stream=direct.stream)


def _take(side: Side, target: Target, load: Load, processes: Mapping[str, list[int]]) -> _Taken:
    """Run one round in a child process."""
    order = Order(target=target, load=load, with_values=True, is_gated=True)
    text = msgspec.json.encode(order).decode()
    command = [sys.executable, "-P", "-m", "tests.bench.load", "--json", text]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            _line(child.stdout)  # it is warm, and waits
            before_s = _of_each(_cpu_s, processes)
            child.stdin.write(b"\n")
            child.stdin.flush()
            _line(child.stdout)  # it is done
            after_s = _of_each(_cpu_s, processes)
            rss_mb = _of_each(_rss_mb, processes)
            summary = msgspec.json.decode(_line(child.stdout), type=Summary)
        except BaseException:
            child.kill()
            raise
    cpu_s = {role: after_s[role] - before_s[role] for role in processes}
    return _Taken(
        round=Round(
            side=side,
            summary=replace(summary, latencies_ms=[], firsts_ms=[]),
            cpu_s=cpu_s,
            cpu_ms_per_request=_per_request(cpu_s, summary.asked),
            rss_mb=rss_mb,
        ),
        latencies_ms=summary.latencies_ms,
        firsts_ms=summary.firsts_ms,
    )


def _line(stdout: IO[bytes]) -> bytes:
    line = stdout.readline()
    if not line:
        raise TelaError("the load generator failed", hint="its own words are on stderr", code="bench_load")
    return line


def _of_each(measure: Callable[[int], float], processes: Mapping[str, list[int]]) -> dict[str, float]:
    """Return a sum over the processes of each role."""
    try:
        return {role: sum(map(measure, pids)) for role, pids in processes.items()}
    except (OSError, LookupError) as error:
        gone = "a process under measurement is gone"
        raise TelaError(gone, hint="see why it ended", code="bench_process") from error


def _cpu_s(pid: int) -> float:
    """Return the user and system time of a process, all threads, without its children."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S  # utime and stime, proc(5)


def _rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB of 10^6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next((line.split()[1] for line in lines if line.startswith("VmRSS:")), None)
    if kib is None:  # a process that has ended and was not waited for
        raise ProcessLookupError(pid)
    return int(kib) * 1024 / 1e6


def _per_request(cpu_s: Mapping[str, float], asked: int) -> dict[str, float]:
    return {role: 1e3 * value / asked for role, value in cpu_s.items()} if asked else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spreads:
    """One spread of each round and of all rounds, for both sides."""

    direct: list[Spread | None]
    through: list[Spread | None]
    pooled: tuple[Spread | None, Spread | None]

    @classmethod
    def of(
        cls,
        direct: Sequence[_Taken],
        through: Sequence[_Taken],
        of_direct: Figures,
        of_through: Figures,
        which: Callable[[Summary | Figures], Spread | None],
    ) -> "_Spreads":
        return cls(
            direct=[which(each.round.summary) for each in direct],
            through=[which(each.round.summary) for each in through],
            pooled=(which(of_direct), which(of_through)),
        )

    def added(self, figure: Callable[[Spread], float]) -> Added | None:
        """Return what one figure grew by; None when a round had no success."""
        spreads = [*self.direct, *self.through, *self.pooled]
        values = [figure(each) for each in spreads if each is not None]
        if len(values) < len(spreads):
            return None
        middle = len(self.direct)
        return added(values[:middle], values[middle:-2], pooled_direct=values[-2], pooled_through=values[-1])


def _paired(taken: Sequence[_Taken], load: Load, *, is_stream: bool) -> Paired:
    """Put the rounds together: the n-th direct one and the n-th through one stood side by side."""
    direct = [each for each in taken if each.round.side == "direct"]
    through = [each for each in taken if each.round.side == "through"]
    of_direct, of_through = _figures(direct), _figures(through)
    ratios = [ratio(_rate(after), _rate(before)) for before, after in zip(direct, through, strict=True)]
    known = [value for value in ratios if value is not None]
    latencies = _Spreads.of(direct, through, of_direct, of_through, lambda each: each.latency_ms)
    firsts = _Spreads.of(direct, through, of_direct, of_through, lambda each: each.first_ms)
    p99s = [each.p99 for each in latencies.pooled if each is not None and each.p99 is not None]
    return Paired(
        load=load,
        is_stream=is_stream,
        rounds=[each.round for each in taken],
        direct=of_direct,
        through=of_through,
        added_p50_ms=latencies.added(lambda each: each.p50),
        added_p90_ms=latencies.added(lambda each: each.p90),
        added_p99_ms=p99s[1] - p99s[0] if len(p99s) == 2 else None,
        added_first_p50_ms=firsts.added(lambda each: each.p50),
        rate_ratio=median(known) if known else None,
    )


def _rate(taken: _Taken) -> float:
    return taken.round.summary.rate_per_s


def _figures(taken: Sequence[_Taken]) -> Figures:
    """Pool the rounds of one side."""
    rounds = [each.round for each in taken]
    asked = sum(each.summary.asked for each in rounds)
    failures: Counter[str] = Counter()
    for each in rounds:
        failures.update(each.summary.failures)
    cpu_s = {role: sum(each.cpu_s[role] for each in rounds) for role in rounds[0].cpu_s}
    generator_s = sum(each.summary.generator_cpu_s for each in rounds)
    return Figures(
        asked=asked,
        succeeded=sum(each.summary.succeeded for each in rounds),
        failures=dict(failures),
        rate_per_s=median(map(_rate, taken)),
        latency_ms=spread([value for each in taken for value in each.latencies_ms]),
        first_ms=spread([value for each in taken for value in each.firsts_ms]),
        cpu_ms_per_request=_per_request(cpu_s, asked),
        rss_mb={role: max(each.rss_mb[role] for each in rounds) for role in rounds[0].rss_mb},
        generator_cpu_ms_per_request=1e3 * generator_s / asked if asked else 0.0,
        late_p90_ms=max(each.summary.late_ms.p90 if each.summary.late_ms else 0.0 for each in rounds),
    )
