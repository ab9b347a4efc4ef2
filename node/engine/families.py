"""The kinds of requests an engine may serve: where they go, the smallest of each, and what a result looks like.

Pure. No engine says which of its endpoints its models serve: they are tried (`node.engine.trial`).
"""

import msgspec

FAMILIES = ("chat", "completions", "embeddings")
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings"}
TRIAL_ID = "tela-trial"  # as X-Request-Id: whoever reads the engine's log sees who asked

_SMALLEST: dict[str, dict[str, object]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "completions": {"prompt": "Hi", "max_tokens": 1},
    "embeddings": {"input": "Hi"},
}


class _Choice(msgspec.Struct):
    message: dict[str, msgspec.Raw] | None = None
    text: str | None = None


class _Generated(msgspec.Struct):
    choices: list[_Choice]


class _Vector(msgspec.Struct):
    embedding: list[float] | str


class _Embedded(msgspec.Struct):
    data: list[_Vector]


_GENERATED = msgspec.json.Decoder(_Generated)
_EMBEDDED = msgspec.json.Decoder(_Embedded)


def smallest_question(family: str, model: str) -> bytes:
    """The body of the cheapest request of a family: one token, or the vector of one word."""
    return msgspec.json.encode({"model": model, **_SMALLEST[family]})


def is_result(family: str, body: bytes) -> bool:
    """Whether a body is a result of a family."""
    try:
        if family == "embeddings":
            vectors = _EMBEDDED.decode(body).data
            return bool(vectors) and bool(vectors[0].embedding)
        choices = _GENERATED.decode(body).choices
    except (msgspec.MsgspecError, RecursionError):
        return False
    if not choices:
        return False
    return (choices[0].message if family == "chat" else choices[0].text) is not None
