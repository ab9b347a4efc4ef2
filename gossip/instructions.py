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
    """End a link; `reason` is a word for logs. Not clean: its other end does not read, do not wait."""

    link: LinkId
    reason: str
    is_clean: bool = True


Instruction = Send | Drop
