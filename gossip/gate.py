"""The gate of a node: who may link, and whom to turn away later. Mutable, no I/O; it opens and closes nothing."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gossip.accepting import Acceptable, acceptance, renewals
from gossip.invited import Door
from gossip.line import Contact
from gossip.verdict import Verdict, judge, weigh
from registry.ids import key_id
from registry.kinds import ACCOUNTS_ROLES, HUB_ROLES

RENEW_LOOK_S = 60.0  # acceptances are renewed daily: a minute late is no matter

POWERS = HUB_ROLES | ACCOUNTS_ROLES  # what a link is treated differently for


class _Admitted(NamedTuple):
    key: bytes
    node: str
    verdict: Verdict
    roles: frozenset[str] = frozenset()  # what it was granted when the link came up
    is_owed: bool = False  # an acceptance, once this node is ready to write any


class Gate:
    """Remembers what was judged of each link.

    Args:
        door: what is known now.
        is_ready: whether this node may accept members: it would have heard of those that another hub accepted.
    """

    def __init__(self, door: Callable[[], Door], *, is_ready: Callable[[], bool] = lambda: True) -> None:
        self._door = door
        self._is_ready = is_ready
        self._admitted: dict[int, _Admitted] = {}  # by link: two to one node may be under way at once
        self._renew_at = float("-inf")

    def admit(self, link: int, key: bytes, payload: bytes) -> str | None:
        """Judge a greeting: None to admit, else the code to refuse with."""
        door = self._door()
        verdict = judge(payload, key, door)
        is_early = verdict.accept is not None and not self._is_ready()
        if is_early and key not in door.anchors:  # those are let in: whom they accepted is heard from them
            return "not_ready"
        if verdict.refusal is None:
            verdict = verdict._replace(accept=None) if is_early else verdict
            self._admitted[link] = _Admitted(key, key_id(key), verdict, is_owed=is_early)
        return verdict.refusal

    def entered(self, link: int) -> Verdict:
        """What was judged of a link that is live now; judged again where it needs an acceptance.

        Two keys may come with one invite at once, and the first of them uses it up.
        """
        admitted = self._admitted[link]
        verdict = admitted.verdict
        if verdict.accept is not None and verdict.greeting is not None:
            again = weigh(verdict.greeting, admitted.key, self._door())
            verdict = (
                again if again.refusal is None else verdict._replace(refusal=again.refusal, proofs=(), accept=None)
            )
            self._admitted[link] = admitted._replace(verdict=verdict)
        return verdict

    def contact(self, link: int, initiator: bytes) -> Contact:
        """Who is at the other end, with what it claims as far as it was granted; asked once its proofs are merged."""
        key, node, verdict, *_ = self._admitted[link]
        assert verdict.greeting is not None  # it was admitted
        grant = self._door().standing.grants.get((node, verdict.member))
        roles = verdict.roles if grant is None else grant.roles  # an anchor may have none yet
        self._admitted[link] = self._admitted[link]._replace(roles=roles)
        hello = verdict.greeting.hello
        is_hub, accounts = not HUB_ROLES.isdisjoint(roles), not ACCOUNTS_ROLES.isdisjoint(roles)
        return Contact(key, is_hub=hello.hub and is_hub, accounts=hello.accounts and accounts, initiator=initiator)

    def forget(self, link: int) -> None:
        """A link is gone."""
        self._admitted.pop(link, None)

    def lapsed(self, links: Iterable[int]) -> list[tuple[int, str]]:
        """The links of nodes that may not be linked any more, each with the code that says why."""
        door = self._door()
        found = []
        for link in links:
            key, node, verdict, roles, _ = self._admitted[link]
            grant = door.standing.grants.get((node, verdict.member))
            if grant is not None:
                why_not = None if roles & POWERS <= grant.roles else "narrowed"
            else:
                why_not = weigh(verdict.greeting, key, door).refusal if verdict.greeting is not None else None
            if why_not is not None:
                found.append((link, why_not))
        return found

    def owed(self, links: Iterable[int]) -> list[Acceptable]:
        """Acceptances that had to wait until this node is ready, and need not any longer."""
        waiting = [link for link in links if self._admitted[link].is_owed]
        if not waiting or not self._is_ready():
            return []
        found: dict[bytes, Acceptable] = {}  # by the key of the invite: two may have come with one
        for link in waiting:
            admitted = self._admitted[link] = self._admitted[link]._replace(is_owed=False)
            assert admitted.verdict.greeting is not None  # it was admitted
            accept = weigh(admitted.verdict.greeting, admitted.key, self._door()).accept
            if accept is not None:
                found.setdefault(accept.key.owner, acceptance(accept, self._door().now))
        return list(found.values())

    def renewals(self, links: Iterable[int]) -> list[Acceptable]:
        """Acceptances to say again now, of the members behind links and of this node's own."""
        door = self._door()
        if self._renew_at - RENEW_LOOK_S <= door.now < self._renew_at:  # earlier than that, the clock was wrong then
            return []
        self._renew_at = door.now + RENEW_LOOK_S
        members = {self._admitted[link].verdict.member for link in links}
        me = key_id(door.me)
        own = {member for node, member in door.standing.grants if node == me}
        return renewals(members | own, door)
