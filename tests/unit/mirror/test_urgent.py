"""Urgent topics beside a backlog: whose turn it is on a connection, and who may be read while the memory is full."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from kafka_wire.cluster import Leader
from kafka_wire.partitions import TopicPartition
from mirror.client.clients import clients_of
from mirror.config import Config
from mirror.partition.send_state import SENDING
from mirror.partition.stream import PartitionStream
from mirror.producer.failures.blocked_partitions import BlockedPartitions
from mirror.producer.target_connection import TargetConnection
from mirror.replication.replicator import Replicator
from mirror.status.metrics import Metrics
from mirror.topics.overrides import rules_from

CONFIG = Config(source="s:1", target="t:2", topics=".*", site="lab", buffer_bytes_max=1_000_000, refresh_interval_ms=1)
URGENT = replace(CONFIG, rules=rules_from({"alarms.*": {"urgent": True}}))


def lane(name, *, urgent=False, backlog=False):
    made = PartitionStream(TopicPartition(name, 0), f"lab.{name}", {"cleanup.policy": "delete"})
    made.urgent, made.backlog_until = urgent, 1e12 if backlog else 0.0
    return made


class Loads:
    """A sender and all connections; its lanes have batches of 100 bytes at most, each as many as there is to take."""

    def __init__(self, *lanes, each=10**9, room=1000):
        self.link = SimpleNamespace(limit_bytes=room, under_way_bytes=0, batch_bytes=1000)
        self.has = dict.fromkeys(lanes, each)
        self.active = 1

    def task_ended(self, task): ...

    def has_lingered(self, lane):
        return True

    async def connection(self, node, number):
        await asyncio.Event().wait()

    def take(self, lane, bytes_max):
        size = min(self.has[lane], bytes_max)
        self.has[lane] -= size
        return SimpleNamespace(stream=lane, size=size) if size > 0 else None


def pipe_of(loads):
    """The connection that carries them."""
    return TargetConnection(loads, loads, loads, loads.link, print, 1, 0)


async def loaded(*lanes, **more):
    """What goes into one request of all lanes, in order: (topic, bytes)."""
    pipe = pipe_of(Loads(*lanes, **more))
    try:
        for one in lanes:
            pipe.put(one)
        return [(one.stream.partition.topic, one.size) for one in pipe._load()]
    finally:
        pipe.task.cancel()


async def test_an_urgent_record_goes_before_all_that_have_no_backlog():
    sparse = [lane(f"t{number}") for number in range(3)]
    assert await loaded(*sparse, lane("alarms", urgent=True), each=10) == [
        ("alarms", 10), ("t0", 10), ("t1", 10), ("t2", 10),
    ]  # fmt: skip


async def test_an_urgent_backlog_has_its_share_and_the_others_have_the_rest():
    bulk, alarms = lane("bulk", backlog=True), lane("alarms", urgent=True, backlog=True)
    assert await loaded(bulk, alarms) == [("alarms", 750), ("bulk", 250)]
    assert await loaded(alarms) == [("alarms", 1000)]
    assert await loaded(bulk, lane("alarms", urgent=True, backlog=True), each=100) == [("alarms", 100), ("bulk", 100)]


async def test_a_crumb_of_a_request_that_is_left_over_is_no_batch_of_another_lane():
    first, second = lane("first", backlog=True), lane("second", backlog=True)
    assert await loaded(first, second, each=940) == [("first", 940)]
    assert await loaded(first, second, each=930) == [("first", 930), ("second", 70)]


async def test_where_there_is_no_room_only_what_has_no_backlog_goes():
    bulk, alarm = lane("bulk", backlog=True), lane("alarms", urgent=True)
    sender = Loads(bulk, alarm, each=10, room=1000)
    sender.link.under_way_bytes = 1000
    pipe = pipe_of(sender)
    pipe.under_way_bytes = 1000
    pipe.put(bulk)
    pipe.put(alarm)
    assert [one.stream for one in pipe._load()] == [alarm]
    assert bulk in pipe.ready
    pipe.release(bulk)
    assert not pipe.ready
    pipe.task.cancel()


def reading(config, *held):
    """A replicator whose lanes hold so many bytes, and the topics that it would read on."""
    replicator = Replicator(config, Metrics(), partial(clients_of, config))
    blocked = BlockedPartitions(config.buffer_bytes_max)
    replicator.period.sender = SimpleNamespace(refusals=SimpleNamespace(held=blocked))  # type: ignore[assignment]
    for name, size in held:
        one = replicator.registry.new_stream(TopicPartition(name, 0), {"cleanup.policy": "delete"})
        assert one is not None
        one.leader, one.leader_epoch, one.send_state = Leader(1, 0), 0, SENDING
        one.count_held(size)
        replicator.registry.streams[one.partition] = one
    return [partition.topic for partition in replicator.reader.choose_places()]


async def test_a_memory_full_of_backlog_holds_no_urgent_topic_up():
    full = [(f"bulk{number}", 200_000) for number in range(5)]
    assert reading(CONFIG, *full, ("alarms", 0)) == []
    assert sorted(reading(URGENT, *full, ("alarms", 0), ("alarms_b", 124_000))) == ["alarms", "alarms_b"]
    assert reading(URGENT, *full, ("alarms", 125_000)) == []


async def test_urgent_topics_are_asked_for_first_and_others_leave_their_share_free():
    assert reading(URGENT, ("a", 0), ("alarms", 0), ("z", 0))[0] == "alarms"
    almost = [(f"bulk{number}", 200_000) for number in range(4)]
    assert reading(CONFIG, *almost, ("bulk9", 160_000), ("quiet", 0)) == ["quiet"]
    assert reading(URGENT, *almost, ("bulk9", 80_000), ("quiet", 0)) == []


async def test_what_goes_slowly_leaves_others_their_share_of_the_memory():
    slow = [(f"slow{number}", 240_000) for number in range(3)]
    assert reading(CONFIG, *slow, ("fast", 180_000)) == ["fast"]
    assert reading(CONFIG, *slow, ("fast", 190_000)) == []
    assert reading(CONFIG, *slow, ("fast", 180_000), ("other", 149_000)) == []  # there is none left
