"""What a brain knows of one live link. Pure."""

from typing import NamedTuple

from registry.ids import key_id

ANSWER_B = 16_777_216  # what one peer may draw by questions at once: a large replica, several times what a link queues
ANSWER_B_PER_S = 4_194_304.0  # what it earns again; a question of 2 KB draws a whole digest, so a flood must not pay


class Contact(NamedTuple):
    """Who is at the other end of a link, as its handshake proved."""

    key: bytes
    is_hub: bool
    accounts: bool
    initiator: bytes  # the key of whichever end dialled


class Line:
    """One live link. Mutable: changed only by `gossip.peer`."""

    __slots__ = (
        "answer_b",
        "answered",
        "contact",
        "fruitless",
        "heard",
        "is_parted",
        "mismatches",
        "next_ping",
        "node",
        "offset",
        "repair_at",
    )

    def __init__(self, contact: Contact, now: float) -> None:
        self.contact = contact
        self.node = key_id(contact.key)
        self.heard = now
        self.next_ping = now
        self.repair_at = now
        self.is_parted = False  # one end turned the other away: its loss says nothing about the node
        self.mismatches = 0  # pings in a row that showed different roots
        self.fruitless = 0  # repairs in a row that brought nothing
        self.offset: float | None = None  # its clock minus ours, seconds; None: no ping yet
        self.answer_b = float(ANSWER_B)  # bytes of answers it may still draw, as of `answered`
        self.answered = now

    def may_draw(self, size_b: int, now: float) -> bool:
        """Whether it may draw another answer; if so, what that costs is taken."""
        self.answer_b = min(ANSWER_B, self.answer_b + (now - self.answered) * ANSWER_B_PER_S)
        self.answered = now
        if self.answer_b <= 0:
            return False
        self.answer_b -= size_b
        return True
