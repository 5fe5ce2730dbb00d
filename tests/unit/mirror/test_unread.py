"""An audit goes on where an end reads no further in a partition: that one is named as not audited, with the reason.

Two brokers are played: 7 leads the even partitions, 8 the odd ones. Does not contain: partitions of which an end
returns nothing at the start (test_unknown_offsets.py).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from uuid import UUID

import pytest

from drupelet.errors import CommandFailed
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
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from edge_broker.protocol.record_batch import build_batch
from kafka_wire.apis import EARLIEST, TOPIC_RESOURCE
from mirror.audit import audit_command
from mirror.audit.endpoints import log_reader
from mirror.audit.endpoints.digest_lines import BadLine, Unread, read_line, unread_line
from mirror.audit.endpoints.endpoint import UnreadError
from mirror.audit.endpoints.remote_endpoint import ToldEnd
from mirror.audit.runner import Ways, audit, tell_digests
from mirror.client.source_client import Source
from tests.support.scripted_wire import APIS, playing
from tests.unit.mirror.test_replicator import CONFIG

PARTITIONS, RECORDS, BATCH = 4, 20, 10
MIDWAY = 1, BATCH  # the partition and offset where something goes wrong
NO_ID = UUID(int=0)
NAMES = {"source": "readings", "target": "lab.readings"}


class Brokers:
    """Of one end; `fault` is what comes instead of the second batch of a partition."""

    def __init__(self, side, fault="", topic_id=NO_ID):
        self.topic, self.fault, self.has_failed, self.ports, self.topic_id = NAMES[side], fault, False, {}, topic_id

    async def play(self, node, peer):
        await peer.begin()
        while True:
            request = await peer.request()
            answer = getattr(self, f"on_{APIS[request.key].name}")(request.message, node)
            if answer is None:
                self.has_failed = True
                await asyncio.get_running_loop().create_future()
            peer.answer(request, answer)

    def on_Metadata(self, request, node):
        is_deleted, is_led = (self.has_failed and self.fault == one for one in ("deleted", "leaderless"))
        partitions = [
            MetadataResponsePartition(
                partition_index=number,
                leader_id=-1 if is_led and number == MIDWAY[0] else 7 + number % 2,
                error_code=int(ErrorCode.LEADER_NOT_AVAILABLE) if is_led and number == MIDWAY[0] else 0,
                replica_nodes=[7, 8],
                isr_nodes=[7, 8],
            )
            for number in range(PARTITIONS)
        ]
        topics = [
            MetadataResponseTopic(name=self.topic, topic_id=self.topic_id, partitions=[] if is_deleted else partitions)
        ]
        nodes = [MetadataResponseBroker(node_id=one, host="127.0.0.1", port=port) for one, port in self.ports.items()]
        return MetadataResponse(brokers=nodes, cluster_id="", topics=topics)

    def on_DescribeConfigs(self, request, node):
        one = DescribeConfigsResourceResult(name="cleanup.policy", value="delete")
        found = DescribeConfigsResult(resource_type=TOPIC_RESOURCE, resource_name=self.topic, configs=[one])
        return DescribeConfigsResponse(results=[found])

    def on_ListOffsets(self, request, node):
        (topic,) = request.topics
        told = [
            ListOffsetsPartitionResponse(
                partition_index=one.partition_index, offset=0 if one.timestamp == EARLIEST else RECORDS
            )
            for one in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=self.topic, partitions=told)])

    def on_Fetch(self, request, node):
        ((asked,),) = (topic.partitions for topic in request.topics)
        code, records = 0, b""
        if (asked.partition, asked.fetch_offset) == MIDWAY or (
            self.has_failed and self.fault == "silent" and node == 8
        ):
            self.has_failed |= bool(self.fault)
            code = {
                "leaderless": ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "deleted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "forbidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            }.get(self.fault, 0)
            if self.fault == "silent":
                return None
            records = b"\0" * 100 if self.fault == "damaged" else b""
        if not (code or records):
            first = asked.fetch_offset // BATCH * BATCH
            values = [(b"k", b"%d %d" % (asked.partition, first + number)) for number in range(BATCH)]
            records = bytes(build_batch(values, timestamp_ms=5, base_offset=first))
        one = PartitionData(
            partition_index=asked.partition,
            error_code=int(code),
            high_watermark=RECORDS,
            last_stable_offset=RECORDS,
            records=memoryview(records),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=self.topic, partitions=[one])])


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr(log_reader, "WAIT_S", (0.01, 0.05))
    monkeypatch.setattr(log_reader, "WAIT_S_LEAST", 0.1)

    async def nothing(self, partitions=None):
        return {}

    monkeypatch.setattr(Source, "commits", nothing)


async def digests(tmp_path, side):
    """Write the digests of an end without a fault into a file."""
    brokers = Brokers(side)
    async with (
        playing(lambda peer: brokers.play(7, peer)) as seven,
        playing(lambda peer: brokers.play(8, peer)) as eight,
    ):
        brokers.ports = {7: seven, 8: eight}
        config = replace(CONFIG, **{side: f"127.0.0.1:{seven}"})
        lines = [line async for line in tell_digests(side, config, None, each=True, report=lambda *_: None)]
    file = tmp_path / side
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


FAULTS = {
    "leaderless": "has no leader",
    "deleted": "UNKNOWN_TOPIC_OR_PARTITION",
    "forbidden": "TOPIC_AUTHORIZATION_FAILED",
    "silent": "did not answer Fetch in time",
    "damaged": "",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", ["source", "target"])
async def test_the_others_are_shown(tmp_path, capsys, side, fault):
    other = "target" if side == "source" else "source"
    ways = Ways(**{f"{other}_digests": await digests(tmp_path, other)})
    brokers = Brokers(side, fault)
    async with (
        playing(lambda peer: brokers.play(7, peer)) as seven,
        playing(lambda peer: brokers.play(8, peer)) as eight,
    ):
        brokers.ports = {7: seven, 8: eight}
        config = replace(CONFIG, request_timeout_ms=1000, **{side: f"127.0.0.1:{seven}"})
        status = await audit_command.audit(config, ways, None, as_json=True, may_double=False)
        told = json.loads(capsys.readouterr().out)
    assert brokers.has_failed
    assert status == 1
    assert not told["proven"]
    unread = [MIDWAY[0], *([3] if fault == "silent" else [])]  # of the same broker
    assert [one["partition"] for one in told["partitions"]] == [one for one in range(PARTITIONS) if one not in unread]
    assert all(one["proven"] and one["compared"] == RECORDS for one in told["partitions"])
    assert [one[:2] for one in told["not_audited"]] == [[NAMES[side], number] for number in unread]
    assert all(f"the {side} cannot be read" in one[2] for one in told["not_audited"])
    assert FAULTS[fault] in told["not_audited"][0][2]


@pytest.mark.parametrize("side", ["source", "target"])
async def test_digests_carry_it(tmp_path, side):
    """Of a partition that its broker does not lead any more after the first range was written."""
    brokers = Brokers(side, "leaderless")
    async with (
        playing(lambda peer: brokers.play(7, peer)) as seven,
        playing(lambda peer: brokers.play(8, peer)) as eight,
    ):
        brokers.ports = {7: seven, 8: eight}
        config = replace(CONFIG, request_timeout_ms=1000, **{side: f"127.0.0.1:{seven}"})
        lines = [line async for line in tell_digests(side, config, None, each=False, report=lambda *_: None)]
    (tmp_path / "cut").write_text("".join(f"{line}\n" for line in lines))
    other = "target" if side == "source" else "source"
    ways = Ways(**{f"{side}_digests": tmp_path / "cut", f"{other}_digests": await digests(tmp_path, other)})
    found = await audit(CONFIG, ways, None, lambda *_: None)
    assert [one.partition for one in found.unread] == [MIDWAY[0]]
    assert "has no leader" in found.unread[0].unknown
    assert [account.facts["source"].partition for account in found.accounts] == [0, 2, 3]
    assert not found.is_proven(may_double=False)


def test_an_older_release_refuses_the_line():
    line = unread_line("t-0 has no leader")
    assert read_line(line) == Unread("t-0 has no leader")
    fields = json.loads(line)
    del fields["unread"]  # keys that it does not know are passed over
    with pytest.raises(BadLine):
        read_line(json.dumps(fields))


class Link:
    """Tells the lines once; asked again, it is lost."""

    name, may_ask = "ssh", True

    def __init__(self, file):
        self._file = file

    async def lines(self, more):
        if more:
            raise CommandFailed("`ssh` ended with status 255")
        for line in self._file.read_text().splitlines():
            yield line


async def test_a_command_that_fails_when_it_is_asked_again_holds_its_partition_alone(tmp_path):
    end = ToldEnd("target", Link(await digests(tmp_path, "target")))
    await end.open()
    assert (await end.next()).partition == 0
    with pytest.raises(UnreadError, match="the target cannot be read again: `ssh` ended with status 255"):
        await end.read_again(0, 10)
    assert (await end.next()).partition == 1
    await end.close()
