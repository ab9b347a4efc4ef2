"""Steps: a key is offered, claimed at one ingress, known to the other, and refused there once it is revoked."""

from accounting.keys import digest, mint
from node.scenario.expect import hold, until
from node.scenario.stage import SPREAD_S, Stage, Steps

REVOKED_S = 5.0  # until every ingress refuses a key that was revoked at one


class Keys:
    """The life of one key. Mutable: it remembers the key from one step to the next.

    Args:
        stage: the fabric.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._traffic = stage.traffic
        self._id = ""
        self._secret = ""

    @property
    def steps(self) -> Steps:
        """In their order."""
        return (("key claimed", self._claimed), ("key revoked", self._revoked))

    async def _claimed(self) -> str:
        first, second = self._traffic.doors
        offered = await self._stage.operator.offer_key(self._stage.rng)
        hold(offered.told.counts, f"the offer counts nowhere: {offered.told.why}")
        secret = mint(self._stage.rng.randbytes(32))
        status, answer = await self._claim(offered.claim, secret)
        hold(status == 200, f"the claim was answered with {status}: {answer}")
        status, _ = await self._claim(offered.claim, mint(self._stage.rng.randbytes(32)))
        hold(status == 403, f"claimed again it was answered with {status}")
        hold(await self._answers(0, secret), f"{first.name} refuses it")
        asked = self._stage.now()
        await until(lambda: self._answers(1, secret), SPREAD_S, f"{second.name} did not take it")
        self._id, self._secret = offered.id, secret
        took_ms = (self._stage.now() - asked) * 1000
        return f"claimed once at {first.name}, and called at {second.name} {took_ms:.0f} ms later"

    async def _revoked(self) -> str:
        second = self._traffic.doors[1]
        hold(bool(self._secret), "no key was claimed")
        asked = self._stage.now()
        told = await self._stage.operator.revoke_key(self._id)
        hold(told.counts, f"the revocation counts nowhere: {told.why}")
        await until(lambda: self._is_refused(1), REVOKED_S, f"{second.name} did not refuse it")
        took_ms = (self._stage.now() - asked) * 1000
        await until(lambda: self._is_refused(0), REVOKED_S, "the door that gave it did not refuse it")
        return f"refused at {second.name} after {took_ms:.0f} ms"

    async def _claim(self, claim: str, secret: str) -> tuple[int, dict[str, object]]:
        body: dict[str, object] = {"claim": claim, "digest": digest(secret).hex()}
        return await self._traffic.doors[0].caller.post("/v1/keys/claim", body)

    async def _answers(self, at: int, secret: str) -> bool:
        answer = await self._traffic.call(stream=False, at=at, key=secret)
        hold(answer.trouble is None or answer.status == 401, answer.trouble or "")
        return answer.status == 200

    async def _is_refused(self, at: int) -> bool:
        return (await self._traffic.call(stream=False, at=at, key=self._secret)).status == 401
