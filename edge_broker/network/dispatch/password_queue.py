"""Passwords that wait to be verified, which takes milliseconds each by intent: the addresses they come from have turns.

| client | then |
|---|---|
| sends them by the thousand | lets another address wait for one of them at most |
| goes before it is its turn | has none verified, and nothing is kept of it |

Contains: whose turn it is. Does not contain: what a password is verified against (security/sasl.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from edge_broker.network.connection.connection import Connection
    from edge_broker.network.worker import Done, Worker


class Waiting(NamedTuple):
    """A job, and the function called after it; `dropped` if the connection is lost before its turn."""

    connection: Connection
    work: Callable[[], Any]
    done: Done
    dropped: Callable[[], None]


class Passwords:
    """Jobs for the worker `logins`, which has one at a time; owned by the loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, Waiting]] = {}  # by address, the one whose turn is next first; by token
        self._under_way = False

    def submit(self, worker: Worker, waiting: Waiting, token: int) -> None:
        """Have a job done in its turn; `token` is the request's."""
        host = waiting.connection.session.host
        self._waiting.setdefault(host, {})[token] = waiting

        def verification_dropped() -> None:
            self._take(host, token)
            waiting.dropped()

        waiting.connection.on_close[token] = verification_dropped
        self._verify_next(worker)

    def _take(self, host: str, token: int) -> Waiting:
        """Take one out, and its address with the last one."""
        of_host = self._waiting[host]
        taken = of_host.pop(token)
        if not of_host:
            del self._waiting[host]
        return taken

    def _verify_next(self, worker: Worker) -> None:
        """Give the worker the next one: the first of the next address, whose turn comes again after the others'."""
        if self._under_way or not self._waiting:
            return
        host = next(iter(self._waiting))
        self._waiting[host] = self._waiting.pop(host)
        token = next(iter(self._waiting[host]))
        taken = self._take(host, token)
        taken.connection.on_close.pop(token)
        self._under_way = True

        def over(result: Any, error: Exception | None) -> None:
            self._under_way = False
            self._verify_next(worker)
            taken.done(result, error)

        worker.submit(taken.work, over)
