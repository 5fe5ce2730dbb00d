"""Produce, DeleteRecords, Fetch, ListOffsets, OffsetForLeaderEpoch, InitProducerId."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from edge_broker.protocol.api import (
    DELETE_RECORDS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch
from tests.differential.session import NOW_MS, Session, case, produce
from tests.support.record_batches import changed, make_batch

GOOD = build_batch([(b"k", b"v"), (None, b"w")], timestamp_ms=NOW_MS)
EARLIEST, LATEST, MAX_TIMESTAMP, LOCAL_EARLIEST, TIERED = -2, -1, -3, -4, -5


def with_bytes(position: int, content: bytes, *, crc: bool = True) -> bytes:
    """The good batch with bytes put in."""
    return changed(GOOD, position, content, crc=crc)


def _i(size: int, value: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


@case(PRODUCE)
def produce_good(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    s.ask(PRODUCE, produce(topic, GOOD), version, label="first")
    s.ask(PRODUCE, produce(topic, GOOD), version, label="second")
    s.ask(PRODUCE, produce(topic, GOOD, acks=1), version, label="acks=1")
    s.ask(PRODUCE, produce(topic, GOOD, partition=1), version, label="other partition")
    s.ask(PRODUCE, produce(s.name("missing"), GOOD), version, label="missing topic")
    s.ask(PRODUCE, produce(topic, GOOD, partition=7), version, label="missing partition")
    s.ask(PRODUCE, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), version, label="nothing")


@case(PRODUCE, versions=(3, 9))
def produce_odd(s: Session, version: int) -> None:
    topic = s.topic(partitions=3)
    for label, acks in {"acks 2": 2, "acks -2": -2}.items():
        s.ask(PRODUCE, produce(topic, GOOD, acks=acks), version, label=label, on=label)
    data = [PartitionProduceData(index=index, records=memoryview(GOOD)) for index in (0, 9, 1)]
    wanted = [TopicProduceData(name=topic, partition_data=data)]
    s.ask(PRODUCE, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=wanted), version, label="one of three missing")
    twice = [PartitionProduceData(index=2, records=memoryview(GOOD))] * 2
    wanted = [TopicProduceData(name=topic, partition_data=twice)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=wanted)
    s.ask(PRODUCE, request, version, label="a partition twice", on="twice")
    request = produce(topic, GOOD)
    request.transactional_id = "t"
    s.ask(PRODUCE, request, version, label="transactional id, plain batch", on="transactional")
    s.send(PRODUCE, produce(topic, GOOD, acks=0), version, on="acks 0")
    s.ask(LIST_OFFSETS, _offsets(topic, LATEST), 5, on="acks 0", label="behind acks=0")


@case(PRODUCE, versions=(9,))
def produce_internal(s: Session, version: int) -> None:
    s.coordinator(s.name("g"))
    s.ask(PRODUCE, produce("__consumer_offsets", GOOD), version)


BAD: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "two batches": lambda: GOOD + GOOD,
    "cut in the header": lambda: GOOD[:30],
    "cut in the records": lambda: GOOD[:-1],
    "bytes behind": lambda: GOOD + b"abc",
    "magic 1": lambda: with_bytes(16, b"\x01"),
    "magic 3": lambda: with_bytes(16, b"\x03"),
    "wrong CRC": lambda: with_bytes(17, b"\0\0\0\0", crc=False),
    "batch length short": lambda: with_bytes(8, _i(4, 40)),
    "batch length negative": lambda: with_bytes(8, _i(4, -1)),
    "base offset 5": lambda: with_bytes(0, _i(8, 5)),
    "base offset -1": lambda: with_bytes(0, _i(8, -1)),
    "last offset delta 7": lambda: with_bytes(23, _i(4, 7)),
    "last offset delta -1": lambda: with_bytes(23, _i(4, -1)),
    "count 0": lambda: with_bytes(57, _i(4, 0)),
    "count 1": lambda: with_bytes(57, _i(4, 1)),
    "count -1": lambda: with_bytes(57, _i(4, -1)),
    "control": lambda: with_bytes(21, _i(2, 0x20)),
    "transactional without producer": lambda: with_bytes(21, _i(2, 0x10)),
    "delete horizon": lambda: with_bytes(21, _i(2, 0x40)),
    "codec 5": lambda: with_bytes(21, _i(2, 5)),
    "codec 7": lambda: with_bytes(21, _i(2, 7)),
    "producer without sequence": lambda: with_bytes(43, _i(8, 9) + _i(2, 0) + _i(4, -1)),
    "sequence without producer": lambda: with_bytes(53, _i(4, 3)),
    "producer of nobody": lambda: with_bytes(43, _i(8, 123456) + _i(2, 0) + _i(4, 0)),
    "too large": lambda: build_batch([(None, bytes(1_048_588))], timestamp_ms=NOW_MS),
    "an hour and a half ahead": lambda: build_batch([(None, b"v")], timestamp_ms=NOW_MS + 5_400_000),
    "1970": lambda: build_batch([(None, b"v")], timestamp_ms=0),
    "no timestamp": lambda: build_batch([(None, b"v")], timestamp_ms=-1),
}


@case(PRODUCE, versions=(9,))
def produce_bad(s: Session, version: int) -> None:
    topic = s.topic(partitions=len(BAD))
    for index, (label, make) in enumerate(BAD.items()):
        s.ask(PRODUCE, produce(topic, make(), index), version, label=label)
        s.ask(LIST_OFFSETS, _offsets(topic, LATEST, partitions=(index,)), 5, label=f"end behind {label}")


@case(PRODUCE, versions=(7, 9))
def produce_to_a_compacted_topic(s: Session, version: int) -> None:
    topic = s.topic(configs={"cleanup.policy": "compact"})
    mixed = build_batch([(b"k", b"1"), (None, b"2"), (b"k", b"3"), (None, b"4")], timestamp_ms=NOW_MS)
    s.ask(PRODUCE, produce(topic, build_batch([(b"k", b"1")], timestamp_ms=NOW_MS)), version, label="keys")
    s.ask(PRODUCE, produce(topic, mixed), version, label="two without keys")
    s.ask(PRODUCE, produce(topic, build_batch([(b"k", None)], timestamp_ms=NOW_MS)), version, label="a tombstone")


@case(PRODUCE, versions=(9,))
def produce_idempotent(s: Session, version: int) -> None:
    topic = s.topic()
    producer_id = s.producer_id()

    def batch(sequence: int, epoch: int = 0, count: int = 2) -> bytes:
        records = [(b"k", b"v%d" % index, NOW_MS) for index in range(count)]
        return bytes(make_batch(records, producer=(producer_id, epoch, sequence)))

    for label, sequence, epoch in (
        ("first", 0, 0),
        ("again", 0, 0),
        ("next", 2, 0),
        ("gap", 9, 0),
        ("behind the gap", 4, 0),
        ("an old one", 2, 0),
        ("overlaps", 1, 0),
        ("newer epoch, sequence 0", 0, 1),
        ("older epoch", 6, 0),
        ("newer epoch, sequence 5", 5, 2),
        ("negative epoch", 0, -1),
    ):
        s.ask(PRODUCE, produce(topic, batch(sequence, epoch)), version, label=label)
    s.ask(LIST_OFFSETS, _offsets(topic, LATEST), 5, label="end")


@case(INIT_PRODUCER_ID)
def init_producer_id(s: Session, version: int) -> None:
    producer_id = s.producer_id()
    wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    s.ask(INIT_PRODUCER_ID, wanted, version)
    s.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), version, label="''")
    if version >= 3:
        for label, number, epoch in (
            ("the same again", producer_id, 0),
            ("of nobody", 999_999, 3),
            ("id without epoch", 5, -1),
            ("epoch without id", -1, 5),
        ):
            wanted = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=60_000, producer_id=number, producer_epoch=epoch
            )
            s.ask(INIT_PRODUCER_ID, wanted, version, label=label, on=label)


def _offsets(topic: str, timestamp: int, *, partitions: tuple[int, ...] = (0,), epoch: int = -1, **more: int) -> Any:
    wanted = [
        ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        for index in partitions
    ]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)], **more)


@case(LIST_OFFSETS)
def list_offsets(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    s.fill(topic, [b"a", b"b", b"c"])
    for label, timestamp in {
        "latest": LATEST,
        "earliest": EARLIEST,
        "the second's time": NOW_MS + 1000,
        "between": NOW_MS + 1500,
        "0": 0,
        "behind all": NOW_MS + 9000,
    }.items():
        s.ask(LIST_OFFSETS, _offsets(topic, timestamp), version, label=label)
    s.ask(LIST_OFFSETS, _offsets(topic, LATEST, partitions=(1, 5)), version, label="empty and missing")
    s.ask(LIST_OFFSETS, _offsets(topic, EARLIEST, partitions=(1,)), version, label="earliest of an empty one")
    s.ask(LIST_OFFSETS, _offsets(s.name("missing"), LATEST), version, label="missing topic")
    if version >= 2:
        s.ask(LIST_OFFSETS, _offsets(topic, LATEST, isolation_level=1), version, label="read_committed")


@case(LIST_OFFSETS)
def list_offsets_of_special_times(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    s.fill(topic, [b"a", b"b", b"c"], timestamps=[NOW_MS + 5000, NOW_MS + 9000, NOW_MS + 7000])
    for timestamp in (MAX_TIMESTAMP, LOCAL_EARLIEST, TIERED, -6, -99):
        s.ask(LIST_OFFSETS, _offsets(topic, timestamp), version, label=str(timestamp), on=str(timestamp))
    s.ask(LIST_OFFSETS, _offsets(topic, MAX_TIMESTAMP, partitions=(1,)), version, label="-3 of an empty one")
    s.ask(LIST_OFFSETS, _offsets(topic, LATEST, partitions=(0, 0)), version, label="twice", on="twice")


@case(LIST_OFFSETS, versions=(7, 10))
def list_offsets_of_one_batch(s: Session, version: int) -> None:
    topic = s.topic()
    records = [(None, b"%d" % index, NOW_MS + at) for index, at in enumerate((5, 9, 7))]
    s.ask(PRODUCE, produce(topic, bytes(make_batch(records))), 9)
    for timestamp in (MAX_TIMESTAMP, NOW_MS + 6, NOW_MS + 9, NOW_MS + 10):
        s.ask(LIST_OFFSETS, _offsets(topic, timestamp), version, label=f"{timestamp - NOW_MS if timestamp > 0 else -3}")


@case(LIST_OFFSETS, versions=(5, 10))
def list_offsets_of_other_epochs(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"a"])
    s.ask(LIST_OFFSETS, _offsets(topic, LATEST, epoch=99), version, label="a newer epoch")
    s.ask(LIST_OFFSETS, _offsets(topic, LATEST, epoch=-2), version, label="epoch -2")


def _fetch(
    s: Session, version: int, topic: str, *partitions: FetchPartition, topic_id: UUID | None = None, **more: int
) -> FetchRequest:
    if version >= 13 and topic_id is None:
        topic_id = s.wait_for(topic, 1).topic_id
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
    ids = {"topic_id": topic_id} if topic_id is not None else {}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=list(partitions), **ids)], **fields)


def _from(offset: int, *, partition: int = 0, size: int = 1 << 20, epoch: int = -1, last: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=size,
        current_leader_epoch=epoch,
        last_fetched_epoch=last,
    )


@case(FETCH)
def fetch(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"a", b"b", b"c"])
    for label, part in {
        "all": _from(0),
        "from 1": _from(1),
        "at the end": _from(3),
        "behind the end": _from(4),
        "negative": _from(-1),
        "one byte": _from(0, size=1),
        "0 bytes": _from(0, size=0),
        "missing partition": _from(0, partition=8),
    }.items():
        s.ask(FETCH, _fetch(s, version, topic, part), version, label=label)
    s.ask(FETCH, _fetch(s, version, topic, _from(0), max_bytes=1), version, label="max_bytes 1")
    s.ask(FETCH, _fetch(s, version, topic, _from(0), min_bytes=1 << 30, max_wait_ms=1), version, label="min_bytes 1G")
    s.ask(FETCH, _fetch(s, version, topic, _from(0), isolation_level=1), version, label="read_committed")
    s.ask(FETCH, FetchRequest(max_wait_ms=0, topics=[]), version, label="nothing")


@case(FETCH, versions=(4, 9, 12, 13, 17))
def fetch_missing(s: Session, version: int) -> None:
    unknown = UUID(int=77) if version >= 13 else None
    s.ask(FETCH, _fetch(s, version, s.name("missing"), _from(0), topic_id=unknown), version)


@case(FETCH, versions=(9, 12, 17))
def fetch_of_other_epochs(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"a", b"b"])
    s.ask(FETCH, _fetch(s, version, topic, _from(0, epoch=99)), version, label="a newer epoch")
    if version >= 12:
        s.ask(FETCH, _fetch(s, version, topic, _from(2, last=99)), version, label="last epoch unknown")


@case(FETCH, versions=(7, 12))
def fetch_sessions(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"a"])
    for label, number, epoch in (
        ("no session", 0, -1),
        ("epoch 5 of none", 0, 5),
        ("an unknown session", 4711, 3),
        ("an unknown session ends", 4711, -1),
        ("an unknown session begins", 4711, 0),
    ):
        request = _fetch(s, version, topic, _from(0), session_id=number, session_epoch=epoch)
        s.ask(FETCH, request, version, label=label, on=label)


@case(FETCH, versions=(4, 12))
def fetch_of_a_partition_twice(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"a", b"b"])
    s.ask(FETCH, _fetch(s, version, topic, _from(0), _from(1)), version)


@case(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(s: Session, version: int) -> None:
    topic = s.topic()
    s.fill(topic, [b"a", b"b"])

    def ask(label: str, epoch: int, *, name: str = topic, partition: int = 0, current: int = -1) -> None:
        part = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        wanted = [OffsetForLeaderTopic(topic=name, partitions=[part])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=wanted)
        s.ask(OFFSET_FOR_LEADER_EPOCH, request, version, label=label)

    leader = s.wait_for(topic, 1).partitions[0].leader_epoch
    ask("the leader's", leader)
    ask("a newer one", leader + 5)
    ask("undefined", -1)
    ask("negative", -7)
    ask("missing topic", 0, name=s.name("missing"))
    ask("missing partition", 0, partition=4)
    ask("current epoch too new", leader, current=leader + 5)


@case(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch_right_after_acks_1(s: Session, version: int) -> None:
    topic = s.topic()
    epoch = s.wait_for(topic, 1).partitions[0].leader_epoch
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])])
    for label in ("first", "second"):
        s.ask(PRODUCE, produce(topic, GOOD, acks=1), 9, label=f"{label} batch")
        s.ask(OFFSET_FOR_LEADER_EPOCH, request, version, label=f"end after the {label} batch")


@case(DELETE_RECORDS)
def delete_records_right_after_acks_1(s: Session, version: int) -> None:
    for label, offset in {"inside": 5, "the end": 10, "all": -1, "beyond the end": 11}.items():
        topic = s.topic(label.replace(" ", "-"))
        batch = build_batch([(b"k", b"v")] * 10, timestamp_ms=NOW_MS)
        s.ask(PRODUCE, produce(topic, batch, acks=1), 9, label=f"ten records, then {label}")
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=30_000)
        s.ask(DELETE_RECORDS, request, version, label=label)
        s.ask(LIST_OFFSETS, _offsets(topic, EARLIEST), 7, label=f"start after {label}")


@case(DELETE_RECORDS)
def delete_records(s: Session, version: int) -> None:
    topic, compact = s.topic(partitions=2), s.topic("compact", configs={"cleanup.policy": "compact"})
    both = s.topic("both", configs={"cleanup.policy": "compact,delete"})
    for number in range(4):
        batch = build_batch([(b"k", b"v"), (None, b"w"), (None, b"x")], timestamp_ms=NOW_MS + number)
        s.ask(PRODUCE, produce(topic, batch), 9, label=f"batch {number}")

    def ask(label: str, *places: tuple[str, int, int]) -> None:
        topics = [
            DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            for name, index, offset in places
        ]
        s.ask(DELETE_RECORDS, DeleteRecordsRequest(topics=topics, timeout_ms=30_000), version, label=label)

    def look(left: str, gone: int, *there: int) -> None:
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, NOW_MS):
            s.ask(LIST_OFFSETS, _offsets(topic, timestamp), 7, label=f"{left}: {min(timestamp, 0)}")
        s.ask(FETCH, _fetch(s, 11, topic, _from(gone)), 11, label=f"gone {gone}")
        for offset in there:
            s.ask(FETCH, _fetch(s, 11, topic, _from(offset)), 11, label=f"there {offset}")

    ask("none", (topic, 0, 0))
    ask("amid a batch", (topic, 0, 4))
    look("some", 3, 4, 6)
    ask("again", (topic, 0, 4))
    ask("before", (topic, 0, 1))
    ask("above the end", (topic, 0, 13))
    ask("below -1", (topic, 0, -2))
    ask("good beside bad", (topic, 0, 6), (s.name("missing"), 0, 0))
    ask("missing partition", (topic, 7, 0))
    look("some", 5, 6)
    ask("a topic that is compacted", (compact, 0, 0))
    ask("one that is compacted and deleted", (both, 0, 0))
    ask("bad name", ("with space", 0, 0))
    ask("everything", (topic, 0, -1))
    look("nothing", 11, 12)
    ask("everything of nothing", (topic, 1, -1))
    ask("no topic")
