"""Merge: a register holds the greatest record it has seen, so order and repetition of arrival cannot matter.

A join-semilattice of last-writer registers (Shapiro et al., "A comprehensive study of convergent and
commutative replicated data types", 2011, §3.2.1), ordered by (run, rank, seq, hash) instead of a timestamp: a
new run supersedes, within a run the lifecycle only advances, so an old run or a dead one can never come back.
"""

from registry.record import Record


def supersedes(new: Record, held: Record | None) -> bool:
    """Whether `new` replaces what the register holds (None: it is empty)."""
    return held is None or new.order > held.order


def join(a: Record | None, b: Record | None) -> Record | None:
    """The least upper bound of two register states; None is the empty register."""
    if b is None or (a is not None and a.order >= b.order):
        return a
    return b
