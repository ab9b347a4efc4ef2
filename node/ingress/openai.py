"""OpenAI-shaped bodies: errors on every path, and the model list from the registry."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from registry.text import clean
from registry.views import ModelRow

JSON_TYPE = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is an error: whose fault, what about, and whether to come back."""

    status: int
    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())


def error_body(refusal: Refusal) -> bytes:
    """The JSON of an error."""
    return msgspec.json.encode(
        {
            "error": {
                "message": clean(refusal.message, 1000),
                "type": refusal.type,
                "param": refusal.param,
                "code": refusal.code,
            }
        }
    )


def retry_after(seconds: int) -> tuple[tuple[bytes, bytes], ...]:
    """Tells a client when to come back."""
    return ((b"retry-after", str(seconds).encode()),)


def unauthorized(reason: str) -> Refusal:
    """No valid key."""
    return Refusal(status=401, message=reason, code="invalid_api_key", headers=((b"www-authenticate", b"Bearer"),))


def unknown_model(model: str, known: Iterable[str]) -> Refusal:
    """No such model; names the ones that are like it."""
    alike = _nearest(model, known)
    hint = f" Did you mean {', '.join(alike)}?" if alike else ""
    return Refusal(
        status=404,
        message=f"The model '{model}' does not exist or you do not have access to it.{hint}",
        code="model_not_found",
        param="model",
    )


def no_replica(model: str, why: str) -> Refusal:
    """The model is known and nobody can serve it now."""
    return Refusal(
        status=503,
        message=f"No replica of '{model}' can take this request now: {why}.",
        code="no_healthy_provider",
        type="server_error",
        headers=retry_after(2),
    )


def upstream_failed(status: int, message: str, code: str) -> Refusal:
    """Every attempt failed; the client should not multiply ours by its own."""
    return Refusal(
        status=status,
        message=message,
        code=code,
        type="server_error",
        headers=((b"x-should-retry", b"false"),),
    )


def model_object(row: ModelRow) -> dict[str, object]:
    """A model as clients expect it."""
    shown: dict[str, object] = {
        "id": row.id,
        "object": "model",
        "created": row.offer.created,
        "owned_by": "tela",
    }
    if row.offer.context_tokens is not None:
        shown["max_model_len"] = row.offer.context_tokens
    return shown


def model_list(rows: Iterable[ModelRow]) -> bytes:
    """The JSON of /v1/models: what can be called now."""
    data = [model_object(row) for row in rows if row.routable]
    return msgspec.json.encode({"object": "list", "data": data})


def _nearest(model: str, known: Iterable[str]) -> list[str]:
    wanted = model.lower()
    last = wanted.rsplit("/", 1)[-1]
    return [name for name in known if last in name.lower() or name.lower() in wanted][:3]
