"""Three boards and a real ensemble, used by unmodified clients: a board may die or be restarted, and they go on."""

from __future__ import annotations

import asyncio
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from edge_broker.storage.files.filesystem import ReadOnlyDisk
from edge_broker.storage.metadata.cluster_copy import read_cluster_copy
from tests.support import runtimes
from tests.support.board_cluster import BoardCluster
from tests.support.conformance.cluster_records import WAIT_S, AckedWrites, assert_each_once, read_all
from tests.support.entries import kcat
from tests.support.java_tools import PRODUCER, QUICK_START, QUIET
from tests.support.processes import EdgeBroker, start_together
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardCluster]:
    directory = tmp_path_factory.mktemp("boards")
    with ZooKeeperEnsemble(directory) as ensemble, BoardCluster(directory, ensemble) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: BoardCluster) -> str:
    for board in cluster.boards:
        if not board.running:
            board.kill()
            board.start()
    return cluster.make_topic(f"t-{uuid.uuid4().hex[:8]}", 3)


def test_every_board_tells_the_same(cluster: BoardCluster, topic: str) -> None:
    told = []
    for board in cluster.boards:
        known = AdminClient({"bootstrap.servers": board.bootstrap}).list_topics(timeout=CALL_S)
        partitions = known.topics[topic].partitions.values()
        told.append(
            (
                known.cluster_id,
                known.controller_id,
                sorted((one.id, one.host, one.port) for one in known.brokers.values()),
                [(one.id, one.leader, one.replicas, sorted(one.isrs)) for one in partitions],
            )
        )
    assert told[0] == told[1] == told[2]
    assert len({partition[1] for partition in told[0][3]}) == 3, "each board leads one of three"


def test_a_board_dies_and_its_clients_go_on(cluster: BoardCluster, topic: str) -> None:
    written = AckedWrites(cluster, topic, enable_idempotence=True)
    written.write(500, "before")
    wait_until(lambda: written.producer.poll(0.05) >= 0 and len(written.offsets) > 100, WAIT_S, "some are answered")
    dead = cluster.leader(topic)
    dead.kill()
    written.write(500, "after")
    assert_each_once(cluster, topic, written.end())
    dead.start()
    cluster.wait_in_sync(topic)
    others = [board for board in cluster.boards if board is not dead]
    for board in others:
        board.stop()
    for board in others:
        board.start()
    cluster.wait_in_sync(topic)
    assert_each_once(cluster, topic, written.offsets)


def test_the_dead_lead_nothing_and_are_not_waited_for_while_they_are_registered(
    cluster: BoardCluster, topic: str
) -> None:
    dead = cluster.leader(topic)
    number, alive = cluster.boards.index(dead) + 1, next(board for board in cluster.boards if board is not dead)
    admin = AdminClient({"bootstrap.servers": alive.bootstrap})

    def told() -> tuple[bool, int, set[int]]:
        """Whether it is registered, who leads its partition, and which partitions it is in sync of."""
        found = admin.list_topics(topic, timeout=CALL_S)
        partitions = found.topics[topic].partitions.values()
        leader = next(one.leader for one in partitions if one.id == 0)
        return number in found.brokers, leader, {one.id for one in partitions if number in one.isrs}

    assert told() == (True, number, {0, 1, 2})
    dead.kill()
    wait_until(lambda: told() == (True, -1, {0}), WAIT_S, "its leaving is known, and its session lasts", seen=told)
    wait_until(lambda: told()[1] not in (-1, number), WAIT_S, "another leads", seen=told)
    dead.start()
    cluster.wait_in_sync(topic)


def test_what_was_answered_lies_on_each_disk(cluster: BoardCluster, topic: str) -> None:
    written = AckedWrites(cluster, topic)
    written.write(100, "all")
    answered = written.end()
    for board in cluster.boards:
        board.kill()
    start_together(cluster.boards)
    cluster.wait_in_sync(topic)
    assert_each_once(cluster, topic, answered)


def test_too_few_boards_take_no_records_that_ask_for_all(cluster: BoardCluster, topic: str) -> None:
    leader = cluster.leader(topic)
    for board in cluster.boards:
        if board is not leader:
            board.kill()

    def refused() -> bool:
        soon = {"request.timeout.ms": 2000, "message.timeout.ms": 4000, "retries": 0}
        producer = Producer({"bootstrap.servers": leader.bootstrap, "acks": "all"} | soon)
        codes: list[int] = []
        producer.produce(
            topic, b"x", partition=0, on_delivery=lambda error, _: codes.append(error.code() if error else 0)
        )
        producer.flush(CALL_S)
        return codes in ([KafkaError.NOT_ENOUGH_REPLICAS], [KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND])

    wait_until(refused, WAIT_S, "acks=all is refused")


def test_a_group_goes_on_where_another_board_has_its_coordinator(cluster: BoardCluster, topic: str) -> None:
    written = AckedWrites(cluster, topic)
    written.write(300, "one")
    written.end()
    group = f"g-{uuid.uuid4().hex[:6]}"

    def consume(least: int) -> set[bytes]:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "enable.auto.commit": False} | settings)
        consumer.subscribe([topic])
        found: set[bytes] = set()
        try:
            end = time.monotonic() + WAIT_S
            while len(found) < least and time.monotonic() < end:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    value = message.value()
                    assert value is not None
                    found.add(value)
            wait_until(lambda: committed(consumer), WAIT_S, "the positions are committed")
        finally:
            consumer.close()
        return found

    def committed(consumer: Consumer) -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if not (error.args[0].retriable() or error.args[0].code() == KafkaError.NOT_COORDINATOR):
                raise
            return False
        return True

    first = consume(300)
    assert len(first) == 300
    cluster.leader("__consumer_offsets").kill()
    written.write(300, "two")
    written.end()
    second = consume(300)
    assert second == {f"two-{number}".encode() for number in range(300)}, "what was committed is not read again"


def test_partitions_are_added_and_topics_deleted(cluster: BoardCluster, topic: str) -> None:
    for more in cluster.admin.create_partitions([NewPartitions(topic, 5)]).values():
        more.result(CALL_S)
    cluster.wait_in_sync(topic, 5)
    written = AckedWrites(cluster, topic)
    written.write(200, "five")
    assert len({partition for partition, _ in written.end().values()}) == 5
    wait_until(lambda: all(copied_partitions(board, topic) == 5 for board in cluster.boards), WAIT_S, "all know of it")
    for gone in cluster.admin.delete_topics([topic]).values():
        gone.result(CALL_S)
    wait_until(
        lambda: not any(list(board.data_dir.glob(f"{topic}-*")) for board in cluster.boards),
        WAIT_S,
        "no files are left",
    )
    wait_until(lambda: all(copied_deletion(board, topic) for board in cluster.boards), WAIT_S, "all know that it went")


def copied_partitions(board: EdgeBroker, topic: str) -> int:
    """How many partitions a topic has by the copy of what ZooKeeper knows; 0: it has no such topic, or is none."""
    try:
        topics = read_cluster_copy(ReadOnlyDisk(), str(board.data_dir)).topics
    except FileNotFoundError:  # it is written within a second
        return 0
    return next((len(each.replicas) for each in topics if each.name == topic), 0)


def copied_deletion(board: EdgeBroker, topic: str) -> bool:
    copy = read_cluster_copy(ReadOnlyDisk(), str(board.data_dir))
    return any(each.name == topic for each in copy.deletions) and not copied_partitions(board, topic)


async def restart_each(cluster: BoardCluster, stop: asyncio.Event) -> None:
    """One board after the other is stopped and started, until somebody has seen enough."""
    boards = list(cluster.boards)
    while not stop.is_set():
        board = boards.pop(0)
        boards.append(board)
        await asyncio.to_thread(restart, cluster, board)
        await asyncio.sleep(RESTARTS_S)


def restart(cluster: BoardCluster, board: EdgeBroker) -> None:
    board.stop()
    board.start()
    wait_until(lambda: cluster.there() == len(cluster.boards), WAIT_S, "it is a member again")


# One client proves that brokers keep their promise; the night has the others, as each takes the same 15 seconds.
@pytest.mark.parametrize(
    "client",
    [
        "confluent-kafka",
        *(pytest.param(each, marks=pytest.mark.night) for each in ("aiokafka", "java", "kcat")),
    ],
)
def test_a_client_sees_no_more_than_a_pause_while_boards_are_restarted(
    cluster: BoardCluster, topic: str, client: str, tmp_path: Path
) -> None:
    """Each board is restarted once at least while the client writes with acks=all; nothing fails, nothing is lost."""

    async def run() -> set[bytes]:
        stop = asyncio.Event()
        restarts = asyncio.create_task(restart_each(cluster, stop))
        try:
            return await CLIENTS[client](cluster, topic, tmp_path)
        finally:
            stop.set()
            await restarts

    written = asyncio.run(run())
    cluster.wait_in_sync(topic)
    found = [value for value, _ in read_all(cluster, topic)]
    assert written <= set(found)
    if client != "kcat":  # which is not idempotent
        assert len(found) == len(set(found))


RESTARTS_S = 2.0  # between two
ROUND_S = 15.0  # in which each board is restarted


async def by_aiokafka(cluster: BoardCluster, topic: str, _path: Path) -> set[bytes]:
    written: set[bytes] = set()
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True, request_timeout_ms=10_000)
    await producer.start()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    end = time.monotonic() + ROUND_S
    try:
        while time.monotonic() < end:
            value = f"aiokafka-{len(written)}".encode()
            await producer.send_and_wait(topic, value, key=value)
            written.add(value)
        seen: set[bytes] = set()
        async with asyncio.timeout(WAIT_S):
            while seen < written:
                seen.add((await consumer.getone()).value or b"")
    finally:
        await consumer.stop()
        await producer.stop()
    return written


async def by_confluent(cluster: BoardCluster, topic: str, _path: Path) -> set[bytes]:
    def write() -> set[bytes]:
        written, end, number = AckedWrites(cluster, topic, enable_idempotence=True), time.monotonic() + ROUND_S, 0
        while time.monotonic() < end:
            written.write(20, f"confluent-{number}")
            number += 1
            written.producer.poll(0.05)
        return set(written.end())

    return await asyncio.to_thread(write)


async def by_java(cluster: BoardCluster, topic: str, path: Path) -> set[bytes]:
    """The console producer is idempotent, and tells by its exit and its words what it could not send."""
    properties = path / "producer.properties"
    properties.write_text("delivery.timeout.ms=60000\nrequest.timeout.ms=10000\nacks=all\n")
    command = [*runtimes.kafka_java(*QUICK_START, QUIET), PRODUCER, "--bootstrap-server", cluster.bootstrap]
    command += ["--topic", topic, "--command-config", str(properties), "--message-send-max-retries", "1000"]
    written: set[bytes] = set()
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    assert child.stdin is not None
    try:
        end = time.monotonic() + ROUND_S
        while time.monotonic() < end:
            value = f"java-{len(written)}".encode()
            child.stdin.write(value + b"\n")
            await child.stdin.drain()
            written.add(value)
            await asyncio.sleep(0.01)  # the rate
        child.stdin.close()
        said = (await asyncio.wait_for(child.communicate(), WAIT_S))[0].decode()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, said
    assert "Error when sending" not in said
    return written


async def by_kcat(cluster: BoardCluster, topic: str, _path: Path) -> set[bytes]:
    command = [*kcat(cluster.bootstrap), "-P", "-t", topic, "-X", "acks=all", "-X", "message.timeout.ms=60000"]
    written: set[bytes] = set()
    end = time.monotonic() + ROUND_S
    while time.monotonic() < end:
        lines = [f"kcat-{len(written) + number}" for number in range(50)]
        text = "".join(f"{line}\n" for line in lines)
        done = await asyncio.to_thread(
            subprocess.run, command, input=text, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        written.update(line.encode() for line in lines)
    return written


CLIENTS = {"aiokafka": by_aiokafka, "confluent-kafka": by_confluent, "java": by_java, "kcat": by_kcat}
