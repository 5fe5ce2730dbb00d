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
from tests.support.waiting import Deadline, wait_until

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
        self.wait_in_sync(name, partitions)
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

    def wait_in_sync(self, topic: str, partitions: int = 1) -> None:
        """Wait until every board knows `partitions` or more, each is led, and all replicas are in sync.

        A board that has not read a change yet would give a client fewer partitions.
        """

        def all_in_sync() -> bool:
            return all(in_sync(partitions_at(board, topic), len(self.boards), partitions) for board in self.boards)

        wait_until(all_in_sync, RECOVERY_S, f"every board says that {topic} is in sync")


def partitions_at(board: Serving, topic: str) -> list[Any]:
    """What one board tells of a topic's partitions; none while it is too busy to answer."""
    admin = AdminClient({"bootstrap.servers": board.bootstrap})
    try:
        return list(admin.list_topics(topic, timeout=ATTEMPT_S).topics[topic].partitions.values())
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise
        return []


def in_sync(found: Sequence[Any], replicas: int, partitions: int) -> bool:
    """Whether there are so many partitions, each led and with so many replicas in sync."""
    return len(found) >= partitions and all(one.leader >= 0 and len(one.isrs) >= replicas for one in found)
