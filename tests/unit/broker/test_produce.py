"""Produce: what is answered when, and that a neighbour never pays."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from edge_broker.broker.effects import Effect
from edge_broker.broker.outcomes import Reply, Wait
from edge_broker.errors import ErrorCode, ProtocolViolation
from edge_broker.protocol.api import PRODUCE
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.files.atomic_files import temporary_name
from edge_broker.storage.recovery.dirty_markers import FILES
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import Site
from tests.support.record_batches import make_batch
from tests.support.storage import batch, failing, ledgered, read_all

KERNEL = {"flush.ms": "9223372036854775807"}
SMALL = {"segment.bytes": "4096"}


def produce(
    *parts: tuple[str, int, memoryview | None],
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, partition, records in parts:
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=records))
    data = [TopicProduceData(name=name, partition_data=found) for name, found in topics.items()]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data, transactional_id=transactional_id)


def part(response: Any, at: int = 0) -> Any:
    return [one for topic in response.responses for one in topic.partition_responses][at]


def code(response: Any, at: int = 0) -> ErrorCode:
    return ErrorCode(part(response, at).error_code)


def values(log: Any) -> list[bytes]:
    """The last byte of each batch: what `batch(bytes)` was given ends one byte before."""
    return [bytes(one[-2:-1]) for one in read_all(log)]


def test_acks_all_is_answered_after_the_sync_and_not_before() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a", b"b"))))
    assert log.log_end_offset == 2
    assert client.answers() == []
    site.disk_worker.work()  # on the disk, but the loop does not know it
    assert client.answers() == []
    assert log.high_watermark == 0
    site.disk_worker.report()
    assert log.high_watermark == 2
    answered = part(client.answer())
    assert (answered.error_code, answered.base_offset, answered.log_start_offset) == (0, 0, 0)


def test_acks_1_is_answered_after_the_write_and_synced_within_flush_ms() -> None:
    site = Site({"log.flush.interval.ms": 1000})
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=1))
    assert part(client.answer()).base_offset == 0
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    site.loop.advance(999)
    assert not site.disk_worker
    site.loop.advance(1)
    site.run_until_idle()
    assert log.high_watermark == 1


def test_acks_0_gets_no_answer_and_keeps_the_order_of_the_others() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=0))
    client.send(PRODUCE, produce(("t", 0, batch(b"b")), acks=1))
    assert part(client.answer()).base_offset == 1
    assert log.log_end_offset == 2


def test_acks_0_that_fails_closes_the_connection_and_what_could_be_written_is_synced_in_time() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), ("missing", 0, batch(b"b")), acks=0))
    assert client.transport.closed
    assert site.server.violations == 1
    site.loop.advance(1000)
    site.run_until_idle()
    assert log.high_watermark == 1


def test_left_to_the_kernel_is_answered_after_the_write_and_never_synced_by_the_clock() -> None:
    site = Site()
    (log,) = site.topic(config=KERNEL)
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a"))))
    assert part(client.answer()).base_offset == 0
    assert (log.high_watermark, log.synced_end.offset) == (1, 0)
    site.loop.advance(86_400_000)
    assert not site.disk_worker


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(acks: int) -> None:
    site = Site()
    (log,) = site.topic()
    response = site.client().ask(PRODUCE, produce(("t", 0, batch()), acks=acks))
    assert code(response) is ErrorCode.INVALID_REQUIRED_ACKS
    assert log.log_end_offset == 0


def test_refusals_of_their_own_beside_a_neighbour_that_is_written() -> None:
    site = Site({"message.max.bytes": 1000})
    logs = site.topic(partitions=2)
    wrong_crc = batch(b"x")
    wrong_crc[17] ^= 1
    request = produce(
        ("t", 0, wrong_crc),
        ("t", 1, batch(b"good")),
        ("t", 2, batch()),
        ("t", -1, batch()),
        ("missing", 0, batch()),
        ("__consumer_offsets", 0, batch()),
        ("t", 1, batch(bytes(2000))),
        ("t", 1, None),
    )
    response = site.client().ask(PRODUCE, request)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for topic in response.responses for one in topic.partition_responses] == [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
        unknown,
        unknown,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        unknown,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert [log.high_watermark for log in logs] == [0, 1]


def test_transactions_are_refused() -> None:
    site = Site()
    (log,) = site.topic()
    for producer, refused in (
        ((7, 0, 0), ErrorCode.INVALID_TXN_STATE),
        ((-1, -1, -1), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ):
        marked = batch(producer=producer)
        marked[22] |= 0x10  # transactional by its attributes
        marked[17:21] = crc32c(marked[21:]).to_bytes(4, "big")
        for transactional_id in (None, "tx"):
            request = produce(("t", 0, marked), transactional_id=transactional_id)
            assert code(site.client().ask(PRODUCE, request)) is refused
    assert log.log_end_offset == 0


def test_a_plain_batch_is_taken_whatever_transactional_id_comes_with_it() -> None:
    site = Site()
    (log,) = site.topic()
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch()), transactional_id="tx"))) is ErrorCode.NONE
    assert log.log_end_offset == 1


def test_a_negative_producer_epoch_has_kafkas_code_and_the_logs_start() -> None:
    site = Site()
    site.topic()
    response = site.client().ask(PRODUCE, produce(("t", 0, batch(producer=(7, -1, 0)))))
    assert code(response) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert part(response).log_start_offset == 0


@pytest.mark.parametrize("codec", [0, 1])
def test_the_records_that_made_a_batch_be_refused_are_told(codec: int) -> None:
    site = Site()
    (log,) = site.topic(config={"cleanup.policy": "compact"})
    records = [(None if index % 2 else b"k", b"v", NOW_MS) for index in range(6)]
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, make_batch(records, codec=codec))))
    site.run_until_idle()
    answer = part(client.answer())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [1, 3, 5]
    assert {one.batch_index_error_message for one in answer.record_errors} == {
        "A compacted topic takes no record without a key."
    }
    assert (answer.base_offset, answer.log_start_offset, log.log_end_offset) == (-1, 0, 0)


def test_the_list_of_bad_records_is_bounded_for_a_batch_and_for_an_answer() -> None:
    site = Site()
    site.topic(partitions=64, config={"cleanup.policy": "compact"})
    keyless = make_batch([(None, b"", NOW_MS)] * 2000)
    client = site.client()
    client.send(PRODUCE, produce(*(("t", index, bytearray(keyless)) for index in range(64))))
    site.run_until_idle()
    listed = [len(one.record_errors) for one in client.answer().responses[0].partition_responses]
    assert 300 <= listed[0] < 600
    assert sum(listed) == 1000
    late = make_batch([*[(b"k", b"", NOW_MS)] * 2000, (None, b"", NOW_MS)])
    client.send(PRODUCE, produce(("t", 0, late)))
    site.run_until_idle()
    assert [one.batch_index for one in part(client.answer()).record_errors] == [2000]


def test_the_plain_handler_says_reply_for_acks_1_and_wait_for_acks_all() -> None:
    site = Site()
    (log,) = site.topic()
    assert isinstance(site.run(PRODUCE, produce(("t", 0, batch()), acks=1)), Reply)
    waiting = site.run(PRODUCE, produce(("t", 0, batch())))
    assert isinstance(waiting, Wait)
    assert waiting.ready() is None
    assert list(site.broker.effects.left) == [(Effect.APPENDED, log)] * 2
    with pytest.raises(ProtocolViolation, match="acks=0"):
        site.run(PRODUCE, produce(("missing", 0, batch()), acks=0))


# idempotent producers


def test_duplicate_waits_for_the_sync_of_the_first_write() -> None:
    site = Site()
    (log,) = site.topic()
    first, again = site.client(), site.client()
    first.send(PRODUCE, produce(("t", 0, batch(b"a", producer=(7, 0, 0)))))
    again.send(PRODUCE, produce(("t", 0, batch(b"a", producer=(7, 0, 0)))))
    assert again.answers() == []
    site.run_until_idle()
    assert part(first.answer()).base_offset == 0
    assert part(again.answer()).base_offset == 0
    assert log.log_end_offset == 1
    after = site.client().ask(PRODUCE, produce(("t", 0, batch(b"a", producer=(7, 0, 0)))))
    assert part(after).base_offset == 0  # nothing left to sync: answered at once


def test_duplicate_of_a_write_that_was_never_synced_is_not_answered_as_safe() -> None:
    site = Site()
    (log,) = site.topic()
    site.client().send(PRODUCE, produce(("t", 0, batch(producer=(7, 0, 0))), acks=1))
    site.disk.fault = failing("datasync", "/t-0/")
    response = site.client().ask(PRODUCE, produce(("t", 0, batch(producer=(7, 0, 0)))))
    assert code(response) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.fault is not None


def test_sequences_are_checked_for_each_producer() -> None:
    site = Site()
    site.topic()
    client = site.client()
    assert code(client.ask(PRODUCE, produce(("t", 0, batch(producer=(7, 1, 0)))))) is ErrorCode.NONE
    gap = client.ask(PRODUCE, produce(("t", 0, batch(producer=(7, 1, 2)))))
    assert code(gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    fenced = client.ask(PRODUCE, produce(("t", 0, batch(producer=(7, 0, 1)))))
    assert code(fenced) is ErrorCode.INVALID_PRODUCER_EPOCH


# rolls


def fill_segment(site: Site, topic: str = "t") -> None:
    client = site.client()
    assert code(client.ask(PRODUCE, produce((topic, 0, batch(bytes(3500)))))) is ErrorCode.NONE


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_full_segment_is_closed_first_and_the_neighbour_does_not_wait(acks: int) -> None:
    site = Site()
    (log,), (other,) = site.topic(config=SMALL), site.topic("other")
    fill_segment(site)
    client, neighbour = site.client(), site.client()
    client.send(PRODUCE, produce(("t", 0, batch(bytes(1000))), acks=acks))
    neighbour.send(PRODUCE, produce(("other", 0, batch(b"n")), acks=1))
    assert part(neighbour.answer()).base_offset == 0
    assert client.answers() == []
    site.run_until_idle()
    assert part(client.answer()).base_offset == 1
    assert len(log.segments) == 2
    assert other.log_end_offset == 1


def test_order_holds_over_rolls_for_everyone_who_waits() -> None:
    """Three segments' worth of one producer's batches arrive, over many connections, while the first roll is due."""
    site = Site()
    (log,) = site.topic(config=SMALL)
    fill_segment(site)
    clients = [site.client() for _ in range(9)]
    for number, client in enumerate(clients):
        payload = bytes(1500) + str(number).encode()
        client.send(PRODUCE, produce(("t", 0, batch(payload, producer=(7, 0, number)))))
    site.run_until_idle()
    assert [code(client.answer()) for client in clients] == [ErrorCode.NONE] * 9
    assert values(log)[1:] == [str(number).encode() for number in range(9)]
    assert len(log.segments) > 3


def test_order_holds_over_rolls_for_pipelined_requests_of_one_connection() -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    fill_segment(site)
    client = site.client()
    frames = [
        client.frame(PRODUCE, produce(("t", 0, batch(bytes(1500) + str(n).encode(), producer=(7, 0, n)))))
        for n in range(5)
    ]
    client.feed(b"".join(frames))
    assert not client.transport.reading  # a copy is kept: no more of them until it is written
    site.run_until_idle()
    answers = client.answers()
    assert [(code(one), part(one).base_offset) for one in answers] == [(ErrorCode.NONE, n) for n in range(1, 6)]
    assert values(log)[1:] == [b"0", b"1", b"2", b"3", b"4"]
    assert client.transport.reading


def test_nothing_overtakes_between_the_end_of_a_roll_and_the_loop_learning_of_it() -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    fill_segment(site)
    early, late = site.client(), site.client()
    early.send(PRODUCE, produce(("t", 0, batch(bytes(1000) + b"1"))))
    site.disk_worker.work()
    assert len(log.segments) == 2
    late.send(PRODUCE, produce(("t", 0, batch(b"2"))))
    assert log.log_end_offset == 1
    site.run_until_idle()
    assert values(log)[1:] == [b"1", b"2"]
    assert [part(client.answer()).base_offset for client in (early, late)] == [1, 2]


def test_the_records_of_a_waiting_request_survive_the_next_use_of_the_receive_buffer() -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    fill_segment(site)
    waiting = site.client()
    waiting.send(PRODUCE, produce(("t", 0, batch(bytes(1000) + b"w"))))
    site.server.receive_buffer[:] = b"\xff" * len(site.server.receive_buffer)
    site.run_until_idle()
    assert code(waiting.answer()) is ErrorCode.NONE
    assert values(log)[1:] == [b"w"]


def test_acks_0_that_fails_after_a_roll_costs_its_connection_and_no_other() -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    fill_segment(site)
    silent, patient = site.client(), site.client()
    silent.send(PRODUCE, produce(("t", 0, batch(bytes(1000), producer=(7, 0, 0))), acks=0))
    silent_too = site.client()
    silent_too.send(PRODUCE, produce(("t", 0, batch(bytes(1000), producer=(7, 0, 9))), acks=0))  # out of order
    patient.send(PRODUCE, produce(("t", 0, batch(b"p"))))
    site.run_until_idle()
    assert [client.transport.closed for client in (silent, silent_too, patient)] == [False, True, False]
    assert code(patient.answer()) is ErrorCode.NONE
    assert log.high_watermark == 3


def test_a_deleted_topic_refuses_what_waits_for_its_roll() -> None:
    site = Site()
    site.topic(config=SMALL)
    fill_segment(site)
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(bytes(1000)))))
    topic = site.store.remove_topic("t")
    site.broker.effects.offline(topic.partitions)
    site.dispatcher.apply()
    site.run_until_idle()
    assert code(client.answer()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# what takes too long, and what fails


def test_a_slow_disk_is_answered_with_request_timed_out() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch()), timeout_ms=500))
    site.loop.advance(499)
    assert client.answers() == []
    site.loop.advance(1)
    assert code(client.answer()) is ErrorCode.REQUEST_TIMED_OUT
    site.run_until_idle()
    assert log.high_watermark == 1
    assert client.answers() == []  # not answered twice


def test_what_waits_too_long_for_a_roll_is_refused_and_never_written() -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    fill_segment(site)
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(bytes(1000))), acks=1, timeout_ms=500))
    site.loop.advance(500)
    assert code(client.answer()) is ErrorCode.REQUEST_TIMED_OUT
    site.run_until_idle()
    assert log.log_end_offset == 1


def test_failed_sync_takes_its_partition_offline_and_the_neighbour_goes_on() -> None:
    site = Site()
    logs = site.topic(partitions=2)
    site.disk.fault = failing("datasync", "/t-0/")
    client, neighbour = site.client(), site.client()
    client.send(PRODUCE, produce(("t", 0, batch()), ("t", 1, batch())))
    neighbour.send(PRODUCE, produce(("t", 1, batch())))
    site.run_until_idle()
    both = client.answer()
    assert [code(both, at) for at in (0, 1)] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert code(neighbour.answer()) is ErrorCode.NONE
    assert logs[0].fault is not None
    site.disk.fault = None
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code(client.ask(PRODUCE, produce(("t", 1, batch())))) is ErrorCode.NONE
    assert [log.high_watermark for log in logs] == [0, 3]


def test_failed_write_is_told_at_once_to_everyone_who_waits_for_the_partition() -> None:
    site = Site({"edge.flush.interval.min.ms": 60_000})
    (log,) = site.topic()
    first = site.client()
    assert code(first.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE
    waiting, failed = site.client(), site.client()
    waiting.send(PRODUCE, produce(("t", 0, batch())))  # its round begins in 60 s
    site.disk.fault = failing("write", "/t-0/")
    failed.send(PRODUCE, produce(("t", 0, batch())))
    assert code(failed.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code(waiting.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.fault is not None


def test_failed_roll_takes_its_partition_offline() -> None:
    site = Site()
    (log,), _ = site.topic(config=SMALL), site.topic("other")
    fill_segment(site)
    site.disk.fault = failing("create", "/t-0/")
    response = site.client().ask(PRODUCE, produce(("t", 0, batch(bytes(1000)))))
    assert code(response) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.fault is not None
    assert code(site.client().ask(PRODUCE, produce(("other", 0, batch())))) is ErrorCode.NONE


def test_no_space_refuses_and_goes_on_once_there_is_some() -> None:
    site = Site()
    (log,) = site.topic()
    site.disk.fault = failing("write", "/t-0/", errno.ENOSPC)
    client = site.client()
    assert code(client.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.fault is None
    site.disk.fault = None
    assert part(client.ask(PRODUCE, produce(("t", 0, batch())))).base_offset == 0


def test_log_append_time_is_stamped_and_answered() -> None:
    site = Site()
    (log,) = site.topic(config={"message.timestamp.type": "LogAppendTime"})
    response = site.client().ask(PRODUCE, produce(("t", 0, batch(timestamp_ms=5))))
    assert part(response).log_append_time_ms == site.clock.wall_ms()
    assert read_header(memoryview(read_all(log)[0])).max_timestamp == site.clock.wall_ms()


def test_acked_records_survive_a_power_cut_and_what_was_shown_is_never_more() -> None:
    for seed in range(5):
        site = Site()
        site.disk.random.seed(seed)
        site.topic()
        client = site.client()
        assert code(client.ask(PRODUCE, produce(("t", 0, batch(b"acked"))))) is ErrorCode.NONE
        client.send(PRODUCE, produce(("t", 0, batch(b"written"))))
        again = site.reopen("cut")
        (log,) = again.store.topics["t"].partitions
        assert log.high_watermark >= 1
        assert bytes(read_all(log)[0]).endswith(b"acked\x00")
        assert again.store.directory.leader_epoch == site.store.directory.leader_epoch + 1


def test_the_first_acks_1_answer_waits_for_the_mark_and_later_ones_for_nothing() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic(marked=False)
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=1))
    assert client.answers() == [], "a cut now would take it, and the ledger would not say so"
    site.disk_worker.work()
    assert client.answers() == []
    site.disk_worker.report()
    assert part(client.answer()).base_offset == 0
    assert (log.marked, log.high_watermark) == (True, 0)
    client.send(PRODUCE, produce(("t", 0, batch(b"b")), acks=1))
    assert part(client.answer()).base_offset == 1
    assert not site.disk_worker
    assert site.store.in_use.writes == 1


def test_acks_all_needs_no_mark_and_acks_0_has_one_made_that_nobody_waits_for() -> None:
    site = Site()
    first, second = site.topic(partitions=2, marked=False)
    client = site.client()
    assert part(client.ask(PRODUCE, produce(("t", 0, batch(b"a"))))).error_code == 0
    assert (first.marked, site.store.in_use.writes) == (False, 0)
    client.send(PRODUCE, produce(("t", 1, batch(b"b")), acks=0))
    site.run_until_idle()
    assert (second.marked, second.high_watermark) == (True, 0)


def test_of_an_interval_topic_acks_all_needs_the_mark_and_of_a_kernel_topic_nothing_does() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic("i", config={"edge.durability": "interval"}, marked=False)
    (left,) = site.topic("k", config=KERNEL, marked=False)
    client = site.client()
    client.send(PRODUCE, produce(("i", 0, batch(b"a"))))
    assert client.answers() == []
    site.run_until_idle()
    assert part(client.answer()).error_code == 0
    assert (log.marked, log.high_watermark) == (True, 0)
    for acks in (1, -1, 0):
        client.send(PRODUCE, produce(("k", 0, batch(b"a")), acks=acks))
    assert len(client.answers()) == 2
    assert not left.marked


def test_a_retry_of_what_was_not_answered_waits_for_the_mark_too() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    site.topic(marked=False)
    lost, client = site.client(), site.client()
    lost.send(PRODUCE, produce(("t", 0, batch(b"a", producer=(7, 0, 0))), acks=1))
    lost.lose()
    client.send(PRODUCE, produce(("t", 0, batch(b"a", producer=(7, 0, 0))), acks=1))
    assert client.answers() == []
    site.run_until_idle()
    assert part(client.answer()).base_offset == 0


def test_where_the_mark_cannot_be_written_acks_1_is_answered_after_the_sync() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic(marked=False)
    site.disk.fault = failing("write", temporary_name("/data", FILES[1]))
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=1))
    site.run_until_idle()
    assert part(client.answer()).error_code == 0
    assert (log.marked, log.high_watermark) == (False, 1)


@pytest.mark.parametrize(("how", "told"), [("kill", []), ("stop", []), ("cut", [("unsynced_cut", "t", 0, 0, None)])])
def test_the_first_records_of_a_partition_that_a_cut_takes_are_in_the_ledger(how: str, told: list[Any]) -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    site.disk.loses_all = True
    site.topic(partitions=2, marked=False)
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=1))
    client.send(PRODUCE, produce(("t", 1, batch(b"b"))))
    site.run_until_idle()
    assert len(client.answers()) == 2
    assert ledgered(site.reopen(how).store) == told


def test_what_lay_behind_the_last_checkpoint_and_is_gone_without_a_trace_is_in_the_ledger() -> None:
    """The checkpoint and the last sync are the same end, and all behind it goes."""
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic(marked=False)
    client = site.client()
    client.ask(PRODUCE, produce(("t", 0, batch(b"a"))))
    site.store.checkpoint()
    client.ask(PRODUCE, produce(("t", 0, batch(b"b")), acks=1))
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    site.disk.loses_all = True
    again = site.reopen("cut")
    assert again.store.topics["t"].partitions[0].log_end_offset == 1
    assert ledgered(again.store) == [("unsynced_cut", "t", 0, 1, None)]
    assert ledgered(again.reopen("cut").store) == [("unsynced_cut", "t", 0, 1, None)], "once is enough"


@pytest.mark.parametrize("end", ["rolled", "too late", "connection lost"])
def test_records_that_wait_count_as_long_as_they_are_kept(end: str) -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    site.client().ask(PRODUCE, produce(("t", 0, batch(b"x" * 4000)), acks=1))
    before = site.dispatcher.requests_pool.used
    clients = [site.client() for _ in range(5)]
    for client in clients:
        client.send(PRODUCE, produce(("t", 0, batch(b"y" * 50_000)), acks=1, timeout_ms=1000))
    assert log.writer.rolling
    assert site.dispatcher.requests_pool.used - before > 5 * 45_000
    if end == "connection lost":
        for client in clients:
            client.lose()
    elif end == "too late":
        site.loop.advance(1000)
    assert (site.dispatcher.requests_pool.used == before) == (end != "rolled")
    site.run_until_idle()
    assert site.dispatcher.requests_pool.used == before
    assert all(client.connection.requests.held == 0 for client in clients)


def test_what_a_slow_disk_has_still_to_write_counts_as_held() -> None:
    site = Site()
    site.topic()
    site.broker.throttle.slow = True
    records = batch(bytes(1000))
    waits = site.run(PRODUCE, produce(("t", 0, records), acks=1))
    assert isinstance(waits, Wait)
    assert (waits.holds, waits.kept_bytes) == (True, len(records))
