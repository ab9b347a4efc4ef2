"""The control API as an ASGI application: what a face may ask a node, and the records it may hand in.

It shows what this node knows and takes signed records; it signs nothing, so holding the socket gives no authority.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

from node.control import wire
from node.control.acts import Acts, operator_names, why_not
from node.control.keyrows import key_view
from node.control.schema import Accounts, ActProgress, Ask, Held, Publish, Published, Results
from node.control.source import Source
from node.control.streams import Streams, lines
from node.control.viewer import Viewer, refused_views
from node.ingress.edge import Message, Receive, Scope, Send
from registry.accounts import key_rows
from registry.errors import RecordRefused, TelaError
from registry.kinds import KINDS, read_body
from registry.record import Audience, Record, decode
from registry.text import clean

log = logging.getLogger(f"tela.{__name__}")

MAX_RECORDS = 64
MAX_HELD = 10_000  # records in one answer
MAX_EVENTS = 1_000
EVENTS = 100


class Question(NamedTuple):
    """One HTTP request."""

    query: wire.Query
    receive: Receive
    send: Send


class ControlApp:
    """Answers faces. Mutable only through its parts.

    Args:
        source: the node.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._viewer = Viewer(source)
        self._streams = Streams(self._viewer, source.now)
        self._routes: dict[str, dict[str, Callable[[Question], Awaitable[None]]]] = {
            "/self": {"GET": self._self},
            "/view": {"GET": self._view},
            "/watch": {"GET": self._watch},
            "/records": {"GET": self._held, "POST": self._publish},
            "/act": {"GET": self._act},
            "/events": {"GET": self._events},
            "/accounts": {"GET": self._accounts},
            "/ask": {"POST": self._ask},
        }

    def notice(self) -> None:
        """Something may have changed: say it to those who watch. They notice by themselves within a second."""
        self._streams.notice()

    def close(self) -> None:
        """End what goes on."""
        self._streams.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        out = _Out(send)
        try:
            route = self._route(scope["path"], scope["method"])
            await route(Question(wire.Query(scope), receive, out))
        except TelaError as error:
            if out.is_begun:
                log.info("an answer broke", extra={"path": scope["path"], "why": error.message})
                raise wire.Broken from error
            await wire.fail(send, error)
        except wire.Gone:
            log.debug("a face left before its question was complete")

    def _route(self, path: str, method: str) -> Callable[[Question], Awaitable[None]]:
        methods = self._routes.get(path)
        if methods is None:
            raise TelaError("no such path", hint=f"there are {', '.join(self._routes)}", code="not_found")
        route = methods.get(method)
        if route is None:
            raise TelaError(f"not with this method; use {' or '.join(methods)}", code="method_not_allowed")
        return route

    # --- looking

    async def _self(self, asked: Question) -> None:
        asked.query.end()
        await wire.answer(asked.send, self._source.about())

    async def _view(self, asked: Question) -> None:
        asked.query.end()
        await wire.answer(asked.send, self._viewer.whole())

    async def _watch(self, asked: Question) -> None:
        epoch, colon, version = asked.query.text("since").rpartition(":")
        asked.query.end()
        if colon and not (version.isascii() and version.isdigit() and len(version) < 19):
            raise wire.wrong("since must be EPOCH:VERSION, as the last line or view said")
        await self._streams.watch(asked.receive, asked.send, epoch, int(version) if colon else 0)

    async def _events(self, asked: Question) -> None:
        journal = self._source.events
        limit = asked.query.number("limit", EVENTS, most=MAX_EVENTS)
        newest = max(0, journal.last_seq - limit) if journal else 0
        since = asked.query.number("since", newest, most=2**60)
        is_followed = bool(asked.query.number("follow", 0, most=1))
        asked.query.end()
        if journal is None:
            raise TelaError("this node keeps no journal of events", hint="ask another node", code="no_events")
        if is_followed:
            await self._streams.events(asked.receive, asked.send, journal, since, max(limit, 1))
            return
        await wire.begin(asked.send, wire.LINES)
        await wire.go_on(asked.send, lines(journal.since(since, limit)))
        await wire.end(asked.send)

    async def _accounts(self, asked: Question) -> None:
        asked.query.end()
        source = self._source
        if not source.accounts:
            raise _no_accounts()
        view = source.snapshot()
        rows, refused = key_rows(source.replica, view.standing)
        names, now = operator_names(view), source.fabric()
        keys = tuple(key_view(row, names, now) for row in rows.values())
        await wire.answer(
            asked.send, Accounts(keys=keys, refused=refused_views(refused, view), refused_count=len(refused))
        )

    # --- records

    async def _held(self, asked: Question) -> None:
        kind, subject = asked.query.text("kind"), asked.query.text("id")
        asked.query.end()
        if kind not in KINDS:
            raise wire.wrong(f"kind must be one of {', '.join(KINDS)}")
        if KINDS[kind].audience is Audience.ACCOUNTS and not self._source.accounts:
            raise _no_accounts()
        found = [entry.record for entry in self._source.replica.of_kind(kind) if subject in {"", entry.record.key.id}]
        shown = tuple(wire.to_base64(record.raw) for record in found[:MAX_HELD])
        await wire.answer(asked.send, Held(records=shown, complete=len(shown) == len(found)))

    async def _publish(self, asked: Question) -> None:
        asked.query.end()
        question = await wire.read_object(asked.receive, Publish)
        if len(question.records) > MAX_RECORDS:
            raise wire.wrong(f"{len(question.records)} records, at most {MAX_RECORDS} at once")
        taken = [self._read(text) for text in question.records]
        records = [each for each in taken if isinstance(each, Record)]
        news = dict(zip((record.order.hash for record in records), self._source.publish(records), strict=True))
        results = tuple(
            self._published(each, news[each.order.hash]) if isinstance(each, Record) else _not_taken(each)
            for each in taken
        )
        await wire.answer(asked.send, Results(results=results))

    def _read(self, text: str) -> Record | str:
        """A record that may be published, or why it may not."""
        try:
            record = decode(wire.from_base64(text, "the record"))
            read_body(record)
        except RecordRefused as refusal:
            return refusal.reason
        except TelaError as error:
            return error.message
        if record.key.audience is Audience.ACCOUNTS and not self._source.accounts:
            return "this node does not hold the accounts shelf; hand it in on an ingress"
        return record

    def _published(self, record: Record, news: bool) -> Published:
        source = self._source
        view = source.snapshot()
        refused = list(view.standing.refused)
        if source.accounts and record.key.audience is Audience.ACCOUNTS:
            refused += key_rows(source.replica, view.standing)[1]
        why = why_not(record, source.replica.get(record.key), view, refused)
        return Published(hash=record.order.hash.hex(), news=news, counts=not why, why=why)

    async def _act(self, asked: Question) -> None:
        word = asked.query.text("hash")
        asked.query.end()
        try:
            digest = bytes.fromhex(word)
        except ValueError:
            raise wire.wrong("hash must be the 64 hex digits that POST /records answered") from None
        if self._acts().find(digest) is None:
            raise TelaError(
                "no act with this hash is held here",
                hint="a later one of the same signer may have taken its place: `tela events` shows what was done",
                code="no_such_act",
            )
        holders = await self._source.holders(digest)
        acts = self._acts()
        found = acts.find(digest)
        if found is None:  # replaced while the hubs were asked
            raise TelaError("another act took its place", code="no_such_act")
        state, detail = acts.progress(*found, holders)
        nodes = self._source.snapshot().nodes
        names = tuple(sorted(nodes[name].name for name in acts.hubs.intersection(holders)))
        await wire.answer(asked.send, ActProgress(state=state, detail=detail, hubs=names))

    def _acts(self) -> Acts:
        return Acts(self._source.replica, self._source.snapshot(), self._source.node)

    # --- questions to other nodes

    async def _ask(self, asked: Question) -> None:
        asked.query.end()
        question = await wire.read_object(asked.receive, Ask)
        raw = wire.from_base64(question.question, "the question")
        await wire.while_there(asked.receive, self._pass_on(question.node, raw, asked.send))

    async def _pass_on(self, node: str, question: bytes, send: Send) -> None:
        async with aclosing(self._source.ask(node, question)) as parts:
            first = await anext(parts, b"")
            await wire.begin(send, wire.BYTES)
            await wire.go_on(send, first)
            async for part in parts:
                await wire.go_on(send, part)
        await wire.end(send)


class _Out:
    """The way back to a face. Mutable: notes when an answer was begun, which then cannot become an error."""

    def __init__(self, send: Send) -> None:
        self.is_begun = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        self.is_begun = True
        await self._send(message)


def _no_accounts() -> TelaError:
    return TelaError(
        "this node does not hold the accounts shelf, where keys and names are",
        hint="run this on an ingress, or start a node here with --role accounts",
        code="no_accounts",
    )


def _not_taken(why: str) -> Published:
    return Published(hash="", news=False, counts=False, why=clean(why))
