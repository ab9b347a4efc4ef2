"""What the demo engine understands: request bodies as records, and the refusals it answers with.

Unknown fields are ignored, as engines do; wrong types of known ones are refused.
"""

from typing import Final, TypeVar

import msgspec

from node.engine import demo_text as text
from registry.errors import TelaError

MAX_CHOICES: Final = 128  # OpenAI's limit on n
MAX_DIMENSIONS: Final = 8192
DEFAULT_DIMENSIONS: Final = 64

# A text, a list of texts, a list of token numbers, or a list of lists of token numbers.
Prompt = str | list[str | int | list[int]]
_Body = TypeVar("_Body")


class RequestRefused(TelaError):
    """A request that is answered with an OpenAI error object of this HTTP status."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str = "") -> None:
        super().__init__(message, code="request_refused")
        self.status = status
        self.kind = kind
        self.param = param  # the field at fault; empty: the request as a whole

    def body(self) -> bytes:
        """Return the error object."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param or None,
            "code": self.status,
        }
        return msgspec.json.encode({"error": error})


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream says beside its content."""

    include_usage: bool | None = None


class Part(msgspec.Struct, frozen=True):
    """One part of a message; only its text counts."""

    text: str | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str | list[Part] | None = None

    def text(self) -> str:
        """Return what is said in the message."""
        if isinstance(self.content, str):
            return self.content
        return " ".join(part.text or "" for part in self.content or ())


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The fields a chat and a completion share; `stop` and sampling parameters are ignored."""

    model: str
    max_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None  # vLLM's: go on to max_tokens, as benchmarks ask

    def wants_usage(self) -> bool:
        """Say whether a stream ends with the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ChatRequest(Generation, frozen=True, kw_only=True):
    """The body of /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None

    def wanted_tokens(self) -> int | None:
        """Return the client's limit on the answer; the newer name wins."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompt_tokens(self) -> list[int]:
        """Return the size of the one prompt a chat is."""
        return [sum(text.count_words(message.text()) for message in self.messages)]

    def canonical(self) -> bytes:
        """Return what the answer depends on beside the model."""
        return msgspec.json.encode(self.messages)


class CompletionRequest(Generation, frozen=True, kw_only=True):
    """The body of /v1/completions."""

    prompt: Prompt

    def wanted_tokens(self) -> int | None:
        """Return the client's limit on the answer."""
        return self.max_tokens

    def prompt_tokens(self) -> list[int]:
        """Return the size of each prompt."""
        return [count_tokens(prompt) for prompt in prompts_of(self.prompt)]

    def canonical(self) -> bytes:
        """Return what the answer depends on beside the model."""
        return msgspec.json.encode(self.prompt)


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of /v1/embeddings."""

    model: str
    input: Prompt
    encoding_format: str | None = None
    dimensions: int | None = None


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of /tokenize: a prompt or messages."""

    model: str
    prompt: str | None = None
    messages: list[Message] | None = None


def read_body(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    """Return a body as a record.

    Raises:
        RequestRefused: it is no JSON, or a field is missing or of a wrong type.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestRefused(str(error)) from error


def prompts_of(prompt: Prompt) -> list[str | list[int]]:
    """Return the prompts a field holds; plain numbers are one prompt of tokens."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestRefused("the prompt is an empty list")
    numbers = [item for item in prompt if isinstance(item, int)]
    if not numbers:
        return [item for item in prompt if not isinstance(item, int)]
    if len(numbers) != len(prompt):
        raise RequestRefused("a prompt is a list of token numbers or of prompts, not of both")
    return [numbers]


def count_tokens(prompt: str | list[int]) -> int:
    """Return the size of one prompt in tokens."""
    return text.count_words(prompt) if isinstance(prompt, str) else len(prompt)


def plan_length(
    request: ChatRequest | CompletionRequest,
    prompt_tokens: list[int],
    *,
    natural_tokens: int,
    context_tokens: int,
) -> tuple[int, str]:
    """Return how many tokens each choice gets, and its finish reason.

    Raises:
        RequestRefused: the client's limits make no sense, or prompt and answer exceed the context.
    """
    wanted = request.wanted_tokens()
    if wanted is not None and wanted < 1:
        raise RequestRefused(f"max_tokens must be at least 1, got {wanted}.", param="max_tokens")
    if not 1 <= (request.n or 1) * len(prompt_tokens) <= MAX_CHOICES:
        raise RequestRefused(f"n must be between 1 and {MAX_CHOICES}.", param="n")
    longest = max(prompt_tokens)
    if longest + (wanted or 1) > context_tokens:
        raise RequestRefused(
            f"This model's maximum context length is {context_tokens} tokens. However, you "
            f"requested {longest + (wanted or 1)} tokens ({longest} in the prompt, {wanted or 1} "
            "in the answer). Please reduce the length of either one.",
            param="max_tokens" if wanted else "messages",
        )
    limit = wanted or context_tokens - longest
    if limit < natural_tokens or request.ignore_eos:
        return limit, "length"
    return natural_tokens, "stop"
