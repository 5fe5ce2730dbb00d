"""MirrorMaker 2 with its defaults mirrors Apache Kafka into the edge broker: records, settings, partitions, groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from tests.support.kafka_reading import create_topic, read_topic
from tests.support.mirrormaker import mirrormaker
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.waiting import CALL_S, wait_until

TOPIC, MIRRORED = "readings", "central.readings"
RECORDS = 500  # in each of two partitions
SYNC_S = 120


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[ApacheKafka, EdgeBroker]]:
    with ApacheKafka(tmp_path) as kafka, EdgeBroker(tmp_path) as edge:
        yield kafka, edge


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2 * RECORDS):
        producer.produce(TOPIC, f"value {number}", partition=number % 2)
    assert producer.flush(CALL_S) == 0


def commit(bootstrap: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, RECORDS)], asynchronous=False)
    consumer.close()


@pytest.mark.timeout(600)
def test_mirrormaker_mirrors_into_the_edge_broker(sides: tuple[ApacheKafka, EdgeBroker], tmp_path: Path) -> None:
    kafka, edge = sides
    create_topic(kafka.bootstrap, TOPIC, 2, {"retention.ms": "86400000"})
    fill(kafka.bootstrap)
    commit(kafka.bootstrap, "app")
    central, site = (AdminClient({"bootstrap.servers": side.bootstrap}) for side in sides)
    resource = ConfigResource(ConfigResource.Type.TOPIC, MIRRORED)
    reader = Consumer({"bootstrap.servers": edge.bootstrap, "group.id": "app"})

    def partitions() -> int:
        found = site.list_topics(timeout=CALL_S).topics
        return len(found[MIRRORED].partitions) if MIRRORED in found else 0

    def retention() -> str:
        return str(site.describe_configs([resource])[resource].result(CALL_S)["retention.ms"].value)

    with mirrormaker(tmp_path, kafka, edge) as process:

        def ends() -> list[int]:
            process.check()
            places = [TopicPartition(MIRRORED, index) for index in range(partitions())]
            return [reader.get_watermark_offsets(place, timeout=CALL_S)[1] for place in places]

        wait_until(lambda: ends() == [RECORDS] * 2, SYNC_S, "all records", poll_s=0.5)
        assert retention() == "86400000"
        change = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
        central.incremental_alter_configs([wanted])[wanted].result(CALL_S)
        central.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(CALL_S)
        wait_until(lambda: retention() == "3600000", SYNC_S, "the new configuration", poll_s=0.5)
        wait_until(lambda: partitions() == 3, SYNC_S, "the new partition", poll_s=0.5)

        def committed() -> int:
            return int(reader.committed([TopicPartition(MIRRORED, 0)], timeout=CALL_S)[0].offset)

        wait_until(lambda: committed() == RECORDS, SYNC_S, "what the group committed", poll_s=0.5)
    reader.close()
    values = {read.value for read in read_topic(edge.bootstrap, MIRRORED)}
    assert values == {f"value {number}".encode() for number in range(2 * RECORDS)}
