"""A partition that stands still is named after a while, with its cause; one that is read or moves is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kafka_wire.cluster import Leader
from kafka_wire.partitions import TopicPartition
from mirror.errors import SourceError
from mirror.link.link_model import Link
from mirror.partition.stream import Memory, PartitionStream
from mirror.status.lag_watch import ASK_S, Lags, WatchedParts
from mirror.status.metrics import Metrics
from mirror.status.problems import Troubles
from mirror.status.rates import Progress
from mirror.status.stalls import TIMES_MAX, Stalls

TP = TopicPartition("readings", 0)
BUFFER_BYTES = 8000
TIMEOUT_S = 60.0


def test_a_partition_stands_still_since_it_moved_last_with_something_to_deliver():
    stalls = Stalls(TIMEOUT_S)
    assert [stalls.note("a", 5, lag, at) for lag, at in ((3, 10.0), (3, 15.0), (9, 20.0))] == [0.0, 5.0, 10.0]
    assert stalls.note("a", 6, 8, 21.0) == 0.0
    assert stalls.note("a", 6, 8, 31.0) == 10.0
    assert stalls.note("a", 6, 0, 32.0) == 0.0
    assert stalls.note("a", 6, 1, 90.0) == 0.0
    stalls.forget("a")
    assert stalls.note("a", 6, 1, 95.0) == 0.0


def test_one_that_waits_for_its_turn_on_a_thin_link_is_given_time_but_not_for_ever():
    stalls = Stalls(TIMEOUT_S)
    assert stalls.limit_s(10_000, 1000, is_troubled=False) == TIMEOUT_S + 20
    assert stalls.limit_s(10_000, None, is_troubled=False) == TIMEOUT_S
    assert stalls.limit_s(10_000, 1000, is_troubled=True) == TIMEOUT_S
    assert stalls.limit_s(10**9, 1000, is_troubled=False) == TIMES_MAX * TIMEOUT_S


class Watch:
    """A partition with three records that is watched."""

    def __init__(self):
        self.memory, self.troubles, self.metrics = Memory(), Troubles(), Metrics()
        self.lane = PartitionStream(TP, "lab.readings", {"cleanup.policy": "delete"}, self.memory)
        self.lane.source_end, self.lane.leader, self.lane.leader_epoch = 3, Leader(1, 0), 0
        self.lanes = {TP: self.lane}
        watched = WatchedParts(self.lanes, Progress(), Link(1 << 20), self.memory, self.troubles, self.metrics)
        self.lags = Lags(watched, TIMEOUT_S, BUFFER_BYTES)

    def told_after(self, seconds):
        self.lags.tick(100.0)
        self.lags.tick(100.0 + seconds)
        return self.troubles.get("readings-0 stalled", "")


CAUSES = {
    "its own": (lambda w: w.troubles.note("readings-0", "refused: too old", 0.0), "refused: too old"),
    "its source": (lambda w: w.troubles.note("readings-0 source", "corrupt", 0.0), "corrupt"),
    "its position": (lambda w: w.troubles.note("readings-0 position", "not judged", 0.0), "not judged"),
    "no leader": (lambda w: setattr(w.lane, "leader", Leader(-1, -1)), "the source has no leader for it"),
    "the target": (lambda w: w.troubles.note("target", "refused connection", 0.0), "target: refused connection"),
    "never reached": (lambda w: w.troubles.start("source"), "source: not reached"),
    "its broker": (
        lambda w: (
            setattr(w.lane, "connection", SimpleNamespace(node=2)),
            w.troubles.note("target broker 2, connection 1", "gone", 0.0),
        ),
        "target broker 2, connection 1: gone",
    ),
    "memory": (lambda w: setattr(w.memory, "bytes", BUFFER_BYTES), "it waits for memory, of which 8000 bytes"),
    "its turn": (lambda w: w.lane.count_held(100), "wait for their turn on the link"),
    "a position": (lambda w: setattr(w.lane, "leader_epoch", None), "its position is being checked"),
    "the source": (lambda w: None, "the source sends nothing of it"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_stall_names_its_cause(cause):
    watch, (prepare, said) = Watch(), CAUSES[cause]
    prepare(watch)
    assert watch.told_after(TIMEOUT_S - 1) == ""
    told = watch.told_after(TIMEOUT_S + 1)
    assert said in told
    assert "none of its 3 records became safe for more than 60 s" in told
    assert watch.metrics.stalled._value.get() == 1


def test_another_broker_is_no_cause():
    watch = Watch()
    watch.lane.connection = SimpleNamespace(node=2)
    watch.troubles.note("target broker 22", "gone", 0.0)
    assert "target broker" not in watch.told_after(TIMEOUT_S + 1)


def test_a_stall_is_over_once_something_is_safe_or_it_is_mirrored_no_more():
    watch = Watch()
    assert watch.told_after(TIMEOUT_S + 1)
    watch.lane.offsets.skip(2)
    watch.lags.tick(200.0)
    assert "readings-0 stalled" not in watch.troubles
    assert watch.metrics.stalled._value.get() == 0
    assert watch.told_after(300.0)
    watch.lags.forget(watch.lane)
    assert "readings-0 stalled" not in watch.troubles


async def test_the_ends_of_partitions_that_no_fetch_asks_for_are_asked_for(monkeypatch):
    watch, asked = Watch(), []
    other = TopicPartition("others", 0)
    watch.lanes[other] = PartitionStream(other, "lab.others", {"cleanup.policy": "delete"}, watch.memory)

    class Source:
        reader = SimpleNamespace(busy=set())

        async def ends(self, partitions):
            asked.append(list(partitions))
            if len(asked) == 1:
                raise SourceError("away")
            return dict.fromkeys(partitions, 44)

    assert watch.lags.not_fetched([other], 0.0) == []
    assert watch.lags.not_fetched([other], ASK_S) == [TP]
    assert watch.lags.not_fetched([], 2 * ASK_S) == [TP, other]
    monkeypatch.setattr("mirror.status.lag_watch.ASK_S", 0.0)
    task = asyncio.ensure_future(watch.lags.ask(Source()))
    while watch.lane.source_end != 44:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    task.cancel()
    assert len(asked) == 2
