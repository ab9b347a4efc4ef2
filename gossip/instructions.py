"""What a peer's brain asks its shell to do."""

from dataclasses import dataclass

LinkId = int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control frame on a link."""

    link: LinkId
    frame: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Close a link; `reason` is a word for logs."""

    link: LinkId
    reason: str


Instruction = Send | Drop
