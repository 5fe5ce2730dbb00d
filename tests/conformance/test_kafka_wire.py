"""Our asyncio client at real brokers, Apache Kafka 4.3.1 and 3.9.2 and the edge broker; plain, and by TLS and SCRAM."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from drupelet.kafka.client import ClientSettings
from drupelet.kafka.security import Security
from drupelet.tls.secret_files import Secret
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire import apis
from kafka_wire.cluster import SIDE, Cluster
from kafka_wire.connection import connection as connection_module
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost, WireError
from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import ApacheKafka
from tests.support.record_batches import make_batch
from tests.support.secured_kafka import LISTENERS, PASSWORD, REAUTH_MS, USER, SecuredKafka
from tests.support.secured_like_kafka import SecuredLikeKafka
from tests.support.waiting import CALL_S, Deadline
from tests.support.wire_producer import producer_at

UNDER_WAY = 5  # what an idempotent producer may have on its way to a partition
BATCHES, RECORDS = 40, 25
WAYS = [
    ("CLIENT", None),
    ("TLS", None),
    ("MUTUAL", None),
    ("LOGIN", "PLAIN"),
    ("LOGIN", "SCRAM-SHA-512"),
    ("BOTH", "SCRAM-SHA-256"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"), "central CA")


@pytest.fixture(scope="module", params=[SecuredKafka, SecuredLikeKafka], ids=["apache-kafka", "edge-broker"])
def kafka(request, tmp_path_factory, authority):
    with request.param(tmp_path_factory.mktemp("wire"), authority) as broker:
        yield broker


@pytest.fixture(scope="module")
def old_kafka(tmp_path_factory):
    with ApacheKafka(tmp_path_factory.mktemp("old"), jars=runtimes.old_kafka_jars()) as broker:
        yield broker


@pytest.fixture(scope="module")
def entry(authority):
    """What gets a client in at a listener, by one mechanism where it has log-ins."""
    certificate, key = authority.sign("client", "DNS:client")

    def security(listener, mechanism=None, password=PASSWORD):
        own = Security(protocol=LISTENERS.get(listener, "PLAINTEXT"))
        if own.has_tls:
            own = own._replace(ca_file=str(authority.certificate))
        if listener == "MUTUAL":
            own = own._replace(cert_file=str(certificate), key_file=str(key))
        if mechanism is not None:
            own = own._replace(mechanism=mechanism, username=USER, password=Secret(lambda: password))
        return own

    return security


def settings(servers, security=None):
    return ClientSettings(servers, "wire-test", int(CALL_S * 1000), security or Security())


def at(kafka, listener):
    return kafka.bootstrap if listener == "CLIENT" else kafka.at(listener)


def produced(topic, batch, partition=0):
    data = [PartitionProduceData(index=partition, records=batch)]
    topic_data = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)


def batch_of(producer_id, epoch, number, size=0):
    """The batch `number` of a producer, its records numbered on from the batch before."""
    first = number * RECORDS
    records = [(None, b"%d " % (first + delta) + b"x" * size, 1_700_000_000_000) for delta in range(RECORDS)]
    return make_batch(records, producer=(producer_id, epoch, first))


async def pipeline(cluster, topic, *, size=0, pause_s=0.0):
    """Send BATCHES of one producer, UNDER_WAY at a time: the offsets that were answered."""
    leader = (await cluster.topics([topic]))[topic].leaders[0]
    connection = await cluster.connection(leader.node)
    producer = await producer_at(connection)
    under_way, offsets, most = [], [], 0
    for number in range(BATCHES):
        batch = batch_of(producer.producer_id, producer.producer_epoch, number, size)
        under_way.append(connection.send(apis.PRODUCE, produced(topic, batch), timeout_s=CALL_S))
        most = max(most, connection.unanswered_count)
        if len(under_way) == UNDER_WAY:
            offsets.append(await under_way.pop(0))
            await asyncio.sleep(pause_s)
    offsets += [await one for one in under_way]
    deadline = Deadline(CALL_S)
    while connection.unanswered_count:  # a log-in may be under way, which another request is not
        deadline.check("no request without an answer", connection.unanswered_count)
        await asyncio.sleep(0.01)
    answered = [one.responses[0].partition_responses[0] for one in offsets]
    assert {one.error_code for one in answered} == {ErrorCode.NONE}
    return [one.base_offset for one in answered], most


def assert_whole(bootstrap, topic):
    values = [int(read.value.split(b" ")[0]) for read in read_topic(bootstrap, topic)]
    assert values == list(range(BATCHES * RECORDS))


def run(coroutine, loop):
    """Run on asyncio's own loop, or on uvloop."""
    if loop == "asyncio":
        return asyncio.run(coroutine)
    import uvloop

    return uvloop.run(coroutine)


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request):
    return request.param


def new_topic(bootstrap, partitions=1):
    name = f"wire-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name, partitions, {"retention.ms": "-1"})  # of records that are dated 2023, see batch_of
    return name


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_one_producers_requests_under_way_at_once_arrive_in_order(kafka, entry, loop, listener, mechanism):
    topic = new_topic(kafka.bootstrap)

    async def produce():
        cluster = Cluster(settings(at(kafka, listener), entry(listener, mechanism)))
        try:
            return await pipeline(cluster, topic, size=4000)
        finally:
            cluster.close()

    offsets, most = run(produce(), loop)
    assert offsets == [number * RECORDS for number in range(BATCHES)]
    assert most == UNDER_WAY
    assert_whole(kafka.bootstrap, topic)


def test_apache_kafka_3_9_takes_the_same(old_kafka, loop):
    topic = new_topic(old_kafka.bootstrap)

    async def produce():
        cluster = Cluster(settings(old_kafka.bootstrap))
        try:
            await everything(cluster, topic)
            return await pipeline(cluster, topic)
        finally:
            cluster.close()

    offsets, _ = run(produce(), loop)
    assert offsets == [number * RECORDS for number in range(BATCHES)]
    assert_whole(old_kafka.bootstrap, topic)


async def everything(cluster, topic):
    """Ask each API once in its newest version that both sides speak: every answer can be read and is no error."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    described = (await cluster.topics([topic]))[topic]
    assert described.error_code == ErrorCode.NONE
    assert described.topic_id is not None
    leader = described.leaders[0]
    connection = await cluster.connection(leader.node)
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    await end_of(connection, asked)
    epoch = OffsetForLeaderPartition(partition=0, current_leader_epoch=leader.epoch, leader_epoch=leader.epoch)
    asked = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[epoch])])
    epochs = await connection.ask(apis.OFFSET_FOR_LEADER_EPOCH, asked, timeout_s=CALL_S)
    assert epochs.topics[0].partitions[0].error_code == ErrorCode.NONE
    coordinator = await coordinator_of(cluster, group)
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="of a test")
    asked = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[commit])])
    await commit_at(coordinator, asked)
    asked = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    position = (await coordinator.ask(apis.OFFSET_FETCH, asked, timeout_s=CALL_S)).topics[0].partitions[0]
    assert (position.committed_offset, position.metadata) == (7, "of a test")


async def end_of(connection, asked):
    """The end of a partition that is empty, once the leader of a new one serves it."""
    deadline = Deadline(30)
    while True:
        found = (await connection.ask(apis.LIST_OFFSETS, asked, timeout_s=CALL_S)).topics[0].partitions[0]
        if found.error_code == ErrorCode.NONE:
            assert found.offset == 0
            return
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        deadline.check("the end of a partition", found)
        await asyncio.sleep(0.1)


async def commit_at(coordinator, asked):
    """Commit once the coordinator has become one: a new topic of offsets is found before its leader serves it."""
    deadline = Deadline(30)
    while True:
        answer = await coordinator.ask(apis.OFFSET_COMMIT, asked, timeout_s=CALL_S)
        code = answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            return
        assert code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        deadline.check("a coordinator that serves", code)
        await asyncio.sleep(0.1)


async def coordinator_of(cluster, group):
    """The coordinator, once a new cluster has made its topic of offsets."""
    deadline = Deadline(30)
    while True:
        try:
            return await cluster.coordinator(group)
        except WireError as error:
            if "COORDINATOR_NOT_AVAILABLE" not in str(error):
                raise
            deadline.check("a coordinator", error)
            await asyncio.sleep(0.1)


def test_every_api_that_is_asked_is_answered(kafka):
    topic = new_topic(kafka.bootstrap)

    async def ask():
        cluster = Cluster(settings(kafka.bootstrap))
        try:
            await everything(cluster, topic)
            assert topic in await cluster.topics(None)
            missing = f"no-{topic}"
            assert (await cluster.topics([missing]))[missing].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        finally:
            cluster.close()

    asyncio.run(ask())


def test_large_answers_come_whole_behind_each_other(kafka, entry, loop):
    topic = new_topic(kafka.bootstrap)

    async def fetch():
        cluster = Cluster(settings(kafka.at("BOTH"), entry("BOTH", "SCRAM-SHA-512")))
        try:
            await pipeline(cluster, topic, size=8000)
            node = (await cluster.topics([topic]))[topic].leaders[0].node
            connection = await cluster.connection(node, 1)
            wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=16 << 20)]
            asked = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=16 << 20, topics=[FetchTopic(topic=topic, partitions=wanted)]
            )
            answers = [connection.send(apis.FETCH, asked, timeout_s=CALL_S) for _ in range(4)]
            return [bytes((await one).responses[0].partitions[0].records) for one in answers]
        finally:
            cluster.close()

    found = run(fetch(), loop)
    assert len(found[0]) > BATCHES * RECORDS * 8000
    assert all(one == found[0] for one in found)


def test_a_session_that_ends_is_renewed_between_requests(kafka, entry, monkeypatch):
    """LOGIN by SCRAM-SHA-512 lasts REAUTH_MS: what is under way longer was logged in again meanwhile.

    The broker ends the session at that moment sharp. The log-in begins long before, so that a busy machine may take
    more than 2 s for it.
    """
    monkeypatch.setattr(connection_module, "LIFETIME_USED", (0.3, 0.4))
    topic = new_topic(kafka.bootstrap)

    async def produce():
        cluster = Cluster(settings(kafka.at("LOGIN"), entry("LOGIN", "SCRAM-SHA-512")))
        try:
            node = (await cluster.topics([topic]))[topic].leaders[0].node
            connection = await cluster.connection(node)
            began = asyncio.get_running_loop().time()
            offsets, _ = await pipeline(cluster, topic, pause_s=3 * REAUTH_MS / 1000 / BATCHES)
            assert asyncio.get_running_loop().time() - began > 2 * REAUTH_MS / 1000
            assert await cluster.connection(node) is connection
            return offsets
        finally:
            cluster.close()

    assert asyncio.run(produce()) == [number * RECORDS for number in range(BATCHES)]
    assert_whole(kafka.bootstrap, topic)


def test_each_refusal_is_a_sentence(kafka, entry, tmp_path, loop):
    other = str(Authority(tmp_path / "other", "other CA").certificate)
    wrong = [
        ("TLS", Security(), ("answers in TLS on that port", "hung up without an answer: does it want TLS")),
        ("LOGIN", Security(), ("does it want TLS, or a log-in",)),
        ("LOGIN", entry("TLS"), ("TLS on that port",)),
        ("TLS", entry("TLS")._replace(ca_file=None), ("has a certificate of an unknown CA",)),
        ("TLS", entry("TLS")._replace(ca_file=other), ("has a certificate of an unknown CA",)),
        ("TLS", entry("TLS")._replace(ca_file=str(tmp_path / "none")), ("is not tried, as",)),
        ("BOTH", entry("BOTH", "SCRAM-SHA-256", "nope"), (f"refuses the user '{USER}' by SCRAM-SHA-256",)),
        ("LOGIN", entry("LOGIN", "PLAIN", "nope"), (f"refuses the user '{USER}' by PLAIN",)),
        ("TLS", entry("BOTH", "PLAIN"), ("wants no log-in on that port: set security_protocol to SSL",)),
        ("BOTH", entry("TLS"), ("hung up after the TLS handshake: does it want a log-in",)),
        ("MUTUAL", entry("TLS"), ("wants a client certificate: name one in ssl_cert_file",)),
    ]

    async def ask(listener, security):
        cluster = Cluster(settings(kafka.at(listener), security))
        try:
            with pytest.raises(BrokerRefused) as refused:
                await asyncio.wait_for(cluster.topics([]), CALL_S)
            return str(refused.value)
        finally:
            cluster.close()

    for listener, security, says in wrong:
        told = run(ask(listener, security), loop)
        assert told.startswith(kafka.at(listener)), told
        assert any(each in told for each in says), (listener, told)
        assert PASSWORD not in told


def test_questions_do_not_wait_behind_a_fetch(kafka):
    topic = new_topic(kafka.bootstrap)

    async def ask():
        cluster = Cluster(settings(kafka.bootstrap))
        try:
            node = (await cluster.topics([topic]))[topic].leaders[0].node
            connection = await cluster.connection(node)
            wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
            waits_ms = int(CALL_S * 500)
            asked = FetchRequest(
                max_wait_ms=waits_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic=topic, partitions=wanted)],
            )
            fetch = connection.send(apis.FETCH, asked, timeout_s=CALL_S)
            await cluster.topics([topic])
            assert not fetch.done()
            assert await cluster.connection(node, SIDE) is not connection
            connection.close()
            with pytest.raises(ConnectionLost, match="was closed here"):
                await fetch
        finally:
            cluster.close()

    asyncio.run(ask())
