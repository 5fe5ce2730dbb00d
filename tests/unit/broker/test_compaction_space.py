"""The real process: what compaction replaces is closed, so that the disk has its space back."""

from __future__ import annotations

from pathlib import Path

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import CREATE_TOPICS, PRODUCE
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from edge_broker.protocol.record_batch import build_batch
from tests.support.open_files import deleted_but_open
from tests.support.processes import EdgeBroker, wait_until
from tests.unit.broker.test_process import DEADLINE_S, Wire, connected, metric
from tests.unit.broker.test_produce import code, produce

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "200000", "min.cleanable.dirty.ratio": "0.01"}
PASSES = 4
ROUND_BATCHES = 25  # of 100 KB: as many segments


def make_compacted(wire: Wire, config: dict[str, str]) -> None:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    assert wire.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic])).topics[0].error_code == ErrorCode.NONE


def produce_keyed(wire: Wire, batches: int, value: bytes = bytes(1000)) -> None:
    """The same hundred keys in every batch, each synced before the next comes."""
    for _ in range(batches):
        records = memoryview(bytearray(build_batch([(b"%d" % key, value) for key in range(100)], timestamp_ms=1)))
        assert code(wire.ask(PRODUCE, produce(("t", 0, records)))) is ErrorCode.NONE


def test_no_compacted_segment_stays_open(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 100}
    with EdgeBroker(tmp_path, settings=settings) as broker, connected(broker) as wire:
        make_compacted(wire, CONFIG)
        passes = 0.0
        for _ in range(PASSES):
            produce_keyed(wire, ROUND_BATCHES)
            wanted = passes + 1
            wait_until(lambda: metric(broker, "cleaner_passes_total") >= wanted, DEADLINE_S, "a pass of the cleaner")  # noqa: B023
            passes = metric(broker, "cleaner_passes_total")
        wait_until(lambda: not deleted_but_open(tmp_path, broker.pid), DEADLINE_S, "all that was replaced is closed")
        logs = [path for path in (broker.data_dir / "t-0").iterdir() if path.suffix == ".log"]
        assert len(logs) < PASSES * ROUND_BATCHES, "each batch had a segment; compaction took some of them away"
