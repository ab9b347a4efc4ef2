"""One end of a link as a sans-I/O core: handshake, verdict, then records carrying the mux.

Messages in, events out, messages to send taken with `outgoing`. Who may link is not decided here:
`admit` is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from gossip.errors import RemoteProtocolError
from gossip.handshake import Established, Initiator, Responder
from gossip.mux import Mux
from gossip.muxevents import Event as MuxEvent
from gossip.secure import Opener, Sealer, open_verdict, seal_accept, seal_reject

Admit = Callable[[bytes, bytes], str | None]  # key and payload of the other end -> refusal code, None to admit


@dataclass(frozen=True, slots=True)
class Up:
    """The link is live: both ends proved their keys and admitted each other."""

    peer: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """No link: one end did not admit the other; the session is over once what is outgoing has left."""

    peer: bytes
    code: str
    by_peer: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The peer said that nothing more comes: the only clean end."""


Event = Up | Refused | Finished | MuxEvent


class Stage(Enum):
    """How far a session has come."""

    START = auto()
    HELLO = auto()  # M1 came or went
    VERDICT = auto()  # the initiator waits to be admitted
    LIVE = auto()
    OVER = auto()


class Session:
    """The protocol state of one link end. Mutable: each message moves it on.

    Args:
        shake: a fresh handshake of either role.
        admit: whether the other end may link; asked once, after it proved its key.
    """

    def __init__(self, shake: Initiator | Responder, admit: Admit) -> None:
        self.is_initiator = isinstance(shake, Initiator)
        self.stage = Stage.START
        self.mux = Mux(initiator=self.is_initiator)
        self._shake = shake
        self._admit = admit
        self._waiting: list[bytes] = []  # handshake messages to send
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._met: Established | None = None

    def start(self) -> None:
        """Begin; the initiator's first message is then outgoing."""
        if isinstance(self._shake, Initiator):
            self._waiting.append(self._shake.first())
            self.stage = Stage.HELLO

    def receive(self, message: bytes, now: float) -> list[Event]:
        """Handle one message.

        Raises:
            RemoteProtocolError: the other end broke the protocol; the session is over. Abort, say nothing.
        """
        try:
            return self._read_record(message, now) if self.stage is Stage.LIVE else self._shake_hands(message, now)
        except RemoteProtocolError:
            self.stage = Stage.OVER
            self._waiting.clear()
            raise

    def _read_record(self, message: bytes, now: float) -> list[Event]:
        assert self._opener is not None
        plain = self._opener.open(message)
        events: list[Event] = list(self.mux.receive(plain, now=now)) if plain else []
        if self._opener.finished:
            self.stage = Stage.OVER
            events.append(Finished())
        return events

    def _shake_hands(self, message: bytes, now: float) -> list[Event]:
        match self.stage, self._shake:
            case Stage.START, Responder() as responder:
                self._waiting.append(responder.receive_first(message, now))
                self.stage = Stage.HELLO
                return []
            case Stage.HELLO, Responder() as responder:
                return self._judge_initiator(responder.receive_last(message))
            case Stage.HELLO, Initiator() as initiator:
                return self._judge_responder(*initiator.receive(message))
            case Stage.VERDICT, _:
                return self._read_verdict(message)
            case _:
                raise RemoteProtocolError("a message after the end", code="after_end")

    def outgoing(self) -> bytes | None:
        """The next message to send; None when there is none now."""
        if self._waiting:
            return self._waiting.pop(0)
        if self.stage is Stage.LIVE and self._sealer is not None:
            plain = self.mux.next_record()
            return self._sealer.seal(plain) if plain is not None else None
        return None

    def finish(self) -> bytes | None:
        """The end mark, which lets the peer tell an end from a loss; None before the link was live.

        It carries the urgent frames that still wait, as many as fit a record: a farewell overtakes a full transport.
        """
        if self.stage is not Stage.LIVE or self._sealer is None:
            self.stage = Stage.OVER
            return None
        self.stage = Stage.OVER
        return self._sealer.finish(self.mux.next_record(limit=0) or b"")

    def _establish(self, met: Established) -> tuple[Sealer, Opener]:
        self._met = met
        self._sealer, self._opener = Sealer(met.send_key), Opener(met.receive_key)
        return self._sealer, self._opener

    def _judge_initiator(self, met: Established) -> list[Event]:
        sealer, _ = self._establish(met)
        code = self._admit(met.peer, met.payload)
        if code is not None:
            self._waiting.append(seal_reject(sealer, met.binding, code))
            self.stage = Stage.OVER
            return [Refused(met.peer, code, by_peer=False)]
        self._waiting.append(seal_accept(sealer, met.binding))
        self.stage = Stage.LIVE
        return [Up(met.peer, met.payload)]

    def _judge_responder(self, last: bytes, met: Established) -> list[Event]:
        code = self._admit(met.peer, met.payload)
        if code is not None:  # it learns nothing about us: M3 is not sent
            self.stage = Stage.OVER
            return [Refused(met.peer, code, by_peer=False)]
        self._establish(met)
        self._waiting.append(last)
        self.stage = Stage.VERDICT
        return []

    def _read_verdict(self, message: bytes) -> list[Event]:
        assert self._opener is not None
        assert self._met is not None
        code = open_verdict(self._opener, self._met.binding, message)
        if code is not None:
            self.stage = Stage.OVER
            return [Refused(self._met.peer, code, by_peer=True)]
        self.stage = Stage.LIVE
        return [Up(self._met.peer, self._met.payload)]
