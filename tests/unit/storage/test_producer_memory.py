"""Any client may write with any producer id: what is kept of them is bounded, over all partitions and starts."""

import pytest

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.log import producer_state, single_node_watermark
from edge_broker.storage.log.producer_state import (
    BYTES_MAX,
    PRODUCER_BYTES,
    WRITTEN_BYTES,
    Producer,
    SnapshotPosition,
    WrittenBatch,
)
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, open_store, sync

ONE = PRODUCER_BYTES + WRITTEN_BYTES  # a producer that wrote one batch
FEW = 100


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(producer_state, "BYTES_MAX", FEW * ONE)


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def known(*logs):
    return {producer_id for log in logs for producer_id in log.writer.producers.by_id()}


def write(log, producer_id, sequence=0, *, at=0):
    return append(log, batch(producer=(producer_id, 0, sequence)), NOW_MS + at)


def all_logs(store):
    return [log for topic in store.topics.values() for log in topic.partitions]


def held(store):
    return sum(log.writer.producers.held for log in all_logs(store))


def test_random_producer_ids_over_many_partitions_stay_within_the_bound(disk, few):
    store = open_store(disk)
    logs = make_topic(store, partitions=4).partitions
    for number in range(5 * FEW):
        write(logs[number % 4], number, at=number)
        assert held(store) <= FEW * ONE
    assert len(known(*logs)) > FEW * 7 // 8, "more are forgotten than must be"
    assert store.producer_memory.evicted == 5 * FEW - len(known(*logs))


def test_the_producer_that_wrote_longest_ago_goes_first_in_whatever_partition_it_is(disk, few):
    store = open_store(disk)
    first, other = make_topic(store, partitions=2).partitions
    write(first, 1_000_001, at=0)
    write(first, 1_000_002, at=1)
    for number in range(2 * FEW):
        write(other, number, at=2 + 2 * number)
        write(first, 1_000_001, 1 + number, at=3 + 2 * number)
    assert known(first) == {1_000_001}
    assert write(first, 1_000_001, 2 * FEW).duplicate, "a retry of one that writes is known as before"
    gone = min(known(other))
    assert known(other) == set(range(gone, 2 * FEW))


def test_an_evicted_producer_is_an_unknown_one(disk, few):
    log = make_topic(open_store(disk)).partitions[0]
    write(log, 7, 0)
    with pytest.raises(Refusal) as refused:
        write(log, 7, 5)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(1000, 1000 + FEW):
        write(log, number, at=1)
    assert not write(log, 7, 5, at=2).duplicate, "any sequence is taken, as of one that expired"
    assert write(log, 7, 5, at=2).duplicate


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_snapshots_of_many_partitions_do_not_add_up_at_a_start(disk, few, end):
    store = open_store(disk)
    logs = make_topic(store, partitions=5).partitions
    for place, log in enumerate(logs):
        for number in range(FEW):
            write(log, 1000 * place + number, at=1000 * place + number)
        sync(log)
        log.writer.rolling = True
        log.roller.roll()
        log.writer.end_roll()
        single_node_watermark.advance_high_watermark(log.state)
    if end == "clean":
        store.close()
    disk.crash()
    again = open_store(disk)
    assert held(again) <= FEW * ONE
    assert max(known(*all_logs(again))) == 4000 + FEW - 1, "those that wrote last are there"
    for number in range(FEW):
        write(again.topics["t"].partitions[0], 9000 + number, at=9000)
        assert held(again) <= FEW * ONE


def test_a_walk_through_the_log_keeps_to_the_bound(disk, few):
    log = make_topic(open_store(disk)).partitions[0]
    for number in range(3 * FEW):
        write(log, number)
    sync(log)
    disk.crash()
    found = open_store(disk).topics["t"].partitions[0].writer.producers
    assert found.held <= FEW * ONE
    assert 3 * FEW - 1 in found.by_id()


def test_a_snapshot_of_an_older_version_with_any_number_of_producers_is_bounded_while_it_is_read(few):
    first = {0: Producer(0, NOW_MS + 9999, (WrittenBatch(0, 0, 0, 0),))}  # it writes ever since
    others = {number: Producer(0, NOW_MS + number, (WrittenBatch(0, 0, number, number),)) for number in range(1, 5000)}
    place, stored = producer_state.decode_snapshot(
        producer_state.encode_snapshot(SnapshotPosition(5000, 0, 9, -1, -1, 0), first | others)
    )
    found = producer_state.producers_of_snapshot(stored, place.forgotten_max)
    assert place.offset == 5000
    assert found.held <= FEW * ONE
    assert list(found.by_id())[-1] == 0
    assert list(found.by_id())[-2] == 4999


def test_what_goes_with_a_topic_is_not_counted_for_ever(disk, few):
    store = open_store(disk)
    for name in ("a", "b", "c"):
        log = make_topic(store, name).partitions[0]
        for number in range(FEW * 3 // 4):
            write(log, number)
        assert len(log.writer.producers) == FEW * 3 // 4
        store.topic_files.erase_topic(store.remove_topic(name))
        del log
    assert store.producer_memory.evicted == 0


def test_the_bound_is_eight_mebibytes():
    assert BYTES_MAX == 8 << 20
    assert BYTES_MAX // ONE > 17_000
