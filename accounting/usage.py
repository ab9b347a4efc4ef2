"""The usage row: what one request used, read from what its engine said.

Pure. A number the engine did not give is None, never 0. Nothing of a prompt or an answer is in a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "client_disconnect", "upstream_error", "truncated", "refused", "recovered"]
TokensSource = Literal["engine", "none"]

# The status of a request whose client left first (nginx's number), and of one nobody saw the end of.
STATUS_CLIENT_CLOSED = 499
STATUS_UNKNOWN = 0

# No context window comes near this; above it the engine is talking nonsense, and a sum over a
# billion rows still fits the store's 64-bit integers.
MAX_TOKENS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One request, whatever became of it. Times are unix seconds of fabric time; counts are >= 0."""

    rid: str
    ts_start: float
    # None = no byte of an answer reached the client.
    ts_first: float | None
    ts_end: float
    key_id: str
    model: str
    # What was called: chat, completions, embeddings, ...
    family: str
    node: str
    replica: str
    # How many workers were tried.
    attempts: int
    stream: bool
    # HTTP status, or one of the two above.
    status: int
    outcome: Outcome
    # Of the three counts None = the engine did not say. Cached tokens are among the prompt's.
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    tokens_source: TokensSource
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The counts of one answer; None = the engine did not say."""

    prompt: int | None = None
    # Those of the prompt's that were read from a prefix cache.
    cached: int | None = None
    completion: int | None = None

    @property
    def source(self) -> TokensSource:
        """Say where the counts come from: 'none' when there is no count at all."""
        return "none" if self.prompt is None and self.completion is None else "engine"


def tokens_from_usage(usage: object) -> Tokens:
    """Read the decoded `usage` object of an answer, in its chat, completions or embeddings shape.

    Never raises: what is missing, null or not a plain count (a bool, a text, a fraction, a negative
    or absurd number) is None. A total alone, as some embedders and rerankers send it, is all prompt.
    """
    if not isinstance(usage, Mapping):
        return Tokens()
    prompt = _count(usage.get("prompt_tokens"))
    if "prompt_tokens" not in usage and "completion_tokens" not in usage:
        prompt = _count(usage.get("total_tokens"))
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    if prompt is None or (cached is not None and cached > prompt):
        cached = None
    return Tokens(prompt=prompt, cached=cached, completion=_count(usage.get("completion_tokens")))


def better(a: UsageRow, b: UsageRow) -> UsageRow:
    """Return which of two rows of one request to keep: a join, so order and repetition do not matter.

    The engine's counts win over none, then the larger sum of tokens, then a row somebody saw the end
    of over a recovered one, then the lexicographically larger row. The store's upsert holds the same
    order in SQL.
    """
    return a if _rank(a) >= _rank(b) else b


def _rank(row: UsageRow) -> tuple[object, ...]:
    def known(value: float | None) -> float:
        return -1 if value is None else value

    return (
        row.tokens_source == "engine",
        (row.prompt_tokens or 0) + (row.completion_tokens or 0),
        row.outcome != "recovered",
        row.ts_start,
        known(row.ts_first),
        row.ts_end,
        row.key_id,
        row.model,
        row.family,
        row.node,
        row.replica,
        row.attempts,
        row.stream,
        row.status,
        row.outcome,
        known(row.prompt_tokens),
        known(row.cached_tokens),
        known(row.completion_tokens),
        row.bytes_in,
        row.bytes_out,
    )


def _count(value: object) -> int | None:
    # `type`, not isinstance: True is an int.
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None
