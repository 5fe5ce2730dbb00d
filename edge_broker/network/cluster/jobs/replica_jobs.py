"""The jobs on one member's logs: which part executes which effect.

| part | effects | module |
|---|---|---|
| `topics` | OpenLog, Configure, RemoveLog | topic_jobs.py |
| `follower` | Append, BeginEpoch, RemoveFront, AdvanceHighWatermark | follower_jobs.py |
| `truncation` | Enter, Truncate, StartAnew, CutDamage, PassOver, OwnUp, Reopen | truncation_jobs.py |
| `space` | | replica_space.py |

A job that a worker cannot do takes its log offline, which the member sees. A job that the ledger or the disk refuses
for now is retried after a while, if it is still wanted; nothing is held meanwhile.

Does not contain: what is wanted and when (edge_broker.cluster), sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edge_broker.cluster import effects
from edge_broker.network.cluster.jobs.follower_jobs import FollowerJobs
from edge_broker.network.cluster.jobs.replica_logs import ReplicaLogs
from edge_broker.network.cluster.jobs.replica_space import ReplicaSpace
from edge_broker.network.cluster.jobs.topic_jobs import TopicJobs
from edge_broker.network.cluster.jobs.truncation_jobs import TruncationJobs

if TYPE_CHECKING:
    import asyncio

    from edge_broker.broker.broker import Broker
    from edge_broker.cluster.member import ClusterMember
    from edge_broker.network.dispatch.dispatcher import Dispatcher


class ReplicaJobs:
    """The jobs of one member; `turn` runs a call on the member and the effects that it leaves."""

    def __init__(
        self,
        broker: Broker,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        member: ClusterMember,
        turn: Callable[[Callable[[float], None]], None],
    ) -> None:
        self.logs = ReplicaLogs(broker, dispatcher, loop, member, turn)
        self.space = ReplicaSpace(broker, member, self.logs.replicas)
        self.topics = TopicJobs(self.logs, self.space)
        self.follower = FollowerJobs(self.logs, self.space)
        self.truncation = TruncationJobs(self.logs)

    def carriers(self) -> dict[type[Any], Callable[[Any], None]]:
        """Return what executes each effect on logs, by the effect's type."""
        topics, follower, truncation = self.topics, self.follower, self.truncation
        return {
            effects.OpenLog: topics.open,
            effects.RemoveLog: topics.remove,
            effects.Configure: topics.configure,
            effects.Append: follower.append,
            effects.BeginEpoch: follower.begin_epoch,
            effects.RemoveFront: follower.remove_front,
            effects.AdvanceHighWatermark: follower.advance_high_watermark,
            effects.Enter: truncation.enter,
            effects.Truncate: truncation.truncate,
            effects.StartAnew: truncation.start_anew,
            effects.CutDamage: truncation.cut_damage,
            effects.PassOver: truncation.pass_over,
            effects.OwnUp: truncation.record_missing,
            effects.Reopen: truncation.reopen,
        }
