"""A stranger who reaches ZooKeeper removes or forges /producer-ids: every record that is acked is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from edge_broker.cluster.znodes.znode_codec import PRODUCER_IDS, encode_producer_ids
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import INIT_PRODUCER_ID
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.record_batch import build_batch
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker
from tests.support.raw_client import connected
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperEnsemble


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


def new_id(bootstrap: str) -> int:
    """A producer's id; a broker that has just started may have it ask again."""
    found: list[int] = []

    def given() -> bool:
        with connected(bootstrap, 30) as client:
            answer = client.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
        if answer.error_code == ErrorCode.NONE:
            found.append(answer.producer_id)
        return bool(found)

    wait_until(given, 30, "a producer id is given")
    return found[0]


def write_first(bootstrap: str, producer_id: int, value: bytes) -> int:
    """The first record of a producer is acked; the end of the partition then."""
    batch = build_batch([(None, value)], timestamp_ms=1, producer_id=producer_id, producer_epoch=0, base_sequence=0)

    def acked() -> bool:
        with connected(bootstrap, 30) as client:
            return client.produce("t", batch).error_code == ErrorCode.NONE

    wait_until(acked, 30, "the record is acked")
    with connected(bootstrap, 30) as client:
        return client.end_offset("t")


def forge(zookeeper: KazooClient, how: str) -> None:
    if how == "set back":
        zookeeper.set(PRODUCER_IDS, encode_producer_ids(0))
        return
    zookeeper.delete(PRODUCER_IDS)
    if how == "forged":
        zookeeper.create(PRODUCER_IDS, encode_producer_ids(0))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["removed", "forged", "set back"])
def test_a_second_producer_gets_no_used_id_and_its_record_is_written(
    how: str, ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    chroot = f"/{how.replace(' ', '-')}"
    stranger = KazooClient(hosts=ensemble.connect, timeout=10)
    stranger.start()
    try:
        stranger.create(chroot)
        stranger.chroot = chroot
        settings: dict[str, str | int] = {"zookeeper.connect": ensemble.connect + chroot, "broker.id": 1}
        with EdgeBroker(tmp_path, settings=settings) as broker:
            create_topic(broker.bootstrap, "t")
            first = new_id(broker.bootstrap)
            assert write_first(broker.bootstrap, first, b"of the first producer") == 1
            broker.stop()
            forge(stranger, how)
            broker.start()
            second = new_id(broker.bootstrap)
            ends = write_first(broker.bootstrap, second, b"of the second producer")
            assert (second != first, ends) == (True, 2)
    finally:
        stranger.stop()
        stranger.close()
