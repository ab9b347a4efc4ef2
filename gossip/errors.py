"""Whose fault it was: ours or the other end's."""

from registry.errors import TelaError


class LocalProtocolError(TelaError):
    """We asked a protocol core for something it cannot do in its state."""


class RemoteProtocolError(TelaError):
    """The other end broke the protocol; the link it came on must be dropped."""
