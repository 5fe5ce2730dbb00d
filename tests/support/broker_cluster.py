"""Brokers that are one cluster, whoever made them, and waiting for what they tell.

Lives here: what a client may ask of any cluster. Must never come in: how a broker is configured, what a test demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import left_over
from tests.support.kafka_reading import made_by
from tests.support.processes import Startable, start_together
from tests.support.waiting import CALL_S, Deadline, wait_until

RECOVERY_S = 60
ATTEMPT_S = 5.0  # for one answer; a broker that is up has it in milliseconds


class Serving(Startable, Protocol):
    """A broker's process, which serves at one address."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Stop it where it runs."""


B = TypeVar("B", bound=Serving)


class BrokerCluster(Generic[B]):
    """So many brokers, with the ids from 1 on; a context manager."""

    def __init__(self, boards: Sequence[B]) -> None:
        self.boards = list(boards)
        self._stack = ExitStack()
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        """Start all, and wait until all are members."""
        try:
            for board in self.boards:
                self._stack.push(board.__exit__)
            start_together(self.boards)
            wait_until(lambda: self.there() == len(self.boards), RECOVERY_S, "all boards are members")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop those that run."""
        self._stack.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """Addresses of all boards."""
        return ",".join(board.bootstrap for board in self.boards)

    @property
    def admin(self) -> AdminClient:
        """A client of all boards; each test has its own, as a client opens connections also long after its start."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
            left_over.end_with_test(self._drop_admin)
        return self._admin

    def _drop_admin(self) -> None:
        self._admin = None

    def board(self, number: int) -> B:
        """The board of a broker id."""
        return self.boards[number - 1]

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic with as many replicas as there are boards, and wait for leaders."""
        keys = {key.replace("_", "."): value for key, value in config.items()}
        made_by(self.bootstrap, NewTopic(name, partitions, len(self.boards), config=keys))
        self.wait_in_sync(name)
        return name

    def there(self) -> int:
        """How many boards are members, as one of them tells."""
        return len(self._told().brokers)

    def partitions(self, topic: str) -> dict[int, Any]:
        """What some board tells of a topic's partitions."""
        return dict(self._told(topic).topics[topic].partitions)

    def _told(self, *topic: str) -> Any:
        """Ask again what is not answered: librdkafka asks the broker that it chose until the end, killed or not."""
        deadline = Deadline(RECOVERY_S)
        while True:
            try:
                return self.admin.list_topics(*topic, timeout=ATTEMPT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    raise
                deadline.check("the cluster's metadata", error)

    def leader(self, topic: str, partition: int = 0) -> B:
        """Who leads a partition."""
        return self.board(self.partitions(topic)[partition].leader)

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every partition is led and all replicas are in sync."""

        def all_in_sync() -> bool:
            for board in self.boards:
                admin = AdminClient({"bootstrap.servers": board.bootstrap})
                found = admin.list_topics(topic, timeout=CALL_S).topics[topic].partitions.values()
                if not found or any(one.leader < 0 or len(one.isrs) < len(self.boards) for one in found):
                    return False
            return True

        wait_until(all_in_sync, RECOVERY_S, f"every board says that {topic} is in sync")
