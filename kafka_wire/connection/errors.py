"""The errors of a connection: each is one sentence for a person.

Does not contain: the meaning of error codes, which the caller knows.
"""

from __future__ import annotations


class WireError(Exception):
    """A broker did not do what was requested."""


class ConnectionLost(WireError):
    """The connection is gone, or was never made: requests in flight may have arrived or not."""


class BrokerRefused(ConnectionLost):
    """The connection was never made, though the host answers: the port is closed, or TLS or authentication fails."""


class NobodyListens(BrokerRefused):
    """The port is closed: the broker is not up, but may be at any moment."""


class VersionUnknown(WireError):
    """There is no version of an API that both sides speak."""


class NoCoordinator(WireError):
    """No broker coordinates a group or a transactional id now; `code` is the response's."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code
