"""Three edge brokers as one cluster, and a real ensemble of ZooKeeper, all on loopback.

Lives here: how such boards are configured. Must never come in: what a test demands of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.broker_cluster import BrokerCluster
from tests.support.processes import EdgeBroker
from tests.support.zookeeper import ZooKeeperEnsemble

SESSION_MS = 2_000
LAG_MS = 5_000


class BoardCluster(BrokerCluster[EdgeBroker]):
    """So many boards; a context manager. `settings` are broker keys of all, `data_dirs` by the boards' numbers."""

    def __init__(
        self,
        directory: Path,
        ensemble: ZooKeeperEnsemble,
        *,
        boards: int = 3,
        settings: Mapping[str, str | int] = {},
        data_dirs: Mapping[int, Path] = {},
    ) -> None:
        self.ensemble = ensemble
        common: dict[str, str | int] = {
            "zookeeper.connect": ensemble.connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "default.replication.factor": min(boards, 3),
            "replica.lag.time.max.ms": LAG_MS,
            **settings,
        }
        super().__init__(
            [
                EdgeBroker(
                    directory,
                    name=f"board-{number}",
                    data_dir=data_dirs.get(number),
                    settings={"broker.id": number, **common},
                )
                for number in range(1, boards + 1)
            ]
        )
