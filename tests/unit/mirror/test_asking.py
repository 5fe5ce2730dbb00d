"""What is asked of the source: what a broker answers that cannot serve, lies or is too old, and what is asked anew."""

from __future__ import annotations

import asyncio

import pytest

from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from edge_broker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from edge_broker.protocol.record_batch import build_batch
from kafka_wire.apis import EARLIEST, TOPIC_CONFIG, TOPIC_RESOURCE
from kafka_wire.cluster import Leader
from kafka_wire.partitions import TopicPartition
from mirror.client.active_election import Member
from mirror.client.log_queries import EpochQuestion
from mirror.client.source_client import Source
from mirror.errors import PositionsError, SourceError, UntoldError
from mirror.partition.leader_epochs import EpochEnd
from mirror.partition.source_offsets import Commit
from tests.support.played_broker import NODE, PlayedBroker, listening
from tests.support.scripted_wire import playing

TP = TopicPartition("t", 0)
QUESTION = {TP: EpochQuestion(2, Leader(NODE, 3))}


class Broker(PlayedBroker):
    """A broker that answers by its fields."""

    def __init__(self):
        super().__init__()
        self.leader, self.leads_elsewhere = NODE, False
        self.epochs = self.committed = self.listed = 0
        self.position = (42, "")
        self.fetched = [PartitionData(partition_index=0)]

    def on_Metadata(self, _):
        led = [MetadataResponsePartition(partition_index=0, leader_id=self.leader, leader_epoch=3)]
        if self.leads_elsewhere:
            led.append(MetadataResponsePartition(partition_index=1, leader_id=NODE + 1, leader_epoch=3))
        gone = MetadataResponseTopic(name="u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponse(brokers=[self.node()], topics=[MetadataResponseTopic(name="t", partitions=led), gone])

    def on_OffsetFetch(self, _):
        offset, metadata = self.position
        one = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=offset, metadata=metadata, error_code=self.code("OffsetFetch")
        )
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[one])])

    def on_OffsetCommit(self, _):
        one = OffsetCommitResponsePartition(partition_index=0, error_code=self.committed)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[one])])

    def on_OffsetForLeaderEpoch(self, _):
        one = EpochEndOffset(partition=0, leader_epoch=2, end_offset=90, error_code=self.epochs)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[one])])

    def on_ListOffsets(self, request):
        (asked,) = request.topics[0].partitions
        offset = 10 if asked.timestamp == EARLIEST else 90
        one = ListOffsetsPartitionResponse(partition_index=0, error_code=self.listed, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[one])])

    def on_DescribeConfigs(self, _):
        policy = DescribeConfigsResourceResult(name="cleanup.policy", value="compact", config_source=TOPIC_CONFIG)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[policy]),
                DescribeConfigsResult(resource_type=TOPIC_RESOURCE, resource_name="denied", error_code=denied),
            ]
        )

    def on_Fetch(self, _):
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=self.fetched)])


@pytest.fixture
async def source():
    async with listening(Broker()) as played:
        yield played


@pytest.fixture
async def asking(source):
    asked = Source(ClientSettings(f"127.0.0.1:{source.port}", "unit", 30_000), "g")
    yield asked
    await asked.close()


def holding(base_offset, count, *, error_code=0, aborted=()):
    batch = bytes(build_batch([(None, b"x")] * count, timestamp_ms=5, base_offset=base_offset))
    return [PartitionData(partition_index=0, error_code=error_code, records=batch, aborted_transactions=list(aborted))]


async def test_topics_that_cannot_be_told_are_left_out(asking):
    assert {name: topic.leaders for name, topic in (await asking.topics()).items()} == {"t": {0: Leader(NODE, 3)}}


async def test_the_leader_says_where_an_epoch_ended_or_why_it_cannot(source, asking):
    assert await asking.epoch_ends(QUESTION) == {TP: EpochEnd(2, 90)}
    source.epochs = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await asking.epoch_ends(QUESTION) == {TP: "NOT_LEADER_OR_FOLLOWER"}
    assert await asking.epoch_ends({TP: EpochQuestion(2, Leader(-1, 3))}) == {TP: "it has no leader"}


async def test_a_source_that_is_too_old_to_know_epochs_is_told_from_one_that_is_away(source, asking):
    source.versions = {"OFFSET_FOR_LEADER_EPOCH": (0, 1)}
    assert await asking.epoch_ends(QUESTION) == {TP: EpochEnd(-1, -1)}
    (told,) = (await asking.epoch_ends({TP: EpochQuestion(2, Leader(NODE + 1, 3))})).values()
    assert "broker 8 is none of those" in told


async def test_a_position_is_none_only_where_the_group_says_so(source, asking):
    assert await asking.commits([TP]) == {TP: Commit(42, 42)}
    source.position = (-1, "")
    assert await asking.commits([TP]) == {}
    with pytest.raises(PositionsError, match="was not answered"):
        await asking.commits([TopicPartition("t", 1)])
    assert await asking.commits([]) == {}


@pytest.mark.parametrize("name", ["FindCoordinator", "OffsetFetch"])
async def test_a_coordinator_that_cannot_tell_now_is_asked_for_again(source, asking, name):
    source.codes[name] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    with pytest.raises(PositionsError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await asking.commits([TP])
    source.asked.clear()
    assert await asking.commits([TP]) == {TP: Commit(42, 42)}
    assert "FindCoordinator" in source.asked
    source.asked.clear()
    await asking.commit({TP: Commit(43, 43)}, 30, Member())
    assert source.asked == ["OffsetCommit"]


async def test_a_refused_commit_names_the_partition_and_asks_who_coordinates(source, asking):
    source.committed = ErrorCode.NOT_COORDINATOR
    with pytest.raises(SourceError, match="t-0 cannot be committed: NOT_COORDINATOR"):
        await asking.commit({TP: Commit(42, 42)}, 30, Member())
    source.committed = 0
    await asking.commit({TP: Commit(42, 42)}, 30, Member())
    assert source.asked.count("FindCoordinator") == 2


async def test_a_record_is_read_out_of_its_batch(source, asking):
    source.fetched = holding(40, 3)
    found = await asking.record_at(TP, 41)
    assert (found.timestamp, found.value) == (5, b"x")
    assert await asking.record_at(TP, 43) is None


async def test_the_batch_that_holds_an_offset_is_told_with_its_header(source, asking):
    source.fetched = holding(40, 3)
    found = await asking.batch_at(TP, 42)
    assert (found.header.base_offset, found.first_offset, found.end_offset) == (40, 42, 43)
    source.fetched = [PartitionData(partition_index=0)]
    assert await asking.batch_at(TP, 42) is None


async def test_a_damaged_batch_is_no_answer(source, asking):
    source.fetched = holding(40, 3)
    source.fetched[0].records = source.fetched[0].records[:-1] + b"?"
    with pytest.raises(SourceError, match="CRC"):
        await asking.record_at(TP, 40)


@pytest.mark.parametrize(
    ("fetched", "said"),
    [
        ([], "0 partitions were answered"),
        ([PartitionData(partition_index=0)] * 2, "2 partitions were answered"),
        (holding(40, 3, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), "t.*at 40"),
    ],
)
async def test_what_proves_nothing_is_an_error(source, asking, fetched, said):
    source.fetched = fetched
    with pytest.raises(SourceError, match=said):
        await asking.record_at(TP, 40)


async def test_bounds_are_told_for_each_partition_or_why_not(source, asking):
    assert await asking.bounds([TP]) == ({TP: 10}, {TP: 90})
    source.listed = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(SourceError, match="the bounds of t-0 were not told: NOT_LEADER_OR_FOLLOWER"):
        await asking.bounds([TP])
    with pytest.raises(SourceError, match="u-0 has no leader"):
        await asking.bounds([TopicPartition("u", 0)])


@pytest.mark.parametrize(
    ("elsewhere", "other", "why"),
    [
        (False, TopicPartition("u", 0), "has no leader"),
        (True, TopicPartition("t", 1), "broker 8 is none of those"),
    ],
)
async def test_a_partition_of_which_no_bounds_are_known_hides_those_of_no_other(source, asking, elsewhere, other, why):
    source.leads_elsewhere = elsewhere
    starts, ends, untold = await asking.known_bounds([TP, other])
    assert (starts, ends) == ({TP: 10}, {TP: 90})
    assert untold.keys() == {other}
    assert why in untold[other]
    with pytest.raises(UntoldError, match=why):
        await asking.bounds([TP, other])


async def test_where_no_leader_answers_the_source_is_away(source, asking):
    source.leader = NODE + 1
    with pytest.raises(SourceError, match="broker 8 is none of those") as raised:
        await asking.known_bounds([TP])
    assert not isinstance(raised.value, UntoldError)


async def test_a_topic_that_is_not_described_hides_the_settings_of_no_other(asking):
    found = await asking.known_settings(["t", "denied", "silent"])
    assert found.pop("t") == {"cleanup.policy": "compact"}
    assert found == {
        "denied": "topic denied cannot be described: TOPIC_AUTHORIZATION_FAILED",
        "silent": "topic silent was not described",
    }
    with pytest.raises(UntoldError, match="topic silent was not described"):
        await asking.settings(["t", "silent"])


async def test_no_record_is_told_from_a_fetch_that_failed(source, asking):
    source.fetched = [PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert await asking.record_at(TP, 40) is None
    source.leader = -1
    asking.forget("t")
    with pytest.raises(SourceError, match="t-0 has no leader"):
        await asking.record_at(TP, 40)


async def test_a_source_that_says_nothing_is_away():
    async def silent(peer):
        await peer.reader.read()

    async with playing(silent) as port:
        asked = Source(ClientSettings(f"127.0.0.1:{port}", "unit", 200), "g")
        with pytest.raises(SourceError, match=f"127.0.0.1:{port}"):
            await asked.topics()
        await asked.close()


async def test_who_leads_is_asked_once_for_all_who_want_to_know_at_the_same_moment(source, asking):
    partitions = [TopicPartition("t", 0)] * 5 + [TopicPartition("u", 0)]
    found = await asyncio.gather(*map(asking.leader, partitions), return_exceptions=True)
    assert found[:5] == [Leader(NODE, 3)] * 5
    assert isinstance(found[5], SourceError)
    assert source.asked.count("Metadata") == 1
    with pytest.raises(SourceError, match="u-0 has no leader"):
        await asking.leader(partitions[5])
    assert source.asked.count("Metadata") == 2


async def test_the_keys_of_an_answer_and_where_to_read_on(source, asking):
    records = build_batch([(b"a", b""), (None, b""), (b"b", None)], timestamp_ms=5, base_offset=40)
    source.fetched = [PartitionData(partition_index=0, high_watermark=90, records=bytes(records))]
    assert await asking.keys_from(TP, 40, 1000) == ({b"a", b"b"}, 43)
    source.fetched = [PartitionData(partition_index=0, high_watermark=90)]  # compaction has left nothing there
    assert await asking.keys_from(TP, 43, 1000) == (set(), 90)
    source.fetched = [PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(SourceError, match="TOPIC_AUTHORIZATION_FAILED"):
        await asking.keys_from(TP, 43, 1000)
