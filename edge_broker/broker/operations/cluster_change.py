"""Changes of topics that a cluster agrees on: asked of ZooKeeper, over when this broker knows them to hold.

| step | what the others see |
|---|---|
| the names are taken | a request to this broker that makes, deletes or alters one waits |
| each change is asked for | the old |
| ZooKeeper has refused it | the old; that change is over |
| another broker has changed the topic meanwhile | it is requested again after the known change, ASKED_MAX times |
| the outcome is unknown, or the session was over | the same, once everything was read again, unless it shows to hold |
| the image shows it | the new; the name is free, that change is over |
| the time is over | REQUEST_TIMED_OUT: it may hold, or come to hold |

The steps go on whether or not the client is still there. Only the image shows what holds in the end, so it does
not matter whose answer was lost.

Does not contain: what a change is (topic_creation.py, topic_configs.py, the handlers).
Source: KIP-599 and Kafka's ZkAdminManager for the answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import AfterName, Outcome
from edge_broker.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort, Told, TopicDirectory
    from edge_broker.cluster.state.cluster_state import Topic

ASKED_MAX = 5
WAIT_MS_MAX = 60_000  # a request may say more; the names are taken as long
WAIT_MS = 15_000  # where a request says nothing
_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class Change(ABC):
    """One change of one topic."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def ask(self, cluster: ClusterPort, told: Told) -> None:
        """Ask for it, by what is known now; Refusal. It may be called again."""

    @abstractmethod
    def holds(self, view: TopicDirectory) -> bool:
        """Whether the image shows it."""


class ChangeOfTopic(Change):
    """One change of a topic that is there, by its id: another one of its name is none of it."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(name)
        self._topic_id = topic_id

    def topic_in(self, view: TopicDirectory) -> Topic | None:
        """The topic as the image has it; None: it is gone."""
        topic = view.topics.get(self.name)
        return topic if topic is not None and topic.topic_id == self._topic_id else None

    def there(self, view: TopicDirectory) -> Topic:
        """The same; Refusal."""
        topic = self.topic_in(view)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self.name!r} was deleted meanwhile")
        return topic


def agree(
    broker: Broker, changes: Sequence[Change], then: Callable[[dict[str, Refusal]], Outcome], timeout_ms: int = WAIT_MS
) -> Outcome:
    """Execute changes whose names are free; `then` gets the refusals by name."""
    errors: dict[str, Refusal] = {}
    broker.topics.take_names([change.name for change in changes])
    begun = [_Agreeing(broker, change, errors) for change in changes]
    for one in begun:
        one.begin(min(max(timeout_ms, 0), WAIT_MS_MAX))

    def wait_for_next() -> Outcome:
        left = next((one.change.name for one in begun if not one.over), None)
        return then(errors) if left is None else AfterName(left, wait_for_next)

    return wait_for_next()


class _Agreeing:
    """A change on its way."""

    def __init__(self, broker: Broker, change: Change, errors: dict[str, Refusal]) -> None:
        assert broker.cluster is not None
        self._broker, self._cluster = broker, broker.cluster
        self.change, self._errors = change, errors
        self.over = False
        self._asked = 0
        self._version, self._images = -1, 0  # of what was known when it was asked
        self._unsettled: ErrorCode | None = None

    def begin(self, wait_ms: float) -> None:
        """Ask, and look whenever something changes."""
        if not self.change.holds(self._cluster.view):
            self._ask()
        if not self.over and self.change.holds(self._cluster.view):
            self._end(None)
        if not self.over:
            self._cluster.waits.until(self._check_over, wait_ms, self._late)

    def _ask(self) -> None:
        self._asked, self._unsettled = self._asked + 1, None
        self._version, self._images = self._cluster.view.version(self.change.name), self._cluster.view.images
        try:
            self.change.ask(self._cluster, self._answer_received)
        except Refusal as refusal:
            self._end(refusal.without_frames())

    def _answer_received(self, error: ErrorCode) -> None:
        if self.over:
            return
        if error in _AGAIN:
            self._unsettled = error
        elif error is not ErrorCode.NONE:
            self._end(Refusal(error, f"the cluster refused it: {error.name}"))

    def _check_over(self) -> bool:
        if not self.over and self.change.holds(self._cluster.view):
            self._end(None)
        if not self.over and self._unsettled is not None and self._knows_more():
            if self._asked < ASKED_MAX:
                self._ask()
            else:
                self._end(Refusal(self._unsettled, "others change the topic again and again; try it again"))
        return self.over

    def _knows_more(self) -> bool:
        """Whether asking again is another question: what was unknown is settled once everything was read again."""
        view = self._cluster.view
        if view.images > self._images:
            return True
        return self._unsettled is ErrorCode.NOT_CONTROLLER and view.version(self.change.name) != self._version

    def _late(self) -> None:
        if not self.over:
            self._end(Refusal(ErrorCode.REQUEST_TIMED_OUT, "not known to hold in time; it may hold, or come to hold"))

    def _end(self, refusal: Refusal | None) -> None:
        self.over = True
        if refusal is not None:
            self._errors[self.change.name] = refusal
        self._broker.topics.free_names([self.change.name])
