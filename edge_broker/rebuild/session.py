"""A rebuild's session with ZooKeeper: each request of its steps is answered before the next.

Contains: that. Does not contain: the steps (cluster/rebuild/rebuild.py).
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from drupelet.errors import CommandFailed
from edge_broker.cluster.rebuild.rebuild import rebuild
from edge_broker.cluster.rebuild.rebuild_plan import Plan
from edge_broker.cluster.znodes.zookeeper import Answer, Connected, Event, Expired, Request, Suspended
from edge_broker.configuration.config import BrokerConfig
from edge_broker.network.cluster.member_credentials import credentials
from edge_broker.network.cluster.member_settings import asked_session_ms
from edge_broker.network.cluster.zookeeper_client import KazooSession

ANSWER_S = 30.0


class _Conversation:
    """One request at a time; all calls come from the thread that made it."""

    def __init__(self, config: BrokerConfig) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._connect = config.text("zookeeper.connect")
        self._connected, self._token = False, 0
        self._answer: Answer | None = None
        session_ms = asked_session_ms(config.integer("zookeeper.session.timeout.ms"))
        self._session = KazooSession(self._connect, session_ms, self, self._calls.put, credentials(config))

    def answer_received(self, token: int, answer: Answer) -> None:
        """As Listener."""
        if token == self._token:
            self._answer = answer

    def event_received(self, event: Event) -> None:
        """As Listener."""
        if isinstance(event, Connected):
            self._connected = True
        elif isinstance(event, Suspended | Expired):
            self._connected = False

    def ask(self, request: Request) -> Answer:
        """Ask once connected; CommandFailed where nothing is answered within ANSWER_S."""
        self._until(lambda: self._connected)
        self._token, self._answer = self._token + 1, None
        self._session.ask(self._token, request)
        self._until(lambda: self._answer is not None)
        assert self._answer is not None
        return self._answer

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            try:
                self._calls.get(timeout=ANSWER_S)()
            except Empty:
                raise CommandFailed(
                    f"ZooKeeper at {self._connect} does not answer; see zookeeper.connect and that most servers run, "
                    "then run the same command again: it goes on"
                ) from None

    def close(self) -> None:
        """End the session."""
        self._session.close()


def write(plan: Plan, config: BrokerConfig, *, replaces: bool) -> None:
    """Write a plan into the ensemble of a checked configuration. RebuildRefused, CommandFailed, ConfigurationError."""
    conversation = _Conversation(config)
    try:
        steps = rebuild(plan, replaces=replaces)
        request = next(steps)
        while True:
            request = steps.send(conversation.ask(request))
    except StopIteration:
        return
    finally:
        conversation.close()
