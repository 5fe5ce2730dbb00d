"""edge.durability: what an answer means, and what consumers are shown."""

from __future__ import annotations

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import FETCH, LIST_OFFSETS, PRODUCE
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import Site
from tests.support.storage import batch, read_all
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_produce import code, produce


def test_of_an_interval_topic_the_write_is_answered_and_the_clock_decides_when_it_is_synced_and_shown() -> None:
    site = Site()
    (log,) = site.topic(config={"edge.durability": "interval", "flush.ms": "60000"})
    client, reader, poller = site.client(), site.client(), site.client()
    reader.send(FETCH, fetch(("t", 0, 0), max_wait_ms=90_000), BY_NAME)
    assert code(client.ask(PRODUCE, produce(("t", 0, batch(b"a"))))) is ErrorCode.NONE
    poller.ask(FETCH, fetch(("t", 0, 0)), BY_NAME)
    latest = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    asked = poller.ask(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=[latest]))
    assert asked.topics[0].partitions[0].offset == 0
    site.loop.advance(59_000)
    assert code(client.ask(PRODUCE, produce(("t", 0, batch(b"b")), acks=1))) is ErrorCode.NONE
    assert (log.log_end_offset, log.high_watermark, reader.answers()) == (2, 0, [])
    site.loop.advance(1000)
    site.run_until_idle()
    assert log.high_watermark == 2
    assert reader.answer().responses[0].partitions[0].high_watermark == 2
    assert site.dispatcher.syncer.rounds == 1


@pytest.mark.parametrize(
    ("durability", "kept_at_least", "shown"), [("sync", 2, [1, 2]), ("interval", 0, [0, 0]), ("kernel", 0, [1, 2])]
)
def test_what_a_power_cut_may_take_of_acks_all(durability: str, kept_at_least: int, shown: list[int]) -> None:
    left = set()
    for seed in range(30):
        site = Site(disk=SimulatedDisk(seed))
        (log,) = site.topic(config={"edge.durability": durability})
        client, seen = site.client(), []
        for value in (b"a", b"b"):
            assert code(client.ask(PRODUCE, produce(("t", 0, batch(value))))) is ErrorCode.NONE
            seen.append(log.high_watermark)
        assert seen == shown
        left.add(site.reopen("cut").store.topics["t"].partitions[0].log_end_offset)
    assert min(left) == kept_at_least


def test_an_interval_topic_is_synced_when_the_broker_stops() -> None:
    site = Site()
    site.topic(config={"edge.durability": "interval", "flush.ms": "60000"})
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"a"))))) is ErrorCode.NONE
    site.dispatcher.sync_all()
    site.run_until_idle()
    assert len(read_all(site.store.topics["t"].partitions[0])) == 1
    assert read_all(site.store.topics[LEDGER_TOPIC].partitions[0]) == []
