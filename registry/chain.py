"""The one filter chain: who may be routed to, and for everybody else the first filter that said no.

Routing, `/v1/models` and `why` all sift through it, so they cannot disagree.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Filter(NamedTuple, Generic[T]):
    """A named test: returns why a candidate is out, or None."""

    name: str
    objection: Callable[[T], str | None]


class Excluded(NamedTuple, Generic[T]):
    """A candidate that is out, the filter that stopped it and its reason."""

    candidate: T
    filter: str
    reason: str


class Sifted(NamedTuple, Generic[T]):
    """What a chain let through and what it did not."""

    kept: tuple[T, ...]
    excluded: tuple[Excluded[T], ...]

    def counts(self) -> dict[str, int]:
        """How many candidates each filter stopped."""
        return dict(Counter(out.filter for out in self.excluded))


def sift(candidates: Iterable[T], filters: Iterable[Filter[T]]) -> Sifted[T]:
    """Run candidates through filters in order; the first objection excludes."""
    chain = tuple(filters)
    kept: list[T] = []
    excluded: list[Excluded[T]] = []
    for candidate in candidates:
        for name, objection in chain:
            reason = objection(candidate)
            if reason is not None:
                excluded.append(Excluded(candidate, name, reason))
                break
        else:
            kept.append(candidate)
    return Sifted(tuple(kept), tuple(excluded))
