"""Making a key of a claim: the secret is made here, and only its digest goes to the door."""

from typing import Any

from accounting.keys import digest, mint
from console.caller import Caller
from console.credentials import Credential
from console.presented import checked_claim, read_word
from registry.errors import TelaError
from registry.text import clean

TRIES = 3  # an answer that was lost is asked for again with the same secret, which the door then knows


def claimed(offer: str, url: str, entropy: bytes, *, insecure: bool) -> tuple[dict[str, Any], Credential]:
    """The door's answer and the key.

    Args:
        offer: the claim, `-` or `@FILE`.
        url: the door.
        entropy: 32 random bytes, the key's secret.
        insecure: send it over plain HTTP beyond this host.

    Raises:
        TelaError: it is no claim, or the door refuses it.
    """
    claim = checked_claim(read_word(offer))
    caller = Caller(url, claim, insecure=insecure)
    secret = mint(entropy)
    body = {"claim": claim, "digest": digest(secret).hex()}
    answer = _asked(Caller(caller.url), body)
    label, key = clean(str(answer.get("label", "")), 80), clean(str(answer.get("id", "")), 80)
    return answer, Credential(caller.url, key, secret, label)


def _asked(caller: Caller, body: dict[str, Any]) -> dict[str, Any]:
    for _ in range(TRIES - 1):
        try:
            return caller.post("/v1/keys/claim", body)
        except TelaError as error:
            if error.code != "no_answer":
                raise
    return caller.post("/v1/keys/claim", body)
