"""The error tree every package hangs its own errors on."""


class TelaError(Exception):
    """An error that may be shown to a person.

    Args:
        message: what happened, to what. No secrets, no text from another node that was not sanitised.
        hint: what to do next; empty when nothing useful can be said.
        code: a stable word for programs.
    """

    def __init__(self, message: str, *, hint: str = "", code: str = "error") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class RecordRefused(TelaError):
    """Bytes from outside that did not become a record, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"record refused: {reason}", code="record_refused")
        self.reason = reason
