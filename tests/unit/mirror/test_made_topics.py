"""A topic is a mirror's alone under the id with which the mirror made it, and under no other."""

from __future__ import annotations

from mirror.partition.provenance import Origin
from mirror.partition.stream import PartitionStream
from mirror.session.producer_sessions import ProducerSessions
from tests.unit.mirror.ends import TP, MemoryTarget


def test_a_topic_that_was_made_again_by_somebody_else_is_not_the_mirrors_alone():
    target = MemoryTarget()
    lives = ProducerSessions(target, "__edge-mirror-lab-state", 1, None, (0.1, 1.0))
    lane = PartitionStream(TP, "lab.readings", {"cleanup.policy": "delete"})
    assert lives._origin(lane) is None
    lane.origin = Origin(frozenset({"b"}), is_alone=True)
    assert lives._origin(lane) == lane.origin
    target.topic_ids = "of a user"
    assert lives._origin(lane) == lane.origin._replace(is_alone=False)
    lives.topic_made("lab.readings")  # by the mirror again
    assert lives._origin(lane) == lane.origin
    lane.origin = lane.origin._replace(is_alone=False)
    assert lives._origin(lane) == lane.origin
