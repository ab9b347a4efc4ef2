"""A live link: a session on a transport. Feeds messages in, sends what comes out, hands streams on.

The shell decides nothing: what to say is the session's, the mux's and the peer's.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gossip.errors import LocalProtocolError, RemoteProtocolError
from gossip.muxevents import Control, Opened, ResetCode, StreamEvent
from gossip.session import Event, Finished, Refused, Session, Stage, Up
from gossip.stream import Stream
from gossip.transport import Transport
from registry.ids import key_id

log = logging.getLogger(f"tela.{__name__}")

HANDSHAKE_S = 5.0
CLOSE_S = 2.0  # a peer that does not read cannot keep a closed link


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a link tells its owner; called from the event loop."""

    up: Callable[["Link", Up], None]
    control: Callable[["Link", bytes], None]
    opened: Callable[["Link", Stream], None]
    heard: Callable[["Link"], None]
    down: Callable[["Link", str], None]  # once, whether it was ever up or not


class Link:
    """One end of one link; an `Endpoint` below, a `StreamHost` above."""

    def __init__(self, session: Session, hooks: Hooks, number: int) -> None:
        self.number = number
        self.peer = b""  # its key, once the handshake proved it
        self.node = ""
        self.reason = ""  # why it ended or was refused
        self.refused: Refused | None = None  # one end did not admit the other; None: that is not why it ended
        self.gone: asyncio.Event = asyncio.Event()
        self.settled: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # "" = live, else why not
        self._session = session
        self._mux = session.mux
        self._hooks = hooks
        self._transport: Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._is_paused = False
        self._flush_due = False
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_slow)

    @property
    def is_live(self) -> bool:
        """Whether streams can be opened on it now."""
        return self._session.stage is Stage.LIVE and self._transport is not None

    @property
    def is_initiator(self) -> bool:
        """Whether this end dialled."""
        return self._session.is_initiator

    def address(self) -> str:
        """Where the other end is, for people."""
        return self._transport.peer_address() if self._transport else "closed"

    # Endpoint

    def connected(self, transport: Transport) -> None:
        """The transport is there: begin the handshake, unless the link was ended before."""
        if self.gone.is_set():
            transport.abort()
            return
        self._transport = transport
        self._session.start()
        self._flush()

    def message_received(self, message: bytes) -> None:
        """Handle one record, then send what it caused."""
        if self._session.stage is Stage.OVER or self._transport is None:
            return
        try:
            events = self._session.receive(message, self._loop.time())
        except RemoteProtocolError as error:
            self.abort(f"{error.message} ({error.code})")
            return
        if self._session.stage is Stage.LIVE:
            self._hooks.heard(self)
        for event in events:
            if self.gone.is_set():  # an earlier one ended the link: what follows would outlive it
                return
            self._on(event)
        self._flush()

    def pause_writing(self) -> None:
        """The transport is full: keep what is queued in the mux, where urgent frames can overtake it."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Room again."""
        self._is_paused = False
        self._flush()

    def closed(self, reason: str) -> None:
        """The transport is gone: every stream that still lives was truncated."""
        if self.gone.is_set():
            return
        self._deadline.cancel()
        self._session.stage = Stage.OVER
        self._transport = None
        self.reason = self.reason or reason
        self.gone.set()
        for event in self._mux.lost():
            self._on(event)
        for stream in list(self._streams.values()):
            stream.lose(ResetCode.TRUNCATED)
        self._streams.clear()
        if not self.settled.done():
            self.settled.set_result(self.reason)
        self._hooks.down(self, self.reason)

    # used by the owner

    def open(self, kind: int, head: bytes) -> Stream:
        """Open a stream.

        Raises:
            LocalProtocolError: the link is not live, or takes no more streams.
        """
        if not self.is_live:
            raise LocalProtocolError("the link is not live", code="gone")
        sid = self._mux.open(kind, head)
        stream = self._streams[sid] = Stream(self, sid, kind, head, self.node)
        self._flush_soon()
        return stream

    def control(self, frame: bytes) -> None:
        """Send a control frame. One that finds the queue full is dropped: a repair brings it later."""
        if not self.is_live:
            return
        try:
            self._mux.control(frame)
        except LocalProtocolError:
            log.debug("control frame dropped", extra={"peer": self.node, "bytes": len(frame)})
        self._flush_soon()

    def close(self, reason: str) -> None:
        """End the link cleanly: what is queued as urgent leaves, then the end mark."""
        self.reason = self.reason or reason
        if self._transport is None:
            self.closed(reason)
            return
        self._flush()
        last = self._session.finish()
        if last is not None:
            self._transport.send(last)
        self._deadline.cancel()
        self._deadline = self._loop.call_later(CLOSE_S, self.abort, "the end mark was not taken")
        self._transport.close()

    def abort(self, reason: str) -> None:
        """End the link at once; the other end sees a loss."""
        log.debug("link aborted", extra={"peer": self.node, "reason": reason})
        self.reason = self.reason or reason
        self._session.stage = Stage.OVER
        if self._transport is not None:
            self._transport.abort()
        else:
            self.closed(reason)

    # StreamHost

    def reply(self, sid: int, head: bytes) -> None:
        """Send the head of an accepted stream."""
        self._mux.reply(sid, head)
        self._flush_soon()

    def write(self, sid: int, data: bytes) -> None:
        """Queue bytes on a stream."""
        self._mux.send(sid, data)
        self._flush_soon()

    def has_room(self, sid: int) -> bool:
        """Whether more may be queued on a stream."""
        try:
            return sid not in self._streams or self._mux.room(sid) > 0
        except LocalProtocolError:  # both halves are over: nothing is left to wait for
            return True

    def consumed(self, sid: int, n: int) -> None:
        """Grant credit for bytes that were read."""
        self._mux.consumed(sid, n)
        if self._mux.has_output:
            self._flush_soon()

    def end(self, sid: int) -> None:
        """Half-close a stream."""
        self._mux.end(sid)
        self._flush_soon()

    def reset(self, sid: int, code: int) -> None:
        """End a stream both ways."""
        self._streams.pop(sid, None)
        self._mux.reset(sid, code)
        self._flush_soon()

    # inside

    def _on(self, event: Event) -> None:
        if isinstance(event, Opened):
            stream = self._streams[event.sid] = Stream(self, event.sid, event.kind, event.head, self.node)
            self._hooks.opened(self, stream)
        elif isinstance(event, Control):
            self._hooks.control(self, event.payload)
        elif isinstance(event, StreamEvent):
            if (known := self._streams.get(event.sid)) is not None:
                known.on(event)
        else:
            self._on_change(event)

    def _on_change(self, event: Event) -> None:
        match event:
            case Up(peer=peer):
                self._deadline.cancel()
                self.peer, self.node = peer, key_id(peer)
                self.settled.set_result("")
                self._hooks.up(self, event)
            case Refused(peer=peer, code=code, by_peer=by_peer):
                self.refused = event
                self.peer, self.node = peer, key_id(peer)
                self._flush()
                self.close(f"refused by {'it' if by_peer else 'us'}: {code}")
            case Finished():
                self.close("ended by the other end")
            case _:
                pass  # going away shows when a stream is opened

    def forget(self, sid: int) -> None:
        """The application is done with a stream that ended both ways."""
        self._streams.pop(sid, None)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        while not self._is_paused and (message := self._session.outgoing()) is not None:
            transport.send(message)
        for event in self._mux.drained():
            self._on(event)

    def _too_slow(self) -> None:
        self.abort("no handshake in time")
