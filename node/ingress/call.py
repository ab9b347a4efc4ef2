"""One request on its way: what was asked, how far it came, and the usage row it ends as."""

from dataclasses import dataclass, field

from accounting.keys import KeyEntry
from accounting.usage import STATUS_CLIENT_CLOSED, Outcome, Tokens, UsageRow
from gossip.stream import Stream
from node.ingress.splice import Request
from node.tunnel import Headers

FAMILIES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
}


@dataclass(slots=True, kw_only=True)
class Call:
    """A request in flight. Changed by the relay that carries it and by `leave`."""

    rid: str  # ours, unique: it names the usage row
    shown_id: str  # what the client sees as x-request-id: its own when that was sane
    key: KeyEntry
    path: str
    request: Request
    body: bytes  # what the engine gets
    headers: Headers
    started: float  # fabric time
    attempts: int = 0
    first: float | None = None  # fabric time of the first byte of the answer
    ended: float | None = None  # fabric time of its end
    node: str = ""
    node_name: str = ""  # for people
    replica: str = ""
    bytes_out: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    status: int = 0
    outcome: Outcome = "refused"
    is_gone: bool = False  # the client left
    is_done: bool = False
    stream: Stream | None = None  # the attempt that runs now

    def leave(self) -> None:
        """The client is gone: stop the engine at once."""
        if self.is_done:
            return
        self.is_gone = True
        if self.stream is not None:
            self.stream.reset()

    def end(self, status: int, outcome: Outcome, now: float) -> None:
        """How it ended for the client, unless the client had left before; what is said first counts.

        Args:
            status: what the client was answered, or would have been.
            outcome: how it went.
            now: fabric time.
        """
        if self.is_done:
            return
        self.is_done = True
        self.ended = now
        if not self.is_gone:
            self.status, self.outcome = status, outcome
        else:  # what it saw before it left is what it was answered
            self.status, self.outcome = STATUS_CLIENT_CLOSED if self.first is None else status, "client_disconnect"

    def row(self) -> UsageRow:
        """Its usage row, once it has ended."""
        return UsageRow(
            rid=self.rid,
            ts_start=self.started,
            ts_first=self.first,
            ts_end=max(self.ended or 0.0, self.started),
            key_id=self.key.id,
            model=self.request.model,
            family=FAMILIES[self.path],
            node=self.node,
            replica=self.replica,
            attempts=self.attempts,
            stream=self.request.stream,
            status=self.status,
            outcome=self.outcome,
            prompt_tokens=self.tokens.prompt,
            cached_tokens=self.tokens.cached,
            completion_tokens=self.tokens.completion,
            tokens_source=self.tokens.source,
            bytes_in=len(self.request.body),
            bytes_out=self.bytes_out,
        )
