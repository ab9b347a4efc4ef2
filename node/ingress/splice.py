"""What an ingress must know of a request body, and the two changes it may make to one.

Pure. A body is never re-serialised: its syntax is checked, the spans of its top-level values are found, and
`model` and `stream_options` are replaced by byte offset. Every other byte reaches the engine as the client
sent it, so what is ambiguous (a key given twice) or addresses the engine itself is refused, not repaired.
"""

import codecs
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import msgspec

from registry.errors import TelaError
from registry.text import clean, is_id

# Fields that reach past the engine's front door: another request's cache or session, the order of the queue, the
# rank or slot that serves it, an adapter that is another model, what the server fetches, executes as a template or
# unpickles. The operator sets these, so a client's are refused by name. Read off the request
# schemas of vLLM and SGLang and of llama.cpp's server.
DENIED = frozenset((
    "adapter_id", "bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt", "chat_template",
    "custom_labels", "custom_logit_processor", "custom_params", "data_parallel_rank", "disagg_prefill_dp_rank",
    "ec_transfer_params", "extra_key", "id_slot", "kv_transfer_params", "logits_processors", "lora", "lora_path",
    "mm_processor_kwargs", "ngram_corpus_id", "priority", "prompt_embeds", "rid", "routed_dp_rank",
    "session_params", "slot_id", "vllm_xargs",
))  # fmt: skip
# Engines merge these into the call that renders the template, so that the same would come in by the back door.
_WRAPPER = "chat_template_kwargs"
_DENIED_WITHIN = frozenset({"chat_template", "tokenize", "tokenizer"})
# Headers with which vLLM lets a client do the same.
DENIED_HEADERS = frozenset({b"x-data-parallel-rank", b"x-vllm-priority"})

# No API has a tenth as many parameters; the walk over them is a Python loop.
MAX_PARAMETERS = 512
# Keys at any depth, and what looks like one inside a text. A body of 64 MiB can be five million keys, which
# take 3 s and 800 MB to decode before anything counts them; this many take 0.2 s and 70 MB.
MAX_KEYS = 500_000
# In a body longer than this a key may take long to match: 64 MiB of escapes are a second.
LONG_B = 1 << 16
MAX_KEY_CHARS = 256

_UTF8_PIECE_B = 1 << 20  # decoding to check must not hold four bytes for each one of a long body

_LOOKS_LIKE_KEY = re.compile(rb'"[ \t\r\n]*+:')
# Possessive: without it a key of a million escapes costs gigabytes of backtracking state.
_SPACE, _STRING = rb"[ \t\r\n]*+", rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_FIRST_KEY, _NEXT_KEY = (re.compile(_SPACE.join((b"", c, _STRING, b":", b""))) for c in (rb"\{", b","))
_END = re.compile(_SPACE + rb"\}")

_String = msgspec.json.Decoder(str)
_Members = msgspec.json.Decoder(dict[str, msgspec.Raw])

_ASKED = b'{"include_usage":true}'


class BodyRefused(TelaError):
    """A body the ingress answers with 400.

    Args:
        message: what is wrong with it, safe to show.
        code: invalid_json, not_utf8, duplicate_key, too_many_keys, key_too_long, missing_model,
            invalid_model, invalid_type or unsupported_parameter.
        param: the parameter at fault; None when it is the body as a whole.
        hint: what the client may do about it.
    """

    def __init__(self, message: str, *, code: str, param: str | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=code)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A body that was read. Its prompt is not in its repr, so it cannot slip into a log."""

    model: str
    stream: bool
    wants_usage: bool  # the client itself set stream_options.include_usage
    body: bytes = field(repr=False)
    spans: Mapping[str, tuple[int, int]] = field(repr=False)  # of each top-level value: body[start:stop]


def read_request(body: bytes) -> Request:
    """Read a request body of any family: chat, completions, embeddings.

    Raises:
        BodyRefused: not strict JSON in UTF-8, not an object, ambiguous, without a usable `model`, or with a
            parameter of a wrong type or in DENIED.
    """
    _check_utf8(body)
    spans = value_spans(body)
    if not DENIED.isdisjoint(spans):
        _refuse_denied(body, spans, DENIED)
    if _WRAPPER in spans:
        _refuse_wrapped(body, spans)
    return Request(
        model=_model(body, spans),
        stream=_flag(body, spans, "stream", param="stream"),
        wants_usage=_wants_usage(body, spans),
        body=body,
        spans=spans,
    )


def with_model(request: Request, name: str) -> Request:
    """Return the request for another model: only the bytes of the model's value differ.

    Args:
        request: a request that was read.
        name: an identifier, as `registry.text.is_id` has it; it needs no escaping.
    """
    start, stop = request.spans["model"]
    body = b'%s"%s"%s' % (request.body[:start], name.encode("ascii"), request.body[stop:])
    grown = len(body) - len(request.body)
    spans = {key: (a + grown, b + grown) if a > start else (a, b) for key, (a, b) in request.spans.items()}
    spans["model"] = (start, stop + grown)
    return replace(request, model=name, body=body, spans=spans)


def asking_usage(request: Request) -> bytes:
    """Return the body with `stream_options.include_usage` set; nothing else differs.

    A body that has it set is returned as it is, and so is one that does not stream: its answer says what it
    used unasked, and engines refuse stream_options there.
    """
    body = request.body
    if request.wants_usage or not request.stream:
        return body
    if "stream_options" not in request.spans:
        return _spliced(body, request.spans["model"][1], 0, b',"stream_options":' + _ASKED)
    start, stop = request.spans["stream_options"]
    options = body[start:stop]
    if options == b"null":
        return _spliced(body, start, 4, _ASKED)
    inner = value_spans(options)
    if "include_usage" in inner:
        first, last = inner["include_usage"]
        return _spliced(body, start + first, last - first, b"true")
    return _spliced(body, start + 1, 0, b'"include_usage":true' + (b"," if inner else b""))


def value_spans(text: bytes) -> dict[str, tuple[int, int]]:
    """Return the span of each top-level value of a JSON object: text[start:stop].

    One pass in C checks the syntax and yields each value's bytes, the last of those with one key. Then the
    top level is walked: the value at each key must be the very value decoded for it. Where it is not, or a
    key comes twice, the object has it twice. So this takes time by the number of its members, and none by
    their length.

    Raises:
        BodyRefused: not a JSON object, a key is twice in it, or it has too many keys.
    """
    raws = _decode(text)
    if not raws:
        return {}
    spans: dict[str, tuple[int, int]] = {}
    view = memoryview(text)
    stop = 0
    token = _FIRST_KEY.match(text)
    # A dict keeps the order in which its keys came first.
    for key, raw in raws.items():
        if token is None:
            break
        if token[1] != key.encode() and (here := _unescaped(token[1])) != key:
            raise _given_twice(here)
        start = token.end()
        stop = start + len(raw)
        if msgspec.Raw(view[start:stop]) != raw:
            raise _given_twice(key)
        spans[key] = (start, stop)
        token = _NEXT_KEY.match(text, stop)
    if token is not None:
        raise _given_twice(_unescaped(token[1]))
    if not _END.match(text, stop):
        # The value decoded for the last key seen is only the beginning of the one here: 1 of 12.
        raise _given_twice(next(reversed(spans)))
    return spans


def _given_twice(key: str) -> BodyRefused:
    shown = clean(key, 64)
    return BodyRefused(f"parameter {shown} is given twice", code="duplicate_key", param=shown)


def _decode(text: bytes) -> dict[str, msgspec.Raw]:
    is_suspect = text.count(b":") > MAX_KEYS
    if is_suspect and next(islice(_LOOKS_LIKE_KEY.finditer(text), MAX_KEYS, None), None):
        raise BodyRefused(f"the body has more than {MAX_KEYS} keys", code="too_many_keys")
    try:
        raws = _Members.decode(text)
    except msgspec.ValidationError:
        raise BodyRefused("the body is not a JSON object", code="invalid_json") from None
    except msgspec.DecodeError as error:
        raise BodyRefused(f"the body is not valid JSON: {error}", code="invalid_json") from error
    except RecursionError:
        raise BodyRefused("the body is nested too deeply", code="invalid_json") from None
    if len(raws) > MAX_PARAMETERS:
        raise BodyRefused(f"the body has more than {MAX_PARAMETERS} parameters", code="too_many_keys")
    if len(text) > LONG_B and any(len(key) > MAX_KEY_CHARS for key in raws):
        raise BodyRefused(f"a parameter's name has more than {MAX_KEY_CHARS} characters", code="key_too_long")
    return raws


def check_headers(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse headers that are denied.

    Args:
        headers: of a request, names in lower case.

    Raises:
        BodyRefused: naming the header.
    """
    for name, _ in headers:
        if name in DENIED_HEADERS:
            raise _denied(name.decode("ascii"), what="header")


def _refuse_denied(
    body: bytes, spans: Mapping[str, tuple[int, int]], denied: frozenset[str], *, within: str = ""
) -> None:
    for name in spans:
        if name in denied and _value(body, spans, name) is not None:
            raise _denied(f"{within}{name}")


def _refuse_wrapped(body: bytes, spans: Mapping[str, tuple[int, int]]) -> None:
    options = _value(body, spans, _WRAPPER)
    if options is None:
        return
    if options[:1] != b"{":
        raise BodyRefused(f"{_WRAPPER} must be an object or null", code="invalid_type", param=_WRAPPER)
    _refuse_denied(options, _inner_spans(options, _WRAPPER), _DENIED_WITHIN, within=f"{_WRAPPER}.")


def _inner_spans(text: bytes, name: str) -> dict[str, tuple[int, int]]:
    try:
        return value_spans(text)
    except BodyRefused as refused:
        param = name + ("" if refused.param is None else f".{refused.param}")
        raise BodyRefused(f"in {name}: {refused}", code=refused.code, param=param) from None


def _denied(name: str, what: str = "parameter") -> BodyRefused:
    return BodyRefused(
        f"{what} {name} is not accepted here",
        code="unsupported_parameter",
        param=name,
        hint="leave it out; the operator sets it at the engine",
    )


def _unescaped(token: bytes) -> str:
    return _String.decode(b'"%s"' % token)


def _check_utf8(body: bytes) -> None:
    # The decoder skips over a value's text without looking at its encoding; engines refuse it, or worse.
    if body.isascii():
        return
    start = 0
    try:
        while start < len(body):
            piece = body[start : start + _UTF8_PIECE_B]
            is_last = start + len(piece) == len(body)
            start += codecs.utf_8_decode(piece, "strict", is_last)[1]
    except UnicodeDecodeError as error:
        at = start + error.start
        raise BodyRefused(f"the body is not valid UTF-8 (byte {at})", code="not_utf8") from None


def _value(body: bytes, spans: Mapping[str, tuple[int, int]], name: str) -> bytes | None:
    # None when absent or null, which mean the same everywhere in this API.
    if name not in spans:
        return None
    start, stop = spans[name]
    return None if body[start : start + 4] == b"null" else body[start:stop]


def _model(body: bytes, spans: Mapping[str, tuple[int, int]]) -> str:
    value = _value(body, spans, "model")
    if value is None:
        raise BodyRefused(
            "the body names no model", code="missing_model", param="model", hint="GET /v1/models lists them"
        )
    if value[:1] != b'"':
        raise BodyRefused("model must be a string", code="invalid_type", param="model")
    if value == b'""':
        raise BodyRefused("model is empty", code="missing_model", param="model")
    name = _unescaped(value[1:-1])
    if not is_id(name):
        raise BodyRefused("model is not a model's name", code="invalid_model", param="model")
    return name


def _flag(body: bytes, spans: Mapping[str, tuple[int, int]], name: str, *, param: str) -> bool:
    # Strict, because engines are not: 1 and "true" are true to some, and then both would disagree.
    value = _value(body, spans, name)
    if value not in {None, b"true", b"false"}:
        raise BodyRefused(f"{param} must be true, false or null", code="invalid_type", param=param)
    return value == b"true"


def _wants_usage(body: bytes, spans: Mapping[str, tuple[int, int]]) -> bool:
    options = _value(body, spans, "stream_options")
    if options is None:
        return False
    if options[:1] != b"{":
        raise BodyRefused("stream_options must be an object or null", code="invalid_type", param="stream_options")
    inner = _inner_spans(options, "stream_options")
    return _flag(options, inner, "include_usage", param="stream_options.include_usage")


def _spliced(body: bytes, at: int, removed: int, added: bytes) -> bytes:
    return b"".join((body[:at], added, body[at + removed :]))
