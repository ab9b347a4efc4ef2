"""The model's name in a request, from what it is called in the fabric to what its engine calls it.

Pure. Only the bytes of that one value change.
"""

from collections.abc import Mapping

import msgspec

from node.ingress.splice import value_spans

_String = msgspec.json.Decoder(str)


def renamed(body: bytes, names: Mapping[str, str]) -> bytes:
    """A request body with the engine's own name for its model.

    Args:
        body: a JSON object.
        names: the engine's name for each other one; a model that is not in it stays.

    Raises:
        BodyRefused: it is no JSON object, or ambiguous.
    """
    span = value_spans(body).get("model")
    if span is None:
        return body
    start, stop = span
    try:
        called = _String.decode(body[start:stop])
    except msgspec.MsgspecError:
        return body
    if (name := names.get(called)) is None:
        return body
    return b"".join((body[:start], msgspec.json.encode(name), body[stop:]))
