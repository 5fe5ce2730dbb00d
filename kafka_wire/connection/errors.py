"""The errors of a connection: each is one sentence for a person.

Does not contain: the meaning of error codes, which the caller knows.
"""

from __future__ import annotations


class WireError(Exception):
    """What cannot be had from a broker."""


class ConnectionLost(WireError):
    """The connection is gone, or was never made: what was under way may have arrived or not."""


class BrokerRefused(ConnectionLost):
    """The connection was never made, though somebody is there: the port is closed, or TLS or the log-in fails."""


class NobodyListens(BrokerRefused):
    """The port is closed: the broker is not up, and may be at any moment."""


class VersionUnknown(WireError):
    """There is no version of an API that both sides speak."""


class NoCoordinator(WireError):
    """No broker looks after a group or a transactional id for us now; `code` is the one that was answered."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code
