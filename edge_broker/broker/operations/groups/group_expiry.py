"""Lets time pass for the groups: members expire, and a member of a cluster loads again what it could not load.

Does not contain: when a member expires (coordinator/group_coordinator.py), how groups are loaded (group_loading.py).
"""

from __future__ import annotations

from edge_broker.broker.broker import Broker
from edge_broker.broker.operations.groups.group_loading import try_again
from edge_broker.broker.operations.groups.group_log import apply_group_effects
from edge_broker.broker.outcomes import Outcome, Reply

RETRY_MS = 10_000


def expire_members(broker: Broker) -> Outcome:
    """Let time pass for the groups."""
    now_ms = broker.clock.steady_ms()
    broker.groups.set_clock_lead(broker.time.clock_lead())
    for coordinator in broker.groups.coordinators:
        apply_group_effects(broker, coordinator.expire(now_ms))
    if broker.cluster is not None and now_ms >= broker.groups.again_ms:
        broker.groups.again_ms = now_ms + RETRY_MS
        try_again(broker)
    return Reply(None)
