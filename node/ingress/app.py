"""The ingress as an ASGI application: routes, keys, and one usage row for every request that was forwarded."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from accounting.keys import CLAIM, INVITE, PREFIX, Admitted, KeyEntry, Refused
from accounting.ledger import Ledger
from node.ingress.call import FAMILIES, Call
from node.ingress.desk import KeyDesk, about
from node.ingress.edge import (
    Bodies,
    ClientGone,
    EdgeRefused,
    Receive,
    Scope,
    Send,
    Transfer,
    answer,
    path_of,
    read_small,
    refuse,
)
from node.ingress.exposure import Exposure
from node.ingress.keybook import entry_of
from node.ingress.openai import (
    JSON_TYPE,
    Refusal,
    model_list,
    model_object,
    retry_after,
    unauthorized,
    unknown_model,
)
from node.ingress.reach import callable_now, may_know
from node.ingress.relay import Relay
from node.ingress.splice import BodyRefused, asking_usage, check_headers, read_request
from node.tunnel import Headers, to_engine
from registry.accounts import KeyRow
from registry.errors import TelaError
from registry.ids import request_id
from registry.text import is_id
from registry.views import Snapshot

log = logging.getLogger(f"tela.{__name__}")


Check = Callable[[str | None, str | None, float], Admitted | Refused]


class Door(NamedTuple):
    """One HTTP request at the door, and the ids it goes by."""

    scope: Scope
    receive: Receive
    send: Send
    rid: str  # ours
    shown_id: str  # what the client sees: its own when it sent a sane one


class Ingress:
    """The `/v1` application. Mutable only through its parts.

    Args:
        relay: carries calls to workers.
        ledger: intents and usage rows.
        check: judges a credential: both headers that may hold it, and fabric time.
        desk: where claims become keys.
        door: what is known of how clients reach this door.
        unready: why this node should not be sent requests; nothing when it should.
        views: the latest snapshot of the registry.
        fabric: unix seconds, fabric time.
        rng: request ids come from it.
        tasks: owns the watchers for clients that leave.
        bodies: reads request bodies within limits.
    """

    def __init__(
        self,
        *,
        relay: Relay,
        ledger: Ledger,
        check: Check,
        desk: KeyDesk,
        door: Exposure,
        unready: Callable[[], tuple[str, ...]],
        views: Callable[[], Snapshot],
        fabric: Callable[[], float],
        rng: Random,
        tasks: asyncio.TaskGroup,
        bodies: Bodies | None = None,
    ) -> None:
        self._relay = relay
        self._ledger = ledger
        self._check = check
        self._desk = desk
        self._door = door
        self._unready = unready
        self._views = views
        self._fabric = fabric
        self._rng = rng
        self._tasks = tasks
        self._bodies = bodies or Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        rid = request_id(int(self._fabric() * 1000), self._rng.getrandbits(80))
        door = Door(scope, receive, send, rid, _client_id(scope["headers"]) or rid)
        try:
            await self._route(door)
        except EdgeRefused as refused:
            await refuse(send, refused.refusal, door.shown_id)
        except ClientGone:
            log.debug("client left before its request was complete", extra={"rid": rid})
        except Transfer as broken:
            log.warning("answer broken off", extra={"rid": rid, "why": str(broken)})
            raise
        except Exception:
            log.exception("request failed", extra={"rid": rid})
            raise

    async def _route(self, door: Door) -> None:
        path, method, send = path_of(door.scope), door.scope["method"], door.send
        if b"tela_" in door.scope["query_string"] or "tela_" in path:
            _refuse_secret(door.scope, path)
        if path in FAMILIES:
            _require(method, ("POST",))
            await self._call(door, path, self._authenticate(door.scope))
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            _require(method, ("GET", "HEAD"))
            key = self._authenticate(door.scope)
            body = self._models(path.removeprefix("/v1/models").lstrip("/"), key)
            own = [JSON_TYPE, (b"x-request-id", door.shown_id.encode())]
            await answer(send, 200, body, own, is_head=method == "HEAD")
        elif path == "/health":
            _require(method, ("GET", "HEAD"))
            await answer(send, 200, b'{"status":"ok"}', [JSON_TYPE], is_head=method == "HEAD")
        elif path == "/readyz":
            _require(method, ("GET", "HEAD"))
            reasons = self._unready()
            if self._ledger.trouble is not None:
                reasons += ("no usage can be recorded",)
            body = msgspec.json.encode({"ready": not reasons, "reasons": reasons})
            await answer(send, 503 if reasons else 200, body, [JSON_TYPE], is_head=method == "HEAD")
        elif path.startswith("/v1/keys/"):
            await self._at_desk(door, path)
        else:
            message = f"There is no {path} here. tela serves {', '.join((*FAMILIES, '/v1/models'))}."
            raise EdgeRefused(Refusal(status=404, message=message, code="unknown_route"))

    async def _at_desk(self, door: Door, path: str) -> None:
        own = [JSON_TYPE, (b"x-request-id", door.shown_id.encode())]
        if path == "/v1/keys/claim":
            _require(door.scope["method"], ("POST",))
            self._door.must_be_private(door.scope)
            if (refusal := self._desk.admit(self._door.client(door.scope))) is not None:
                raise EdgeRefused(refusal)
            claimed = self._desk.claim(await read_small(door.scope, door.receive))
            if isinstance(claimed, Refusal):
                raise EdgeRefused(claimed)
            await answer(door.send, 200, self._offered(claimed), own)
        elif path == "/v1/keys/self":
            _require(door.scope["method"], ("GET", "HEAD"))
            body = about(self._authenticate(door.scope))
            await answer(door.send, 200, body, own, is_head=door.scope["method"] == "HEAD")
        elif path == "/v1/keys/self/revoke":
            _require(door.scope["method"], ("POST",))
            key = self._authenticate(door.scope)
            if (refusal := self._desk.revoke(await read_small(door.scope, door.receive), key)) is not None:
                raise EdgeRefused(refusal)
            await answer(door.send, 200, msgspec.json.encode({"id": key.id, "revoked": True}), own)
        else:
            message = f"There is no {path} here: /v1/keys/claim, /v1/keys/self or /v1/keys/self/revoke."
            raise EdgeRefused(Refusal(status=404, message=message, code="unknown_route"))

    def _offered(self, row: KeyRow) -> bytes:
        models = [each.id for each in callable_now(self._views(), entry_of(row))]
        return msgspec.json.encode(
            {
                "id": row.id,
                "label": row.label,
                "base_url": f"{self._door.url}/v1" if self._door.url else "",
                "models": models,
                "expires_at": row.expires_at,
            }
        )

    async def _call(self, door: Door, path: str, key: KeyEntry) -> None:
        body = await self._bodies.read(door.scope, door.receive)
        try:
            call = self._read_call(door, body, path, key)
            self._must_know(call.request.model, key)
            self._begin(call)
            watcher = self._tasks.create_task(_watch(door.receive, call))
            try:
                await self._relay.carry(call, door.send)
            finally:
                watcher.cancel()  # a client that takes nothing never lets its connection end
                now = self._fabric()  # of a call that has ended nothing changes any more
                call.end(200, "truncated", now) if call.first else call.end(500, "upstream_error", now)
                self._ledger.settle(call.row())
        finally:
            self._bodies.release(body)

    def _read_call(self, door: Door, body: bytes, path: str, key: KeyEntry) -> Call:
        headers = door.scope["headers"]
        try:
            check_headers(headers)
            request = read_request(body)
            asked = request.stream and not request.wants_usage and path != "/v1/embeddings"
            outgoing = asking_usage(request) if asked else body
        except BodyRefused as refused:
            raise EdgeRefused(
                Refusal(status=400, message=refused.message, code=refused.code, param=refused.param)
            ) from refused
        return Call(
            rid=door.rid,
            shown_id=door.shown_id,
            key=key,
            path=path,
            request=request,
            body=outgoing,
            headers=to_engine(headers),
            started=self._fabric(),
        )

    def _must_know(self, model: str, key: KeyEntry) -> None:
        view = self._views()
        if not may_know(view, key, model):
            raise EdgeRefused(unknown_model(model, [row.id for row in callable_now(view, key)]))

    def _begin(self, call: Call) -> None:
        try:
            self._ledger.begin(call.rid, call.key.id, call.request.model, call.started)
        except TelaError as trouble:
            log.error("request refused: no usage can be recorded", extra={"why": trouble.message})
            message = "This ingress cannot record usage now, so it forwards nothing. Its operator must look."
            refusal = Refusal(
                status=503, message=message, code=trouble.code, type="server_error", headers=retry_after(5)
            )
            raise EdgeRefused(refusal) from trouble

    def _authenticate(self, scope: Scope) -> KeyEntry:
        self._door.must_be_private(scope)
        authorization = x_api_key = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value.decode("latin-1")
            elif name == b"x-api-key":
                x_api_key = value.decode("latin-1")
        verdict = self._check(authorization, x_api_key, self._fabric())
        if isinstance(verdict, Admitted):
            return verdict.entry
        log.info("key refused", extra={"cause": verdict.cause.name, "key": verdict.key_id})
        raise EdgeRefused(unauthorized(verdict.reason))

    def _models(self, name: str, key: KeyEntry) -> bytes:
        rows = callable_now(self._views(), key)
        if not name:
            return model_list(rows)
        row = next((each for each in rows if each.id == name), None)
        if row is None:
            raise EdgeRefused(unknown_model(name, [each.id for each in rows]))
        return msgspec.json.encode(model_object(row))


async def _watch(receive: Receive, call: Call) -> None:
    """Wait until the client leaves or its answer is complete, whichever comes first."""
    while (await receive())["type"] != "http.disconnect":
        pass
    call.leave()


def _client_id(headers: Headers) -> str | None:
    for name, value in headers:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text if is_id(text) else None
    return None


def _refuse_secret(scope: Scope, path: str) -> None:
    """Refuse a secret in an address: those are kept by proxies, histories and logs."""
    where = f"{path}?{scope['query_string'].decode('latin-1')}"
    if any(prefix in where for prefix in (PREFIX, CLAIM, INVITE)):
        message = (
            "A secret does not belong in a URL: what passed it on may have kept it, so whoever owns it should "
            "revoke it. Keys go into the header Authorization: Bearer, claims into the body."
        )
        raise EdgeRefused(Refusal(status=400, message=message, code="secret_in_url"))


def _require(method: str, allowed: tuple[str, ...]) -> None:
    if method not in allowed:
        shown = ", ".join(allowed)
        raise EdgeRefused(
            Refusal(
                status=405,
                message=f"{method} is not possible here; use {shown}.",
                code="method_not_allowed",
                headers=((b"allow", shown.encode()),),
            )
        )
