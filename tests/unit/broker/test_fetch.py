"""Fetch: whole batches below the high watermark, long polls, and the bounds of KIP-74."""

from __future__ import annotations

import errno
import gc
import uuid
import weakref
from typing import Any

import pytest

from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.effects import Effect
from edge_broker.broker.outcomes import Reply, RunInWorker, Steps, Wait, run_steps
from edge_broker.errors import ErrorCode
from edge_broker.handlers import HANDLERS
from edge_broker.handlers.fetch import _FetchPass
from edge_broker.protocol.api import CREATE_TOPICS, DELETE_TOPICS, FETCH
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.storage.log.log_reader import LogReader, whole_batches
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.loss_records import NoLedger
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.testing.site import Site
from tests.support.storage import append, batch, failing, fill, ledgered, sync, time_at

BY_NAME = 12


def fetch(
    *parts: tuple[str, int, int],
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 24,
    partition_max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    topic_id: uuid.UUID | None = None,
    **fields: int,
) -> FetchRequest:
    """Parts are topic, partition and offset."""
    topics: dict[str, list[FetchPartition]] = {}
    for topic, partition, offset in parts:
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **fields
        )
        topics.setdefault(topic, []).append(asked)
    return FetchRequest(
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id or uuid.UUID(int=0), partitions=found)
            for name, found in topics.items()
        ],
    )


def parts(response: Any) -> list[Any]:
    return [one for topic in response.responses for one in topic.partitions]


def sizes(response: Any) -> list[int]:
    return [len(one.records) for one in parts(response)]


def batches(one: Any) -> list[bytes]:
    return [bytes(found) for found in whole_batches(one.records)]


def ask(site: Site, request: FetchRequest, version: int = BY_NAME) -> Any:
    return site.client().ask(FETCH, request, version)


def write(site: Site, log: PartitionLog, *values: bytes) -> None:
    """As a producer with acks=1 would: the syncer hears of it, nobody waits."""
    site.broker.append(log, batch(*values), 1 << 20)
    site.dispatcher.start(lambda: Reply(None))


# what is shown


def test_nothing_above_the_high_watermark() -> None:
    site = Site()
    (log,) = site.topic()
    written = fill(log, 2)
    append(log, batch(b"unsynced"))
    (one,) = parts(ask(site, fetch(("t", 0, 0))))
    assert batches(one) == written
    assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (2, 2, 0)


def test_a_poll_at_the_end_brings_the_sync_even_if_it_does_not_wait() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic()
    write(site, log, b"a")
    (one,) = parts(ask(site, fetch(("t", 0, 0))))
    assert (one.records, one.high_watermark) == (b"", 0)
    assert log.high_watermark == 1
    (one,) = parts(ask(site, fetch(("t", 0, 0))))
    assert len(batches(one)) == 1


def test_a_poll_below_the_end_brings_no_sync() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic()
    fill(log, 1)
    write(site, log, b"a")
    ask(site, fetch(("t", 0, 0)))
    assert log.high_watermark == 1


def test_left_to_the_kernel_is_shown_when_written() -> None:
    site = Site()
    (log,) = site.topic(config={"flush.ms": "9223372036854775807"})
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=1000), BY_NAME)
    assert client.answers() == []
    write(site, log, b"a")
    assert parts(client.answer())[0].high_watermark == 1
    assert log.synced_end.offset == 0


# long polls


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that are read from now on, in order."""
    found: list[int] = []
    read = LogReader.read

    def counted(reader: LogReader, *arguments: Any, **options: Any) -> Any:
        found.append(reader.state.partition)
        return read(reader, *arguments, **options)

    monkeypatch.setattr(LogReader, "read", counted)
    return found


@pytest.mark.parametrize("config", [{}, {"flush.ms": "9223372036854775807"}])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_round_of_many_partitions_has_each_read_once_and_only_when_enough_has_come(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], missing: int
) -> None:
    site = Site()
    logs = site.topic(partitions=50, config=config)
    size = len(batch(b"a"))
    client = site.client()
    asked = fetch(*(("t", log.partition, 0) for log in logs), min_bytes=2 * 50 * size + missing, max_wait_ms=5000)
    client.send(FETCH, asked, BY_NAME)
    site.run_until_idle()
    reads = reads_of(monkeypatch)
    for _ in range(2):
        assert (client.answers(), reads) == ([], [])
        for log in logs:
            site.broker.append(log, batch(b"a"), 1 << 20)
        site.dispatcher.apply()
        site.run_until_idle()
    if missing:
        assert (client.answers(), reads) == ([], [])
        write(site, logs[7], b"a")
        site.run_until_idle()
    assert sum(sizes(client.answer())) == (100 + missing) * size
    assert reads == list(range(50))


def test_a_reader_behind_the_active_segment_waits_for_nothing() -> None:
    """As Kafka does: an answer holds one segment's bytes, and there may never be more of them."""
    site = Site()
    (log,) = site.topic(config={"segment.bytes": "4096"})
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), min_bytes=6000, max_wait_ms=5000), BY_NAME)
    for value in (bytes(3000), bytes(2950)):
        assert client.answers() == []
        append(log, batch(value))
        site.dispatcher.logs_moved(log)
        site.run_until_idle()
    assert len(log.segments) == 2
    assert sizes(client.answer()) == [log.segments[0].size]
    client.send(FETCH, fetch(("t", 0, 0), min_bytes=1 << 20, max_wait_ms=5000), BY_NAME)
    assert sizes(client.answer()) == [log.segments[0].size]


def test_more_wanted_than_may_be_had_is_as_much_as_may_be_had() -> None:
    """As Kafka does: max.bytes ends the wait when it is less than min.bytes."""
    site = Site()
    (log,) = site.topic()
    fill(log, 3)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), min_bytes=1 << 20, max_bytes=len(batch(b"0")), max_wait_ms=5000), BY_NAME)
    assert len(sizes(client.answer())) == 1


def test_waits_for_data_and_answers_with_the_sync() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=5000), BY_NAME)
    site.run_until_idle()
    assert client.answers() == []
    write(site, log, b"a")
    site.loop.run()
    assert client.answers() == []
    site.disk_worker.step()
    (one,) = parts(client.answer())
    assert len(batches(one)) == 1
    site.loop.advance(10_000)
    assert client.answers() == []


def test_max_wait_ends_an_empty_poll() -> None:
    site = Site()
    site.topic()
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=500), BY_NAME)
    site.loop.advance(499)
    assert client.answers() == []
    site.loop.advance(1)
    (one,) = parts(client.answer())
    assert (one.error_code, one.records) == (0, b"")


def test_min_bytes_are_waited_for_over_all_partitions() -> None:
    site = Site()
    logs = site.topic(partitions=2)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), ("t", 1, 0), min_bytes=250, max_wait_ms=5000), BY_NAME)
    for log, answered in ((logs[0], False), (logs[1], False), (logs[0], True)):
        write(site, log, bytes(40))  # 107 bytes a batch
        site.run_until_idle()
        found = client.answers()
        assert bool(found) is answered
    assert sum(sizes(found[0])) >= 250


def test_max_wait_gives_what_is_there() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), min_bytes=1 << 20, max_wait_ms=500), BY_NAME)
    site.run_until_idle()
    assert client.answers() == []
    site.loop.advance(500)
    assert len(batches(parts(client.answer())[0])) == 1


def test_an_error_in_one_partition_is_answered_at_once_with_the_data_of_the_others() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), ("t", 1, 0), ("gone", 0, 0), min_bytes=9999, max_wait_ms=5000), BY_NAME)
    found = parts(client.answer())
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in found] == [ErrorCode.NONE, unknown, unknown]
    assert len(batches(found[0])) == 1


def test_nothing_asked_for_is_answered_at_once() -> None:
    site = Site()
    client = site.client()
    client.send(FETCH, fetch(max_wait_ms=5000), BY_NAME)
    assert client.answer().responses == []


def test_deleting_the_topic_ends_the_wait() -> None:
    site = Site()
    site.topic()
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=60_000), BY_NAME)
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert parts(client.answer())[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert site.dispatcher.waiting_requests == 0


def test_a_failed_sync_ends_the_wait() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=60_000), BY_NAME)
    write(site, log, b"a")

    site.disk.fault = failing("datasync")
    site.run_until_idle()
    assert parts(client.answer())[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


# who may ask, and with which epoch


def test_by_id_and_by_an_unknown_id() -> None:
    site = Site()
    site.client().ask(
        CREATE_TOPICS, CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    )
    topic = site.store.topics["t"]
    written = fill(topic.partitions[0], 1)
    (known,) = parts(ask(site, fetch(("", 0, 0), topic_id=topic.topic_id), 17))
    assert batches(known) == written
    unknown_id = uuid.uuid4()
    response = ask(site, fetch(("", 0, 0), topic_id=unknown_id, max_wait_ms=5000), 17)
    assert parts(response)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert response.responses[0].topic_id == unknown_id


def test_another_leader_epoch_is_fenced() -> None:
    site = Site().reopen("kill").reopen("kill")
    site.topic()
    assert site.store.directory.leader_epoch == 2
    for epoch, code in (
        (-1, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        (one,) = parts(ask(site, fetch(("t", 0, 0), current_leader_epoch=epoch)))
        assert one.error_code == code


def test_a_reader_whose_epoch_ended_earlier_learns_where() -> None:
    site = Site()
    site.topic()
    fill(site.store.topics["t"].partitions[0], 2)
    site = site.reopen("kill")
    fill(site.store.topics["t"].partitions[0], 1)
    (same,) = parts(ask(site, fetch(("t", 0, 2), last_fetched_epoch=0)))
    assert same.diverging_epoch is None
    assert len(batches(same)) == 1
    (ahead,) = parts(ask(site, fetch(("t", 0, 3), last_fetched_epoch=0, max_wait_ms=5000)))
    assert (ahead.diverging_epoch.epoch, ahead.diverging_epoch.end_offset) == (0, 2)
    assert ahead.records == b""


def test_an_offset_that_is_not_synced_yet_is_no_cut() -> None:
    """An acks=1 answer tells its producer an offset above the high watermark; a reader may begin there."""
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    append(log, batch(b"a", b"b"))
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 3), last_fetched_epoch=0, max_wait_ms=500), BY_NAME)
    assert client.answers() == []
    site.loop.advance(500)
    (one,) = parts(client.answer())
    assert (one.error_code, one.diverging_epoch, one.records) == (0, None, b"")


def test_an_epoch_that_never_was_is_out_of_range() -> None:
    site = Site()
    fill(site.topic()[0], 1)
    (one,) = parts(ask(site, fetch(("t", 0, 1), last_fetched_epoch=9, max_wait_ms=5000)))
    assert one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [-1, 3, 1 << 40])
def test_out_of_range(offset: int) -> None:
    site = Site()
    fill(site.topic()[0], 2)
    (one,) = parts(ask(site, fetch(("t", 0, offset), max_wait_ms=5000)))
    assert one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# bounds


def test_the_first_batch_comes_whole_however_small_the_bounds_are() -> None:
    site = Site()
    logs = site.topic(partitions=2)
    written = fill(logs[0], 1, 3000)
    fill(logs[1], 1, 3000)
    response = ask(site, fetch(("t", 0, 0), ("t", 1, 0), max_bytes=100, partition_max_bytes=10))
    assert sizes(response) == [len(written[0]), 0]


def test_a_partition_gives_no_more_than_its_own_bound() -> None:
    site = Site()
    for log in site.topic(partitions=2):
        written, *_ = fill(log, 20, 1000)
    response = ask(site, fetch(("t", 0, 0), ("t", 1, 0), partition_max_bytes=5000))
    assert sizes(response) == [len(written) * (5000 // len(written))] * 2


def test_the_response_gives_no_more_than_its_bound_and_one_batch() -> None:
    site = Site({"fetch.max.bytes": 8000})
    logs = site.topic(partitions=5)
    written = [fill(log, 5, 1000)[0] for log in logs]
    response = ask(site, fetch(*(("t", number, 0) for number in range(5))))
    assert 8000 <= sum(sizes(response)) <= 8000 + len(written[0])
    assert sizes(response)[-1] == 0


def test_the_bound_holds_for_cold_data_too() -> None:
    site = Site()
    for log in site.topic(partitions=5):
        fill(log, 5, 1000)
    site.disk.cold = True
    response = ask(site, fetch(*(("t", number, 0) for number in range(5)), max_bytes=8000, partition_max_bytes=5000))
    assert 8000 - 1100 <= sum(sizes(response)) <= 8000 + 1100
    assert 5000 - 1100 < sizes(response)[0] <= 5000


# cold data


def test_cold_data_is_read_in_the_reader_and_the_neighbour_is_served_meanwhile() -> None:
    site = Site()
    (log,), (warm,) = site.topic(), site.topic("warm", config={"flush.ms": "9223372036854775807"})
    written = fill(log, 3)
    site.disk.cold = True
    assert isinstance(site.run(FETCH, fetch(("t", 0, 0)), BY_NAME), RunInWorker)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    assert client.answers() == []
    assert len(site.reader) == 1
    assert not site.disk_worker
    site.disk.cold = False
    write(site, warm, b"w")
    neighbour = site.client()
    neighbour.send(FETCH, fetch(("warm", 0, 0)), BY_NAME)
    assert len(batches(parts(neighbour.answer())[0])) == 1
    site.reader.step()
    assert batches(parts(client.answer())[0]) == written


@pytest.mark.parametrize("spread", [(1, 1, 1, 1), (3, 0, 0, 0)], ids=["many partitions", "one partition"])
def test_much_data_is_left_to_the_reader_also_where_memory_holds_it(monkeypatch, spread) -> None:
    monkeypatch.setattr("edge_broker.handlers.fetch.AT_ONCE_BYTES_MAX", 1500)
    monkeypatch.setattr("edge_broker.storage.log.log_reader.AT_ONCE_BYTES_MAX", 1500)
    site = Site()
    written = [fill(log, batches, 1000) for batches, log in zip(spread, site.topic(partitions=4), strict=True)]
    client = site.client()
    client.send(FETCH, fetch(*(("t", number, 0) for number in range(4))), BY_NAME)
    assert client.answers() == []
    assert len(site.reader) == 1
    site.reader.step()
    assert [batches(part) for part in parts(client.answer())] == written


def test_cold_data_that_was_answered_is_let_go_of_without_a_garbage_collection(monkeypatch) -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 3)
    site.disk.cold = True
    given, read = [], log.reader.read

    def noted(*arguments, **options):
        data = read(*arguments, **options)
        if data is not None:
            data = memoryview(bytes(data))
            given.append(weakref.ref(data))
        return data

    monkeypatch.setattr(log.reader, "read", noted)
    client = site.client()
    gc.disable()
    try:
        client.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
        site.reader.step()
        assert client.answer() is not None
        assert [one() for one in given] == [None]
        assert not [one for one in gc.get_objects() if isinstance(one, _FetchPass)], "no step outlives the answer"
    finally:
        gc.enable()


def test_where_every_read_is_left_to_a_worker_a_poll_waits_for_as_much_as_it_wants() -> None:
    """As on a file system without RWF_NOWAIT."""
    site = Site()
    (log,) = site.topic()
    site.disk.cold = True
    fill(log, 1)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), min_bytes=250, max_wait_ms=5000), BY_NAME)
    site.run_until_idle()
    assert client.answers() == []
    write(site, log, b"x" * 100)
    site.run_until_idle()
    assert len(batches(parts(client.answer())[0])) == 2
    client.send(FETCH, fetch(("t", 0, 0), min_bytes=9999, max_wait_ms=5000), BY_NAME)
    site.run_until_idle()
    site.loop.advance(4999)
    assert client.answers() == []
    site.loop.advance(1)
    site.run_until_idle()
    assert len(batches(parts(client.answer())[0])) == 2


def test_what_comes_while_cold_data_is_read_is_not_overlooked() -> None:
    site = Site()
    log, other = site.topic(partitions=2)
    fill(log, 1)
    site.disk.cold = True
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), ("t", 1, 0), min_bytes=250, max_wait_ms=5000), BY_NAME)
    site.reader.work()
    fill(other, 1, 200)
    site.run_until_idle()
    assert [len(batches(one)) for one in parts(client.answer())] == [1, 1]


def test_a_cold_poll_whose_client_may_not_wait_is_answered_with_what_there_is() -> None:
    site = Site()
    (log,) = site.topic()
    site.disk.cold = True
    fill(log, 1)
    (one,) = parts(ask(site, fetch(("t", 0, 0), min_bytes=9999, max_wait_ms=0)))
    assert len(batches(one)) == 1


def test_a_cold_read_that_fails_waits_for_nothing() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    site.disk.cold = True

    site.disk.fault = failing("read", "/t-0/", errno.ENOMEM)
    (one,) = parts(ask(site, fetch(("t", 0, 0), min_bytes=9999, max_wait_ms=5000)))
    assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_long_poll_reads_cold_data_when_it_ends() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=5000), BY_NAME)
    site.disk.cold = True
    fill(log, 1)
    site.loop.advance(5000)
    site.run_until_idle()
    assert len(batches(parts(client.answer())[0])) == 1


def unreadable(kind: str, path: str, _size: int) -> None:
    """A disk that cannot read the first partition of `t`."""
    if kind == "read" and "/t-0/" in path:
        raise OSError(errno.EIO, "broken")


@pytest.mark.parametrize("cold", [True, False])
def test_data_that_the_disk_gives_up_on_is_contained_and_the_partition_goes_on(
    cold: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site()
    for log in site.topic(partitions=2):
        fill(log, 3)
    site.disk.cold = cold
    site.disk.fault = unreadable
    for _ in range(3):
        bad, good = parts(ask(site, fetch(("t", 0, 0), ("t", 1, 0))))
        assert (bad.error_code, bad.high_watermark, len(batches(bad))) == (0, 3, 0)
        assert len(batches(good)) == 3
    assert capsys.readouterr().err.count("offsets 0 to 2 are lost and in the ledger") == 1
    assert ledgered(site.store) == [("damaged", "t", 0, 0, 2)]


def test_two_readers_that_meet_the_same_damage_at_once_are_both_answered_and_it_is_written_down_once() -> None:
    site = Site()
    (log,) = site.topic()
    written = fill(log, 5)
    site.disk.flip("/data/t-0/00000000000000000000.log", len(written[0]) + 100)
    site.disk.cold = True
    clients = [site.client() for _ in range(2)]
    for client in clients:
        client.send(FETCH, fetch(("t", 0, 1)), BY_NAME)
    site.reader.work()
    site.reader.work()
    site.reader.report()
    assert len(site.files) == 2
    site.run_until_idle()
    for client in clients:
        assert batches(parts(client.answer())[0]) == written[2:]
    assert ledgered(site.store) == [("damaged", "t", 0, 1, 1)]


@pytest.mark.parametrize("cold", [True, False])
def test_damage_that_cannot_be_written_down_is_a_storage_error_of_its_partition(
    cold: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site()
    for log in site.topic(partitions=2):
        fill(log, 1)
        log.ledger = NoLedger()
    site.disk.cold = cold
    site.disk.fault = unreadable
    for _ in range(3):
        bad, good = parts(ask(site, fetch(("t", 0, 0), ("t", 1, 0))))
        assert bad.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(batches(good)) == 1
    assert capsys.readouterr().err.count("t-0 could not be read") == 1


def test_segments_that_retention_took_are_out_of_range_in_the_reader_too() -> None:
    site = Site({"log.retention.ms": 1000})
    (log,) = site.topic(config={"segment.bytes": "4096"})
    for _ in range(5):
        append(log, batch(bytes(2500)))
    sync(log)
    site.disk.cold = True
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    assert delete_expired(log, time_at(site.clock.wall_ms() + 10_000)) == 4
    site.run_until_idle()
    assert parts(client.answer())[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_plain_handler_waits_only_when_it_may() -> None:
    site = Site()
    site.topic()
    assert isinstance(site.run(FETCH, fetch(("t", 0, 0)), BY_NAME), Reply)
    waiting = site.run(FETCH, fetch(("t", 0, 0), max_wait_ms=7), BY_NAME)
    assert isinstance(waiting, Wait)
    assert (waiting.wait_ms, waiting.holds, waiting.ready()) == (7, False, None)


def test_a_request_that_repeats_a_partition_waits_for_it_once_and_brings_one_sync() -> None:
    site = Site()
    (log,) = site.topic()
    append(log, batch(b"1"))
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)] * 5000
    request = FetchRequest(
        max_wait_ms=1000, min_bytes=1000, max_bytes=1000, topics=[FetchTopic(topic="t", partitions=asked)]
    )
    waits = site.run(FETCH, request, BY_NAME)
    assert isinstance(waits, Wait)
    assert list(waits.logs) == [log]
    assert list(site.broker.effects.left) == [(Effect.SYNC, log)]


def test_errors_of_many_partitions_are_written_in_steps() -> None:
    site = Site()
    site.topic()
    asked = [FetchPartition(partition=7, fetch_offset=0, partition_max_bytes=100)] * 5000
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="t", partitions=asked)])
    context = RequestContext(1, BY_NAME, "test", Session("127.0.0.1:4711"))
    gathering = HANDLERS[FETCH](site.broker, context, request)
    assert isinstance(gathering, Steps)
    assert isinstance(run_steps(gathering.steps), Steps), "what 5,000 partitions weigh is not asked for"
