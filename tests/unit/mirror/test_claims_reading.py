"""The state topics of other mirrors are read to their ends, whatever lies there: origins/claim_reader.py."""

from __future__ import annotations

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from edge_broker.protocol.record_batch import CONTROL, TRANSACTIONAL, build_batch
from kafka_wire.cluster import Leader, Topic
from kafka_wire.connection.errors import WireError
from mirror.errors import SourceError
from mirror.origins.claim_reader import PROBE, ClaimsReader
from mirror.partition.offset_map import End
from mirror.partition.provenance import Origin
from mirror.partition.state_records import Head, Topics, head_record

ONE, OTHER = "__edge-mirror-one-state", "__edge-mirror-other-state"
A, C = "cluster-a", "cluster-c"
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def head(partition=0, *, passed=A, producer_id=7, topic="t", topic_id="id"):
    origin = Origin(frozenset({passed}), producers=((producer_id, 0),))
    return head_record(
        ("s", partition), Head(Topics(topic, "s", topic_id), producer_id, 0, 0, 0, 0, 0, End(0, 0, 0), origin=origin)
    )


class Source:
    """A cluster of state topics: batches by topic, `first` has the offset of the first; `codes` are what it refuses."""

    cluster_id = "cluster-b"

    def __init__(self, **topics):
        self.logs, self.first, self.codes, self.ids = {}, {}, {}, {}
        self.cluster, self.leader, self.asked, self.room = self, 1, [], 10
        self.is_away = False
        for name, records in topics.items():
            self.make({"one": ONE, "other": OTHER}[name], records)

    def make(self, name, records=(), topic_id="id"):
        self.logs[name], self.first[name], self.ids[name] = [], 0, topic_id
        for record in records:
            self.append(name, record)

    def end(self, name):
        return self.first[name] + len(self.logs[name])

    def append(self, name, record, *, producer_id=-1, attributes=0):
        batch = bytearray(build_batch([record], timestamp_ms=0, base_offset=self.end(name), producer_id=producer_id))
        batch[21:23] = attributes.to_bytes(2, "big")
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        self.logs[name].append(bytes(batch))

    async def topics(self, names=None):
        leaders = {0: Leader(self.leader, 0)} if self.leader else {}
        return {name: Topic(self.ids[name], 0, leaders) for name in self.logs} | {"t": Topic("id", 0, {})}

    async def error_of(self, name):
        return self.codes.get(name, 0 if name in self.logs else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def bounds(self, partitions):
        wanted = list(partitions)
        return {one: self.first[one.topic] for one in wanted}, {one: self.end(one.topic) for one in wanted}

    async def connection(self, node, number):
        if self.is_away:
            raise WireError("it is away")
        return self

    async def ask(self, asked, request, timeout_s):
        """Answer as a leader does: `room` batches in all, those of the first topics first."""
        room, answers = self.room, []
        for topic in request.topics:
            name, (one,) = topic.topic, topic.partitions
            self.asked.append((name, one.fetch_offset))
            code = self.codes.get(name, 0)
            if not code and not self.first[name] <= one.fetch_offset <= self.end(name):
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            batches = [] if code else self.logs[name][one.fetch_offset - self.first[name] :][:room]
            room -= len(batches)
            told = PartitionData(
                partition_index=0, error_code=code, high_watermark=self.end(name), records=b"".join(batches)
            )
            answers.append(FetchableTopicResponse(topic=name, partitions=[told]))
        return FetchResponse(responses=answers)


def reader_of(source):
    return ClaimsReader(lambda: source, 1.0)


def producers(reader, topic="t"):
    return sorted(claim.producer_id for claim in reader.claims.of_topic(topic))


async def test_all_state_topics_are_read_to_their_ends_and_on_from_there():
    source = Source(one=[head(n, producer_id=n) for n in range(5)], other=[head(9, producer_id=n) for n in (50, 60)])
    source.room = 2  # so that an answer has nothing of the second
    reader = reader_of(source)
    assert not reader.has_mirrors
    await reader.refresh()
    assert reader.has_mirrors
    assert producers(reader) == [0, 1, 2, 3, 4, 50, 60]
    source.append(ONE, head(8, producer_id=8))
    asked = len(source.asked)
    await reader.refresh()
    assert set(source.asked[asked:]) >= {(ONE, 5), (OTHER, 2)}
    assert min(offset for _, offset in source.asked[asked:]) == 2
    assert 8 in producers(reader)


async def test_a_topic_of_which_compaction_left_nothing_at_the_end_is_read():
    source = Source(one=[head()])
    source.logs[ONE].append(b"")  # a record that is gone: the end lies behind what can be read
    reader = reader_of(source)
    await reader.refresh()
    assert producers(reader) == [7]
    await reader.refresh()
    assert source.asked[-1] == (ONE, 2)


async def test_a_topic_made_again_is_read_from_its_start_and_what_was_read_is_kept():
    source = Source(one=[head(0, producer_id=7), head(1, producer_id=8)])
    reader = reader_of(source)
    await reader.refresh()
    source.make(ONE, [head(0, producer_id=9)], topic_id="another")
    await reader.refresh()
    assert producers(reader) == [7, 8, 9]


async def test_where_the_start_was_deleted_meanwhile_it_is_read_from_there():
    source = Source(one=[head(n, producer_id=n) for n in range(3)])
    source.first[ONE], source.logs[ONE] = 2, source.logs[ONE][2:]
    reader = reader_of(source)
    await reader.refresh()
    assert producers(reader) == [2]


async def test_one_that_was_cut_is_read_again():
    source = Source(one=[head(n, producer_id=n) for n in range(3)])
    reader = reader_of(source)
    await reader.refresh()
    source.make(ONE, [head(0, producer_id=9)])  # under the same id: an unclean election
    await reader.refresh()
    assert 9 in producers(reader)


async def test_one_that_may_not_be_read_is_named_until_it_may():
    source = Source(one=[head()], other=[head(1, producer_id=8)])
    source.codes[ONE] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    reader = reader_of(source)
    await reader.refresh()
    assert reader.unreadable == {ONE: "TOPIC_AUTHORIZATION_FAILED"}
    assert producers(reader) == [8]
    source.codes.clear()
    await reader.refresh()
    assert reader.unreadable == {}
    assert producers(reader) == [7, 8]


async def test_one_that_may_be_described_no_more_is_not_taken_for_deleted():
    source = Source(one=[head()])
    reader = reader_of(source)
    await reader.refresh()
    del source.logs[ONE]
    source.codes[ONE] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await reader.refresh()
    assert reader.unreadable == {ONE: "TOPIC_AUTHORIZATION_FAILED"}
    assert reader.deleted == set()
    source.codes.clear()
    await reader.refresh()
    assert reader.unreadable == {}
    assert reader.deleted == {ONE}
    assert producers(reader) == [7]


async def test_a_state_topic_that_was_deleted_is_named_until_its_mirror_has_made_it_again():
    source = Source(one=[head()])
    reader = reader_of(source)
    await reader.refresh()
    del source.logs[ONE]
    for _ in range(2):
        await reader.refresh()
        assert reader.deleted == {ONE}
    source.make(ONE, [head()], topic_id="another")
    await reader.refresh()
    assert reader.deleted == set()


async def test_damaged_bytes_are_named():
    source = Source(one=[head()])
    source.logs[ONE][0] = source.logs[ONE][0][:-1] + b"?"
    reader = reader_of(source)
    await reader.refresh()
    assert "CRC" in reader.unreadable[ONE]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda source: setattr(source, "leader", None), "has no leader"),
        (lambda source: source.codes.update({ONE: ErrorCode.NOT_LEADER_OR_FOLLOWER}), "NOT_LEADER_OR_FOLLOWER"),
        (lambda source: setattr(source, "is_away", True), "cannot be read"),
    ],
)
async def test_what_another_leader_may_have_is_an_error_of_the_source(change, text):
    source = Source(one=[head()])
    reader = reader_of(source)
    change(source)
    with pytest.raises(SourceError, match=text):
        await reader.refresh()


@pytest.mark.parametrize(
    ("code", "is_blind"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, True), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)],
)
async def test_whether_state_topics_may_be_seen_is_asked_by_a_name_that_none_has(code, is_blind):
    source = Source()
    source.codes[PROBE] = code
    reader = reader_of(source)
    await reader.check_visible()
    assert reader.is_blind is is_blind


def passed(reader):
    return {cluster for claim in reader.claims.of_topic("t") for cluster in claim.origin.passed}


@pytest.mark.parametrize(("end", "counts"), [(None, {C}), (COMMIT, {C}), (ABORT, {A})])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_head_counts_unless_its_transaction_was_aborted(end, counts, at_once):
    """In one that is open it does: a commit's marker may be in the log of the records before it is in this one."""
    source = Source(one=[])
    reader = reader_of(source)
    source.append(ONE, head(passed=A), producer_id=7, attributes=TRANSACTIONAL)
    source.append(ONE, (COMMIT, b""), producer_id=7, attributes=TRANSACTIONAL | CONTROL)
    source.append(ONE, head(passed="x"), producer_id=7, attributes=TRANSACTIONAL)
    source.append(ONE, head(passed=C), producer_id=7, attributes=TRANSACTIONAL)
    if not at_once:
        await reader.refresh()
        assert passed(reader) == {C}
    if end is not None:
        source.append(ONE, (end, b""), producer_id=7, attributes=TRANSACTIONAL | CONTROL)
    await reader.refresh()
    assert passed(reader) == counts


async def test_a_first_head_that_was_aborted_makes_no_claim_and_another_producers_marker_ends_nothing():
    source = Source(one=[])
    reader = reader_of(source)
    source.append(ONE, head(), producer_id=7, attributes=TRANSACTIONAL)
    source.append(ONE, (ABORT, b""), producer_id=8, attributes=TRANSACTIONAL | CONTROL)
    await reader.refresh()
    version = reader.claims.version
    assert producers(reader) == [7]
    source.append(ONE, (ABORT, b""), producer_id=7, attributes=TRANSACTIONAL | CONTROL)
    await reader.refresh()
    assert producers(reader) == []
    assert reader.claims.version > version
