"""Writing a node's own records: one run, sequences that only count upward."""

from registry.ids import key_id
from registry.kinds import Body, audience_of, encode_body, kind_of
from registry.record import Draft, Record, Sign, seal


class Author:
    """Signs records with one key in one run. Mutable: it remembers the last sequence of each register.

    Args:
        key: the public key, owner of everything written.
        sign: signs bytes with it.
        run: this start's number; greater than every earlier one of this key, so sequences may begin again.
    """

    def __init__(self, key: bytes, sign: Sign, run: int) -> None:
        self.key = key
        self.id = key_id(key)
        self.run = run
        self._sign = sign
        self._seqs: dict[tuple[str, str], int] = {}

    def write(self, body: Body, subject: str, *, rank: int = 0, run: int | None = None) -> Record:
        """Sign a body into its register, above everything this author wrote there in this run.

        Args:
            body: what to say.
            subject: the record's id.
            rank: its lifecycle rank, 0 for kinds without one.
            run: a run of its own where the register counts other runs (an engine's), else the author's.
        """
        kind = kind_of(body)
        seq = self._seqs.get((kind, subject), 0) + 1
        self._seqs[kind, subject] = seq
        order = self.run if run is None else run
        draft = Draft(kind, subject, encode_body(body), audience_of(body), run=order, rank=rank, seq=seq)
        return seal(draft, self.key, self._sign)


def next_run(persisted: int, known: int, unix_ms: int) -> int:
    """The number of a new run: above the last one written here, any the fabric holds, and the clock.

    The clock is in it so that a node whose disk was rolled back still moves forward.
    """
    return max(persisted, known, unix_ms) + 1
