"""What the demo engine counts, in the names and the text format of vLLM's /metrics.

Counting is by method call and never waits; the caller measures the seconds.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from node.engine.demo_text import escape

# Upper bounds in seconds, a few of vLLM's.
TTFT_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.25, 0.5, 1.0, 5.0, 10.0)
E2E_BOUNDS_S: Final = (0.005, 0.05, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """A cumulative histogram; observe() changes it."""

    __slots__ = ("bounds", "buckets", "total_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)  # not cumulative; the last is beyond every bound
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one measurement."""
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds

    def lines(self, name: str, label: str) -> Iterator[str]:
        """Yield the samples as Prometheus text."""
        count = 0
        for bound, size in zip((*map(str, self.bounds), "+Inf"), self.buckets, strict=True):
            count += size
            yield f'{name}_bucket{{le="{bound}",{label}}} {count}'
        yield f"{name}_sum{{{label}}} {self.total_s!r}"
        yield f"{name}_count{{{label}}} {count}"


class ModelMetrics:
    """The counts of one model; whoever generates changes them through the methods."""

    __slots__ = (
        "cancelled",
        "e2e",
        "finished",
        "generation_tokens",
        "held_tokens",
        "prompt_tokens",
        "running",
        "ttft",
    )

    def __init__(self) -> None:
        self.running = 0
        self.held_tokens = 0  # the prompts and outputs of running requests: the KV cache in use
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.cancelled = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0}
        self.ttft = Histogram(TTFT_BOUNDS_S)
        self.e2e = Histogram(E2E_BOUNDS_S)

    def admit(self, prompt_tokens: int) -> None:
        """Count a request that begins."""
        self.running += 1
        self.held_tokens += prompt_tokens
        self.prompt_tokens += prompt_tokens

    def generated(self, tokens: int) -> None:
        """Count tokens of a running request."""
        self.generation_tokens += tokens
        self.held_tokens += tokens

    def release(self, held_tokens: int) -> None:
        """Take a request off the running ones, however it ended, with all its tokens."""
        self.running -= 1
        self.held_tokens -= held_tokens

    def succeeded(self, reasons: Iterable[str], seconds: float) -> None:
        """Count an answer that was sent whole, with the finish reason of each choice."""
        for reason in reasons:
            self.finished[reason] += 1
        self.e2e.observe(seconds)

    def aborted(self) -> None:
        """Count an answer whose client went away."""
        self.cancelled += 1
        self.finished["abort"] += 1


def render(models: Mapping[str, ModelMetrics], capacity_tokens: int) -> bytes:
    """Return the text of /metrics; the KV usage is measured against `capacity_tokens`."""
    labelled = [(f'engine="0",model_name="{escape(m).decode()}"', c) for m, c in models.items()]
    lines: list[str] = []
    for name, kind, samples in _families(labelled, capacity_tokens):
        lines += (f"# TYPE {name} {kind}", *samples)
    return ("\n".join(lines) + "\n").encode()


def _families(labelled: list[tuple[str, ModelMetrics]], capacity_tokens: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, type and samples of each metric."""

    def plain(name: str, kind: str, values: Iterable[float]) -> tuple[str, str, list[str]]:
        pairs = zip(labelled, values, strict=True)
        return name, kind, [f"{name}{{{label}}} {float(value)}" for (label, _), value in pairs]

    counts = [c for _, c in labelled]
    usage = [min(1.0, c.held_tokens / capacity_tokens) for c in counts]
    yield plain("vllm:num_requests_running", "gauge", [c.running for c in counts])
    yield plain("vllm:num_requests_waiting", "gauge", [0 for _ in counts])  # nothing ever queues
    yield plain("vllm:kv_cache_usage_perc", "gauge", usage)
    yield plain("vllm:prompt_tokens_total", "counter", [c.prompt_tokens for c in counts])
    yield plain("vllm:generation_tokens_total", "counter", [c.generation_tokens for c in counts])
    yield plain("tela_demo:cancelled_total", "counter", [c.cancelled for c in counts])
    name = "vllm:request_success_total"
    reasons = [
        f'{name}{{{label},finished_reason="{reason}"}} {float(count)}'
        for label, c in labelled
        for reason, count in c.finished.items()
    ]
    yield name, "counter", reasons
    for name, histograms in (
        ("vllm:time_to_first_token_seconds", [(label, c.ttft) for label, c in labelled]),
        ("vllm:e2e_request_latency_seconds", [(label, c.e2e) for label, c in labelled]),
    ):
        yield name, "histogram", [line for label, h in histograms for line in h.lines(name, label)]
