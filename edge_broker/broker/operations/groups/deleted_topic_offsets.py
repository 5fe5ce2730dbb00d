"""Remove committed offsets of deleted topics, in a cluster, so that a new topic of the name does not inherit them.

| a partition of `__consumer_offsets` | what was committed there for a topic that is gone |
|---|---|
| led here, and loaded | is forgotten before any request sees it; the write to the log is retried until it succeeds |
| being loaded here | the same, once it is loaded |
| led here later | the same then, if this broker saw the deletion and no topic has the name again |
| led elsewhere | is for who leads it |

A topic that is missing after a new session was begun counts for nothing: the ensemble may be an old copy.

Known limit: what was committed for a topic that was deleted and made again while the partition had no leader stays.

Does not contain: logs of deleted topics, the way a single node deletes (delete_topics.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.operations.groups.group_log import apply_group_effects
from edge_broker.coordinator.offset_records import OffsetKey
from edge_broker.errors import ErrorCode

if TYPE_CHECKING:
    from edge_broker.broker.broker import Broker
    from edge_broker.cluster.znodes.metadata_image import DeletedTopic
    from edge_broker.coordinator.group_coordinator import GroupCoordinator


def forget_deleted(broker: Broker, topics: Sequence[DeletedTopic]) -> None:
    """Drop what groups committed for these topics, in all partitions that are led here, or will be."""
    names = [topic.name for topic in topics]
    broker.groups.note_deleted(names, [topic.name for topic in topics if topic.was_seen])
    for coordinator in broker.groups.coordinators:
        _forget(broker, coordinator, names)


def forget_deleted_before(broker: Broker, coordinator: GroupCoordinator) -> None:
    """The same, of a partition that was loaded just now."""
    names = broker.groups.take_deleted(coordinator.partition)
    if names:
        _forget(broker, coordinator, names)


def _forget(broker: Broker, coordinator: GroupCoordinator, names: Collection[str]) -> None:
    effects, keys = coordinator.forget_at_once(names, broker.clock.steady_ms())
    apply_group_effects(broker, effects, partial(_keep_if_failed, broker, coordinator, keys))


def _keep_if_failed(broker: Broker, coordinator: GroupCoordinator, keys: list[OffsetKey], error: ErrorCode) -> None:
    if error != ErrorCode.NONE:
        broker.groups.unburied.append((coordinator, keys))


def bury_again(broker: Broker) -> None:
    """Have the log told what it did not keep."""
    groups, now_ms = broker.groups, broker.clock.steady_ms()
    unburied, groups.unburied = groups.unburied, []
    for coordinator, keys in unburied:
        if coordinator in groups.coordinators:  # else the new leader has seen the deletion
            apply_group_effects(
                broker, coordinator.bury(keys, now_ms), partial(_keep_if_failed, broker, coordinator, keys)
            )
