"""The demo engine's answers as bytes: one JSON body, or the events of a stream, framed as vLLM does.

Pure. What does not change from token to token is joined once per answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from node.engine import demo_text as text
from node.engine.demo_requests import (
    DEFAULT_DIMENSIONS,
    MAX_DIMENSIONS,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RequestRefused,
    count_tokens,
    plan_length,
    prompts_of,
)

CREATED: Final = 1_700_000_000  # a constant, so that an answer is the same bytes in every run
# A made-up prefix cache that is always warm: whole blocks of vLLM's default size.
_CACHE_BLOCK_TOKENS: Final = 16

# One event of a stream: its bytes, the tokens it carries, and whether a new step of the model
# made it (choices of one step share the wait for it).
Event = tuple[bytes, int, bool]

_DONE: Final = (b"data: [DONE]\n\n", 0, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A generated answer, complete before its first byte is sent."""

    is_chat: bool
    is_stream: bool
    has_usage: bool  # of a stream
    head: bytes  # `"id":…` without the object's name
    tail: bytes  # `"created":…,"model":…`
    choices: list[list[bytes]]  # the tokens of each choice, as the insides of JSON strings
    reason: str  # why every choice ended
    prompt_tokens: int

    def reasons(self) -> list[str]:
        """Return the finish reason of each choice."""
        return [self.reason] * len(self.choices)

    def steps(self) -> int:
        """Return how often the model would have run."""
        return len(self.choices[0])

    def completion_tokens(self) -> int:
        """Return the tokens of all choices."""
        return sum(map(len, self.choices))

    def saying(self, words: str) -> "Answer":
        """Return the answer with other words in every choice, as one token."""
        return replace(self, choices=[[text.escape(words)]] * len(self.choices), reason="stop")

    def usage(self) -> bytes:
        """Return the usage object."""
        completion = self.completion_tokens()
        cached = self.prompt_tokens // _CACHE_BLOCK_TOKENS * _CACHE_BLOCK_TOKENS
        return (
            b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
            b'"prompt_tokens_details":{"cached_tokens":%d}}'
            % (self.prompt_tokens, self.prompt_tokens + completion, completion, cached)
        )

    def body(self) -> bytes:
        """Return the answer as one JSON object."""
        said = b'"message":{"role":"assistant","content":"%s"}' if self.is_chat else b'"text":"%s"'
        kind = b"chat.completion" if self.is_chat else b"text_completion"
        frame = b'{"index":%d,' + said + b',"logprobs":null,"finish_reason":"%s"}'
        reason = self.reason.encode()
        choices = b",".join(frame % (index, b"".join(tokens), reason) for index, tokens in enumerate(self.choices))
        return b'{%s"object":"%s",%s,"choices":[%s],"usage":%s}' % (
            self.head,
            kind,
            self.tail,
            choices,
            self.usage(),
        )

    def events(self) -> Iterator[Event]:
        """Yield the events of the stream, [DONE] included."""
        kind = b"chat.completion.chunk" if self.is_chat else b"text_completion"
        opening = b'data: {%s"object":"%s",%s,"choices":[' % (self.head, kind, self.tail)
        closing = b'],"usage":null}\n\n' if self.has_usage else b"]}\n\n"
        if self.is_chat:
            role = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
            for index in range(len(self.choices)):
                yield b'%s{"index":%d,%s%s' % (opening, index, role, closing), 0, False
        yield from self._content(opening, closing)
        said = b'"delta":{}' if self.is_chat else b'"text":""'
        last = b'%s{"index":%d,%s,"logprobs":null,"finish_reason":"%s"}%s'
        for index in range(len(self.choices)):
            yield last % (opening, index, said, self.reason.encode(), closing), 0, False
        if self.has_usage:
            yield opening + b'],"usage":' + self.usage() + b"}\n\n", 0, False
        yield _DONE

    def _content(self, opening: bytes, closing: bytes) -> Iterator[Event]:
        """Yield the tokens, the choices taking turns."""
        said = b'"delta":{"content":"' if self.is_chat else b'"text":"'
        quote = b'"},' if self.is_chat else b'",'
        after = quote + b'"logprobs":null,"finish_reason":null}' + closing
        before = [b'%s{"index":%d,%s' % (opening, i, said) for i in range(len(self.choices))]
        if len(before) == 1:
            first = before[0]
            for token in self.choices[0]:
                yield first + token + after, 1, True
            return
        for step in zip(*self.choices, strict=True):
            for index, token in enumerate(step):
                yield before[index] + token + after, 1, index == 0


def answer_to(request: ChatRequest | CompletionRequest, *, natural_tokens: int, context_tokens: int) -> Answer:
    """Return the answer to a request: a function of nothing else.

    Raises:
        RequestRefused: see plan_length().
    """
    prompts = request.prompt_tokens()
    count, reason = plan_length(request, prompts, natural_tokens=natural_tokens, context_tokens=context_tokens)
    seed = text.seed_of(request.model, request.canonical())
    is_chat = isinstance(request, ChatRequest)
    number = (request.n or 1) * len(prompts)
    return Answer(
        is_chat=is_chat,
        is_stream=bool(request.stream),
        has_usage=request.wants_usage(),
        head=b'"id":"%s-%s",' % (b"chatcmpl" if is_chat else b"cmpl", seed[:16].hex().encode()),
        tail=b'"created":%d,"model":"%s"' % (CREATED, text.escape(request.model)),
        choices=[text.tokens_of(seed, index, count) for index in range(number)],
        reason=reason,
        prompt_tokens=sum(prompts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The answer to an embedding request. No model runs step by step, so it has no pace."""

    vectors: list[list[float]]
    is_packed: bool  # as base64 of float32
    id: str
    model: str
    prompt_tokens: int

    def reasons(self) -> list[str]:
        """Return the finish reason, as vLLM counts one for a pooled request."""
        return ["stop"]

    def steps(self) -> int:
        """Return how often the model would have generated."""
        return 0

    def completion_tokens(self) -> int:
        """Return the tokens generated."""
        return 0

    def body(self) -> bytes:
        """Return the answer as one JSON object."""
        packed = [text.pack_embedding(v) if self.is_packed else v for v in self.vectors]
        answer = {
            "id": self.id,
            "object": "list",
            "created": CREATED,
            "model": self.model,
            "data": [
                {"index": index, "object": "embedding", "embedding": vector} for index, vector in enumerate(packed)
            ],
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "total_tokens": self.prompt_tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }
        return msgspec.json.encode(answer)


def vectors_for(request: EmbeddingRequest, *, context_tokens: int) -> Vectors:
    """Return the answer to an embedding request: the same text, the same vector.

    Raises:
        RequestRefused: the size, the format or the dimensions are beyond what there is.
    """
    dimensions = DEFAULT_DIMENSIONS if request.dimensions is None else request.dimensions
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise RequestRefused(f"dimensions: 1 to {MAX_DIMENSIONS}.", param="dimensions")
    if request.encoding_format not in {None, "float", "base64"}:
        raise RequestRefused("encoding_format: float or base64.", param="encoding_format")
    inputs = prompts_of(request.input)
    sizes = [count_tokens(prompt) for prompt in inputs]
    if max(sizes) > context_tokens:
        message = f"This model's maximum context length is {context_tokens} tokens."
        raise RequestRefused(message, param="input")
    seeds = [text.seed_of(request.model, msgspec.json.encode(prompt)) for prompt in inputs]
    return Vectors(
        vectors=[text.embedding_of(seed, dimensions) for seed in seeds],
        is_packed=request.encoding_format == "base64",
        id=f"embd-{seeds[0][:16].hex()}",
        model=request.model,
        prompt_tokens=sum(sizes),
    )
