"""Three edge brokers as one cluster, and a real ensemble of ZooKeeper, all on loopback.

Lives here: processes, and waiting for what the cluster tells. Must never come in: what a test demands of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

SESSION_MS = 2_000
LAG_MS = 5_000
RECOVERY_S = 60


class BoardCluster:
    """So many boards; a context manager. `settings` are broker keys of all."""

    def __init__(
        self, directory: Path, ensemble: ZooKeeperEnsemble, *, boards: int = 3, settings: Mapping[str, str | int] = {}
    ) -> None:
        self.ensemble = ensemble
        self._stack = ExitStack()
        common: dict[str, str | int] = {
            "zookeeper.connect": ensemble.connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "default.replication.factor": min(boards, 3),
            "replica.lag.time.max.ms": LAG_MS,
            **settings,
        }
        self.boards = [
            EdgeBroker(directory, name=f"board-{number}", settings={"broker.id": number, **common})
            for number in range(1, boards + 1)
        ]

    def __enter__(self) -> Self:
        """Start all."""
        try:
            for board in self.boards:
                self._stack.enter_context(board)
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

    @cached_property
    def admin(self) -> AdminClient:
        """A client that asks any of them."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def board(self, number: int) -> EdgeBroker:
        """The board of a broker id."""
        return self.boards[number - 1]

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic with as many replicas as there are boards, and wait for leaders."""
        topic = NewTopic(name, partitions, len(self.boards), config={k.replace("_", "."): v for k, v in config.items()})
        for made in self.admin.create_topics([topic]).values():
            made.result(CALL_S)
        self.wait_in_sync(name)
        return name

    def there(self) -> int:
        """How many boards are members, as one of them tells."""
        return len(self.admin.list_topics(timeout=CALL_S).brokers)

    def partitions(self, topic: str) -> dict[int, Any]:
        """What some board tells of a topic's partitions."""
        found = self.admin.list_topics(topic, timeout=CALL_S).topics[topic].partitions
        return dict(found)

    def leader(self, topic: str, partition: int = 0) -> EdgeBroker:
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
