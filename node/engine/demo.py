"""The demo engine: an OpenAI-compatible server that invents its answers from a hash of the request.

The engine of the demo, the tests and the benchmarks: the same request gets the same bytes from any
process, and faults happen when they are asked for. It runs no model and keeps no state but counts.
"""

import argparse
import asyncio
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, cast

import msgspec
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from node.engine.credential import DEMO_KEY
from node.engine.demo_answers import CREATED, answer_to, vectors_for
from node.engine.demo_control import Adapter, Behaviour, with_adapter, without_adapter
from node.engine.demo_faults import NO_FAULTS, FaultRefused, Faults, parse_faults
from node.engine.demo_flags import flag_parser
from node.engine.demo_metrics import ModelMetrics, render
from node.engine.demo_play import NO_PACE, Exchange, Pace, perform
from node.engine.demo_requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RequestRefused,
    TokenizeRequest,
    read_body,
)
from node.engine.demo_text import count_words, token_ids
from node.engine.demo_wire import EXTENSION, DemoProtocol, DemoServer, Listening, bind, listening
from node.engine.families import FAMILIES, PATHS, TRIAL_ID

DEFAULT_MODEL: Final = "tela/demo"
_MODELS: Final = "/v1/models"
# Requests of full context the pretended KV cache has room for.
_CACHE_REQUESTS: Final = 16
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
FAULT_HEADER: Final = b"x-tela-fault"
ECHO_HEADER: Final = b"x-tela-echo"

Action = Callable[[Exchange, HTTPScope], Awaitable[None]]

_CHAT: Final = msgspec.json.Decoder(ChatRequest)
_COMPLETION: Final = msgspec.json.Decoder(CompletionRequest)
_EMBEDDING: Final = msgspec.json.Decoder(EmbeddingRequest)
_TOKENIZE: Final = msgspec.json.Decoder(TokenizeRequest)
_ADAPTER: Final = msgspec.json.Decoder(Adapter)
_BEHAVIOUR: Final = msgspec.json.Decoder(Behaviour)
_FAMILY_OF: Final = {path: family for family, path in PATHS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How one demo engine behaves; the flags of main() under their own names."""

    models: tuple[str, ...] = (DEFAULT_MODEL,)
    api_key: str | None = None  # None: /v1 is open
    natural_tokens: int = 20  # the length of an answer nobody limits
    context_tokens: int = 8192
    pace: Pace = NO_PACE
    load_s: float = 0.0  # from listening to healthy
    crash_after: int | None = None  # requests served before the one that kills; None: never
    faults: Faults = NO_FAULTS  # of each `fault_every`-th request that asks for none itself
    fault_every: int = 1
    is_failing: bool = False  # healthy, but every generation is a 500, a node's trial too
    families: frozenset[str] = frozenset(FAMILIES)  # the endpoints there are


class DemoEngine:
    """The ASGI application. It counts requests; what else of it may change is in `demo_control`."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.metrics = {model: ModelMetrics() for model in options.models}
        self._ready_at_s = float("inf")  # on the loop's clock; listening sets it
        self._generations = 0
        self._routes: dict[str, tuple[str, Action]] = {
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._show_metrics),
            _MODELS: ("GET", self._list_models),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._complete),
            "/v1/embeddings": ("POST", self._embed),
            "/tokenize": ("POST", self._tokenize),
            "/v1/load_lora_adapter": ("POST", self._load),
            "/v1/unload_lora_adapter": ("POST", self._unload),
            "/demo": ("POST", self._behave),
        }

    def loads_from_now(self) -> None:
        """Begin the time of loading; call it in the loop, when the socket listens."""
        self._ready_at_s = asyncio.get_running_loop().time() + self.options.load_s

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve one request; a client that goes away ends it at once."""
        if scope["type"] != "http":
            return
        wire = cast("DemoProtocol", scope["extensions"][EXTENSION]["protocol"])
        if wire.is_lost:
            return
        wire.serving = asyncio.current_task()
        try:
            await self._serve(scope, Exchange(receive, send, wire, [], NO_FAULTS))
        except asyncio.CancelledError:
            if not wire.is_lost:
                raise  # the process ends, not the client
        finally:
            wire.serving = None

    async def _serve(self, scope: HTTPScope, exchange: Exchange) -> None:
        try:
            await self._route(scope)(exchange, scope)
        except RequestRefused as refusal:
            if refusal.status == 405:
                exchange.headers.append((b"allow", refusal.param.encode()))
            await exchange.whole(refusal.body(), status=refusal.status)

    def _route(self, scope: HTTPScope) -> Action:
        """Return what serves a request, or refuse it."""
        path = scope["path"]
        if path.startswith(("/v1/", "/demo")):
            self._authorise(scope)
        method, action = self._routes.get(path, ("", None))
        if action is None or _FAMILY_OF.get(path) not in {None, *self.options.families}:
            if not path.startswith(_MODELS + "/"):
                raise RequestRefused("Not Found", status=404, kind="NotFoundError")
            method, action = "GET", self._show_model
        if method != scope["method"]:
            raise RequestRefused("Method Not Allowed", status=405, param=method)
        if path != "/metrics" and asyncio.get_running_loop().time() < self._ready_at_s:
            raise RequestRefused("Loading model", status=503, kind="ServiceUnavailableError")
        return action

    def _authorise(self, scope: HTTPScope) -> None:
        key = self.options.api_key
        if key is None:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + key.encode()):
            raise RequestRefused("Unauthorized", status=401, kind="AuthenticationError")

    async def _health(self, exchange: Exchange, _: HTTPScope) -> None:
        await exchange.whole(b"")

    async def _show_metrics(self, exchange: Exchange, _: HTTPScope) -> None:
        capacity_tokens = self.options.context_tokens * _CACHE_REQUESTS
        await exchange.whole(render(self.metrics, capacity_tokens), media_type=_METRICS_TYPE)

    async def _list_models(self, exchange: Exchange, _: HTTPScope) -> None:
        cards = [self._card(model) for model in self.options.models]
        await exchange.whole(msgspec.json.encode({"object": "list", "data": cards}))

    async def _show_model(self, exchange: Exchange, scope: HTTPScope) -> None:
        model = scope["path"][len(_MODELS) + 1 :]
        self._metrics_of(model)
        await exchange.whole(msgspec.json.encode(self._card(model)))

    def _card(self, model: str) -> dict[str, object]:
        return {
            "id": model,
            "object": "model",
            "created": CREATED,
            "owned_by": "tela",
            "root": model,
            "parent": None,
            "max_model_len": self.options.context_tokens,
        }

    def _metrics_of(self, model: str) -> ModelMetrics:
        """Return the counts of a model, or refuse one that is not served."""
        if model not in self.options.models:
            message = f"The model `{model}` does not exist."
            raise RequestRefused(message, status=404, kind="NotFoundError", param="model")
        return self.metrics[model]

    async def _tokenize(self, exchange: Exchange, _: HTTPScope) -> None:
        request = read_body(_TOKENIZE, await exchange.read())
        self._metrics_of(request.model)
        prompt = request.prompt
        if prompt is None:
            prompt = " ".join(message.text() for message in request.messages or ())
        answer = {
            "count": count_words(prompt),
            "max_model_len": self.options.context_tokens,
            "tokens": token_ids(prompt),
            "token_strs": None,
        }
        await exchange.whole(msgspec.json.encode(answer))

    async def _chat(self, exchange: Exchange, scope: HTTPScope) -> None:
        body, echo = await self._accept(exchange, scope)
        await self._generate(exchange, read_body(_CHAT, body), echo)

    async def _complete(self, exchange: Exchange, scope: HTTPScope) -> None:
        body, echo = await self._accept(exchange, scope)
        await self._generate(exchange, read_body(_COMPLETION, body), echo)

    async def _generate(self, exchange: Exchange, request: ChatRequest | CompletionRequest, echo: str | None) -> None:
        metrics = self._metrics_of(request.model)
        answer = answer_to(
            request,
            natural_tokens=self.options.natural_tokens,
            context_tokens=self.options.context_tokens,
        )
        if echo is not None:
            answer = answer.saying(echo)
        await perform(exchange, answer, self.options.pace, metrics)

    async def _embed(self, exchange: Exchange, scope: HTTPScope) -> None:
        body, _ = await self._accept(exchange, scope)
        request = read_body(_EMBEDDING, body)
        metrics = self._metrics_of(request.model)
        vectors = vectors_for(request, context_tokens=self.options.context_tokens)
        await perform(exchange, vectors, self.options.pace, metrics)

    async def _accept(self, exchange: Exchange, scope: HTTPScope) -> tuple[bytes, str | None]:
        """Count a request that makes the model work; return its body and what is to be echoed.

        Its own faults win over the engine's. The request after `crash_after` kills the process. What a node
        asks before it sends requests is none of them: it is not counted, and no fault comes of it.
        """
        if self.options.is_failing:
            raise RequestRefused("the model does not run", status=500, kind="InternalServerError")
        is_trial = (b"x-request-id", TRIAL_ID.encode()) in scope["headers"]
        if not is_trial:
            await self._count(exchange)
        return await self._read(exchange, scope)

    async def _count(self, exchange: Exchange) -> None:
        self._generations += 1
        options = self.options
        if options.crash_after is not None and self._generations > options.crash_after:
            await exchange.wire.crash()
        if self._generations % options.fault_every == 0:
            exchange.faults = options.faults

    async def _read(self, exchange: Exchange, scope: HTTPScope) -> tuple[bytes, str | None]:
        echoes = b""
        for name, value in scope["headers"]:
            if name == FAULT_HEADER:
                exchange.faults = _faults_in(value)
            elif name == ECHO_HEADER:
                echoes = value
        body = await exchange.read()
        return body, _echo(exchange, scope, echoes, body) if echoes else None

    async def _load(self, exchange: Exchange, _: HTTPScope) -> None:
        adapter = read_body(_ADAPTER, await exchange.read())
        self._list(with_adapter(self.options.models, adapter))
        await exchange.whole(f"Success: LoRA adapter '{adapter.lora_name}' added successfully.".encode())

    async def _unload(self, exchange: Exchange, _: HTTPScope) -> None:
        adapter = read_body(_ADAPTER, await exchange.read())
        self._list(without_adapter(self.options.models, adapter))
        await exchange.whole(f"Success: LoRA adapter '{adapter.lora_name}' removed successfully.".encode())

    async def _behave(self, exchange: Exchange, _: HTTPScope) -> None:
        asked = read_body(_BEHAVIOUR, await exchange.read())
        if asked.models is not None:
            self._list(tuple(dict.fromkeys(asked.models)))
        if asked.is_failing is not None:
            self.options = replace(self.options, is_failing=asked.is_failing)
        _print(asked.lines)
        if asked.exit is not None:
            os._exit(asked.exit)
        await exchange.whole(b"{}")

    def _list(self, models: tuple[str, ...]) -> None:
        self.options = replace(self.options, models=models)
        for model in models:
            self.metrics.setdefault(model, ModelMetrics())


def _print(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def _faults_in(value: bytes) -> Faults:
    try:
        return parse_faults(value.decode("latin-1"))
    except FaultRefused as refused:
        raise RequestRefused(f"{refused.message} ({refused.hint})") from refused


def _echo(exchange: Exchange, scope: HTTPScope, echoes: bytes, body: bytes) -> str:
    """Return what an answer says to prove what arrived."""
    if echoes == b"body":
        digest = sha256(body).hexdigest()
        exchange.headers.append((b"x-echo-sha256", digest.encode()))
        return digest
    if echoes == b"headers":
        return json.dumps([[n.decode("latin-1"), v.decode("latin-1")] for n, v in scope["headers"]])
    raise RequestRefused("x-tela-echo: body or headers")


@asynccontextmanager
async def demo_engine(options: EngineOptions = EngineOptions()) -> AsyncIterator[Listening]:
    """Run a demo engine in the running loop, on a free port, until the context is left.

    A crash that is asked for ends the caller's process: take a child process for those.
    """
    engine = DemoEngine(options)
    async with listening(engine, engine.loads_from_now) as place:
        yield place


def main(argv: list[str]) -> int:
    """Serve until a signal comes; print one JSON line with the port when listening.

    Returns the exit code: 1 when the address cannot be bound. Wrong flags exit with 2.
    """
    parser = flag_parser(DEFAULT_MODEL)
    arguments = parser.parse_args(argv)
    _print(arguments.say)
    if arguments.exit is not None:
        return int(arguments.exit)
    try:
        engine = DemoEngine(_options(arguments))
    except FaultRefused as refused:
        parser.error(f"{refused.message}; {refused.hint}")
    try:
        listener = bind(arguments.host, arguments.port)
    except OSError as error:
        where = f"{arguments.host}:{arguments.port}"
        sys.stderr.write(f"demo engine: cannot listen on {where}: {error.strerror}\n")
        return 1

    def announce() -> None:
        engine.loads_from_now()
        line = json.dumps({"ready": True, "port": listener.getsockname()[1]})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        DemoServer(engine, announce).run([listener])
    return 0


def _options(arguments: argparse.Namespace) -> EngineOptions:
    return EngineOptions(
        models=tuple(dict.fromkeys(arguments.model or [DEFAULT_MODEL])),
        api_key=arguments.api_key or os.environ.get(DEMO_KEY) or None,
        natural_tokens=arguments.tokens,
        context_tokens=arguments.context,
        pace=Pace(arguments.first_ms, arguments.delay_ms),
        load_s=arguments.load_ms,
        crash_after=arguments.crash_after,
        faults=parse_faults(";".join(arguments.fault)),
        fault_every=arguments.fault_every,
        is_failing=arguments.failing,
        families=frozenset(arguments.serves or FAMILIES),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
