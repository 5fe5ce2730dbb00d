"""Appends on a disk that makes writers wait: written by a worker, in order, and nobody else is held up."""

from __future__ import annotations

import errno
import json

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.operations.loss_writes import write_losses
from edge_broker.errors import ErrorCode
from edge_broker.network.background.metrics import metrics_text
from edge_broker.protocol.api import API_VERSIONS, DELETE_TOPICS, FETCH, OFFSET_COMMIT, PRODUCE
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.files import write_throttle as throttle
from edge_broker.storage.files.write_throttle import WriteThrottle
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.testing.site import Site
from edge_broker.testing.worker import HandWorker
from tests.support.storage import batch, failing, fill, read_all
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_groups_and_ids import commit, commit_codes, committed, site_with_groups
from tests.unit.broker.test_produce import code, part, produce

SMALL_WRITES = throttle.QUICK_BYTES // throttle.WRITE_BYTES_MIN


def slow_site(**settings: int) -> Site:
    site = Site(settings)
    site.broker.throttle.slow = True
    return site


def writer(site: Site) -> HandWorker:
    return site.workers["writer"]


def values(site: Site, topic: str = "t") -> list[bytes]:
    log = site.store.topics[topic].partitions[0]
    return [bytes(record.value or b"") for one in read_all(log) for record in records_of(memoryview(one))]


@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_is_answered_after_the_worker_has_written_it(acks: int) -> None:
    site = slow_site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=acks))
    assert (log.log_end_offset, log.writer.begin_flush(), client.answers()) == (0, None, [])
    assert not client.transport.reading
    writer(site).work()
    assert (log.log_end_offset, log.writer.begin_flush(), client.answers()) == (0, None, [])
    writer(site).report()
    assert log.log_end_offset == 1
    if acks == -1:
        assert client.answers() == []
        site.run_until_idle()
    answered = part(client.answer())
    assert (answered.error_code, answered.base_offset) == (0, 0)
    assert client.transport.reading
    site.loop.advance(1000)
    site.run_until_idle()
    assert values(site) == [b"a"]


def test_nothing_overtakes_in_one_partition_and_others_do_not_wait() -> None:
    site = slow_site()
    site.topic(partitions=2)
    clients = [site.client() for _ in range(4)]
    for number, client in enumerate(clients):
        client.send(PRODUCE, produce(("t", 0, batch(str(number).encode())), acks=1))
    other = site.client()
    other.send(PRODUCE, produce(("t", 1, batch(b"x")), acks=1))
    assert len(writer(site)) == 2
    writer(site).step()
    assert part(clients[0].answer()).base_offset == 0
    writer(site).step()
    assert part(other.answer()).base_offset == 0
    site.run_until_idle()
    assert [part(client.answer()).base_offset for client in clients[1:]] == [1, 2, 3]
    site.loop.advance(1000)
    site.run_until_idle()
    assert values(site) == [b"0", b"1", b"2", b"3"]


def test_whoever_came_while_the_disk_was_slow_stays_in_front_when_it_is_quick_again() -> None:
    site = slow_site()
    (log,) = site.topic()
    early, waiting, late = (site.client() for _ in range(3))
    early.send(PRODUCE, produce(("t", 0, batch(b"1")), acks=1))
    waiting.send(PRODUCE, produce(("t", 0, batch(b"2")), acks=1))
    site.broker.throttle.slow = False
    late.send(PRODUCE, produce(("t", 0, batch(b"3")), acks=1))
    assert log.log_end_offset == 0
    site.run_until_idle()
    assert [part(client.answer()).base_offset for client in (early, waiting, late)] == [0, 1, 2]


def test_one_connection_keeps_one_request_in_memory_however_many_it_sends() -> None:
    site = slow_site()
    site.topic()
    client = site.client()
    client.feed(b"".join(client.frame(PRODUCE, produce(("t", 0, batch(bytes(1000))), acks=1)) for _ in range(50)))
    assert len(writer(site)) == 1
    assert not client.transport.reading
    site.run_until_idle()
    assert [part(answer).base_offset for answer in client.answers()] == list(range(50))


def test_the_records_may_be_overwritten_where_they_came_in() -> None:
    site = slow_site()
    site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"kept")), acks=1))
    site.server.receive_buffer[:] = b"\xff" * len(site.server.receive_buffer)
    site.run_until_idle()
    assert code(client.answer()) is ErrorCode.NONE
    site.loop.advance(1000)
    site.run_until_idle()
    assert values(site) == [b"kept"]


def test_a_roll_comes_between_two_writes() -> None:
    site = slow_site()
    (log,) = site.topic(config={"segment.bytes": "4096"})
    clients = [site.client() for _ in range(5)]
    for client in clients:
        client.send(PRODUCE, produce(("t", 0, batch(bytes(1800)))))
    site.run_until_idle()
    assert [part(client.answer()).base_offset for client in clients] == list(range(5))
    assert len(log.segments) == 3
    assert len(read_all(log, 1 << 20)) == 5


def test_a_sync_under_way_covers_what_was_written_before_and_loses_no_error_of_what_comes() -> None:
    site = slow_site()
    (log,) = site.topic()
    first, second = site.client(), site.client()
    first.send(PRODUCE, produce(("t", 0, batch(b"1"))))
    writer(site).step()
    second.send(PRODUCE, produce(("t", 0, batch(b"2"))))
    site.disk_worker.step()
    assert code(first.answer()) is ErrorCode.NONE
    assert log.high_watermark == 1
    site.disk.fail_writeout(f"{log.directory}/{'0' * 20}.log")
    writer(site).step()
    site.disk_worker.step()
    assert code(second.answer()) is ErrorCode.KAFKA_STORAGE_ERROR


def test_without_space_the_write_is_refused_and_the_next_goes_on() -> None:
    site = slow_site()
    (log,) = site.topic()
    fill(log, 1)
    clients = [site.client() for _ in range(2)]
    for client in clients:
        client.send(PRODUCE, produce(("t", 0, batch(b"x")), acks=1))
    writes = []

    def full(kind: str, path: str, size: int) -> None:
        if kind == "write" and "/t-0/" in path:
            writes.append(size)
            if len(writes) == 1:
                raise OSError(errno.ENOSPC, "full", path)

    site.disk.fault = full
    site.run_until_idle()
    assert code(clients[0].answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert part(clients[1].answer()).base_offset == 1
    assert log.fault is None


def test_a_failed_write_takes_its_partition_offline_and_no_other_and_it_comes_back() -> None:
    site = slow_site()
    log, other = site.topic(partitions=2)
    clients = [site.client() for _ in range(3)]
    clients[0].send(PRODUCE, produce(("t", 0, batch(b"x")), acks=1))
    clients[1].send(PRODUCE, produce(("t", 0, batch(b"y")), acks=1))
    clients[2].send(PRODUCE, produce(("t", 1, batch(b"z")), acks=1))

    site.disk.fault = failing("write", "/t-0/")
    writer(site).step()
    assert log.fault is not None
    assert [code(client.answer()) for client in clients[:2]] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    site.disk.fault = None
    site.run_until_idle()
    assert code(clients[2].answer()) is ErrorCode.NONE
    assert (log.fault, other.fault) == (None, None)
    assert part(clients[0].ask(PRODUCE, produce(("t", 0, batch(b"x")), acks=1))).base_offset == 0


def test_a_bug_in_the_worker_takes_the_partition_offline_and_answers() -> None:
    site = slow_site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"x")), acks=1))

    def broken(kind: str, path: str, size: int) -> None:
        if kind == "write":
            raise KeyError("a bug")

    site.disk.fault = broken
    writer(site).step()
    assert code(client.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "a bug" in str(log.fault)


def test_a_retry_of_what_is_being_written_is_no_second_write() -> None:
    site = slow_site()
    (log,) = site.topic()
    clients = [site.client() for _ in range(2)]
    for client in clients:
        client.send(PRODUCE, produce(("t", 0, batch(b"x", producer=(7, 0, 0))), acks=1))
    site.run_until_idle()
    assert [part(client.answer()).base_offset for client in clients] == [0, 0]
    assert log.log_end_offset == 1


def test_a_topic_that_is_deleted_meanwhile() -> None:
    site = slow_site()
    site.topic()
    client, deleting = site.client(), site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"x"))))
    deleting.send(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    site.run_until_idle()
    assert deleting.answer().responses[0].error_code == 0
    assert code(client.answer()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert site.reopen("kill").store.recovery_notes == []


def test_a_request_that_waits_too_long_is_told_and_what_was_written_stays() -> None:
    site = slow_site()
    (log,) = site.topic()
    client = site.client()
    request = produce(("t", 0, batch(b"x", producer=(7, 0, 0))))
    request.timeout_ms = 100
    client.send(PRODUCE, request)
    site.loop.advance(100)
    assert code(client.answer()) is ErrorCode.REQUEST_TIMED_OUT
    site.run_until_idle()
    again = client.ask(PRODUCE, produce(("t", 0, batch(b"x", producer=(7, 0, 0)))))
    assert (code(again), part(again).base_offset, log.log_end_offset) == (ErrorCode.NONE, 0, 1)


def test_a_client_that_leaves_takes_nothing_with_it() -> None:
    site = slow_site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"x"))))
    client.lose()
    site.run_until_idle()
    assert log.log_end_offset == 1
    assert site.dispatcher.waiting_requests == 0


def test_stopping_waits_for_the_write() -> None:
    site = slow_site()
    site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"x"))))
    assert site.dispatcher.working
    site.dispatcher.sync_all()
    site.run_until_idle()
    assert not site.dispatcher.working
    assert code(client.answer()) is ErrorCode.NONE


def test_the_loop_and_the_readers_are_not_held_up() -> None:
    site = slow_site()
    (log,) = site.topic()
    fill(log, 1)
    client, reader = site.client(), site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"x")), acks=1))
    reader.send(API_VERSIONS, ApiVersionsRequest())
    reader.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    assert len(reader.answers()) == 2
    assert client.answers() == []


def test_the_ledger_is_written_the_same_way() -> None:
    site = slow_site()
    answers: list[object] = []
    log = site.store.topics[LEDGER_TOPIC].partitions[0]
    loss = Loss("damaged", "t", "id", 0, 5, 6, 1, 10)
    site.dispatcher.start(lambda: write_losses(site.broker, log, [loss] * 500, answers.append))
    assert answers == []
    site.run_until_idle()
    assert answers == [None]
    assert [json.loads(value)["cause"] for value in values(site, LEDGER_TOPIC)] == ["damaged"] * 500


def test_commits_of_offsets_go_the_same_way() -> None:
    site = site_with_groups()
    site.broker.throttle.slow = True
    client = site.client()
    for offset in (5, 6):
        client.send(OFFSET_COMMIT, commit(offset))
    assert client.answers() == []
    site.run_until_idle()
    assert [commit_codes(answer) for answer in client.answers()] == [[0], [0]]
    assert committed(site) == (6, "m6")


# the pace


def test_a_write_that_took_long_makes_the_disk_slow_until_many_were_quick() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    stall_s = [throttle.SLOW_S, throttle.SLOW_S + 0.001]

    def stall(kind: str, path: str, size: int) -> None:
        if kind == "write" and "/t-0/" in path and stall_s:
            site.loop.now_s += stall_s.pop(0)

    site.disk.fault = stall
    for slow in (False, True):
        client.ask(PRODUCE, produce(("t", 0, batch()), acks=1))
        assert site.broker.throttle.slow is slow
    assert "edge_broker_disk_slow 1\n" in metrics_text(site.broker, site.dispatcher, site.server, 0)
    for number in range(SMALL_WRITES):
        assert site.broker.throttle.slow, number
        client.ask(PRODUCE, produce(("t", 0, batch()), acks=1))
    assert not site.broker.throttle.slow
    assert log.log_end_offset == SMALL_WRITES + 2


def test_one_slow_write_begins_the_count_anew() -> None:
    disk = WriteThrottle()
    disk.wrote_slowly(1.0, 0)
    for _ in range(SMALL_WRITES - 1):
        disk.wrote_behind(0.0, 100)
    disk.wrote_behind(throttle.QUICK_S, 100)
    for _ in range(SMALL_WRITES - 1):
        disk.wrote_behind(0.0, 100)
    assert disk.slow
    disk.wrote_behind(0.0, 100)
    assert not disk.slow


def test_large_writes_that_are_quick_count_by_their_bytes() -> None:
    disk = WriteThrottle()
    disk.wrote_slowly(1.0, 0)
    for slow in (True, True, True, False):
        disk.wrote_behind(0.0, throttle.QUICK_BYTES // 4)
        assert disk.slow is slow


def test_much_that_is_unsynced_is_synced_early_and_too_much_is_slow() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic(config={"segment.bytes": str(1 << 30)})
    client = site.client()
    big = bytes(1 << 20)
    for _ in range(throttle.EARLY_SYNC_BYTES >> 20):
        client.send(PRODUCE, produce(("t", 0, batch(big[:-200])), acks=1))
    assert not site.dispatcher.syncer.busy
    for _ in range(2):
        client.send(PRODUCE, produce(("t", 0, batch(big[:-200])), acks=1))
    assert site.dispatcher.syncer.busy
    while log.writer.unsynced_bytes <= throttle.UNSYNCED_BYTES_MAX:
        assert not site.broker.throttle.slow
        client.send(PRODUCE, produce(("t", 0, batch(big[:-200])), acks=1))
    assert site.broker.throttle.slow
    site.run_until_idle()
    assert site.broker.throttle.unsynced_bytes == log.writer.unsynced_bytes == 0


def test_what_is_being_synced_asks_for_no_second_round() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic(config={"segment.bytes": str(1 << 30)})
    client = site.client()
    much = produce(("t", 0, batch(bytes((1 << 20) - 200))), acks=1)
    while not site.dispatcher.syncer.busy:
        client.send(PRODUCE, much)
    site.loop.run()  # the round is in the worker's hands
    for _ in range(3):
        client.send(PRODUCE, much)
    site.run_until_idle()
    assert site.dispatcher.syncer.rounds == 1
    assert site.broker.throttle.unsynced_bytes == log.writer.unsynced_bytes > 3_000_000


def test_what_a_roll_synced_asks_for_no_early_sync() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic(config={"segment.bytes": str(throttle.EARLY_SYNC_BYTES)})
    client = site.client()
    much = produce(("t", 0, batch(bytes((1 << 20) - 200))), acks=1)
    while len(log.segments) == 1:
        client.send(PRODUCE, much)
        site.run_until_idle()
    assert log.log_end_offset > throttle.EARLY_SYNC_BYTES >> 20
    assert site.broker.throttle.unsynced_bytes == log.writer.unsynced_bytes == log.size // log.log_end_offset
    assert site.dispatcher.syncer.rounds == 0


@pytest.mark.parametrize(("acks", "rounds"), [(1, 0), (-1, 1)])
def test_who_waits_for_a_write_alone_asks_for_no_sync(acks: int, rounds: int) -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    site.topic()
    site.broker.throttle.slow = True
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"1")), acks=acks))
    site.run_until_idle()
    assert part(client.answer()).base_offset == 0
    assert site.dispatcher.syncer.rounds == rounds


def test_topics_left_to_the_kernel_make_no_disk_slow() -> None:
    site = Site()
    site.topic(config={"edge.durability": "kernel"})
    site.broker.throttle.unsynced_bytes = throttle.UNSYNCED_BYTES_MAX
    site.client().ask(PRODUCE, produce(("t", 0, batch(bytes(1000))), acks=1))
    assert (site.broker.throttle.slow, site.broker.throttle.unsynced_bytes) == (False, 0)
