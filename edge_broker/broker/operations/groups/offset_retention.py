"""Expire committed offsets `offsets.retention.minutes` after their last use (KIP-211); off by default.

The age of an offset is by the age of the data directory (data_age.py), never the time of day: an offset may stay longer
than the key says where the clock cannot be believed, never shorter. Each offset that is committed while the key is set
carries its age in a header; one without counts from the start that loaded it. In a cluster each broker drops those of
the partitions that it leads, and all count from when it began to: ages of another data directory say nothing here.

| an offset goes when that long | and |
|---|---|
| it was committed, and its group has no members | no topic's `edge.required.groups` names the group there |
| it was committed, and no member subscribes to its topic | the same |

A group that has no offsets, and had no members for that long, goes at the next look.

Contains: when, and in which pieces. Does not contain: which offsets are in use (coordinator).
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.broker.broker import Broker
from edge_broker.broker.operations.groups.group_log import apply_group_effects, in_pieces, required_groups
from edge_broker.broker.outcomes import Outcome, Reply, Steps, Taken
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.offset_records import OffsetKey


class OffsetRetention:
    """Drops old offsets, some at a time; others come between."""

    def __init__(self, broker: Broker, retention_ms: int) -> None:
        self._broker = broker
        self._retention_ms = retention_ms
        self._busy = False

    def start(self) -> Outcome:
        """Begin, unless the last one is not over yet."""
        if self._busy:
            return Reply(None)
        self._busy = True
        return Steps(self._steps())

    def _steps(self) -> Taken:
        try:
            for coordinator in self._broker.groups.coordinators:
                for group_id in list(coordinator.groups):
                    yield None
                    if coordinator not in self._broker.groups.coordinators:
                        break  # another broker leads its partition since
                    yield from self._expire(coordinator, group_id)
        finally:
            self._busy = False
        return Reply(None)

    def _expire(self, coordinator: GroupCoordinator, group_id: str) -> Taken:
        for topic in coordinator.offsets.topics_of(group_id):
            for keys in in_pieces(self._old(coordinator, group_id, topic)):
                still = set(self._old(coordinator, group_id, topic))  # what is found in a step goes in the same
                going = [key for key in keys if key in still]
                apply_group_effects(
                    self._broker, coordinator.drop_offsets(group_id, going, self._broker.clock.steady_ms())
                )
                yield None
            yield None
        if coordinator.is_over(group_id, self._is_old()):
            apply_group_effects(self._broker, coordinator.drop_group(group_id, self._broker.clock.steady_ms()))
        return Reply(None)

    def _old(self, coordinator: GroupCoordinator, group_id: str, topic: str) -> list[OffsetKey]:
        is_old = self._is_old()
        required = group_id in required_groups(self._broker, topic)
        if required or not coordinator.is_unused(group_id, topic, is_old):
            return []
        return coordinator.offsets.old(group_id, topic, is_old)

    def _is_old(self) -> Callable[[int], bool]:
        now, retention_ms = self._broker.time.now(), self._retention_ms
        return lambda age_ms: now.elapsed_ms(age_ms) >= retention_ms
