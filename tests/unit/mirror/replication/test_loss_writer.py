"""The loss ledger and the dead letters at the source: tried until all replicas have the record."""

from __future__ import annotations

import asyncio
import json

import pytest

from drupelet.ledger import LEDGER_TOPIC
from mirror.errors import TargetError
from mirror.ledger.dead_letter import DEAD_LETTER_TOPIC
from mirror.replication import loss_writer
from mirror.replication.loss_writer import LossWriter
from mirror.status.metrics import Metrics
from tests.unit.mirror.replication.parts import CONFIG, Problems, new_stream


class Source:
    """The source as a cluster that is written to; the next calls fail with `failures`."""

    def __init__(self, *failures):
        self.failures, self.created, self.written, self.letters, self.closed = list(failures), [], [], [], 0
        self.writing = 0

    async def ensure_topic(self, partition, partitions, settings):
        self.created.append(partition.topic)

    async def write(self, topic, key, value, timeout_s):
        self.writing += 1
        assert self.writing == 1
        await asyncio.sleep(0)
        self.writing -= 1
        if self.failures:
            raise TargetError(self.failures.pop(0))
        self.written.append((topic, json.loads(value)))

    async def write_batch(self, topic, batch, timeout_s):
        self.letters.append((topic, batch))

    async def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr(loss_writer, "BACKOFF_FIRST_S", 0.001)


def writer_of(source, problems=None):
    metrics, problems = Metrics(), Problems() if problems is None else problems
    return LossWriter(source, CONFIG, metrics, "mirror@here", problems.report), metrics


async def test_a_loss_is_an_entry_of_this_mirror_and_is_counted():
    source = Source()
    writer, metrics = writer_of(source)
    await writer.write_loss(new_stream(), "source_offset_jump", 10, 15)
    [(topic, entry)] = source.written
    assert topic == LEDGER_TOPIC
    assert (entry["cause"], entry["first_offset"], entry["last_offset"], entry["records"], entry["node"]) == (
        "source_offset_jump", 10, 14, 5, "mirror@here",
    )  # fmt: skip
    assert metrics.ledger.labels("source_offset_jump")._value.get() == 1


async def test_of_a_compacted_topic_the_number_of_records_is_unknown():
    source = Source()
    writer, _ = writer_of(source)
    await writer.write_loss(new_stream(policy="compact"), "source_offset_out_of_range", 10, 15)
    assert source.written[0][1]["records"] is None


async def test_a_failed_write_is_tried_until_it_succeeds_and_named_meanwhile():
    source, problems, named = Source("away", "away"), Problems(), []
    writer, metrics = writer_of(source, problems)
    closing = source.close

    async def close():
        named.append(dict(problems))
        await closing()

    source.close = close
    await writer.write_loss(new_stream(), "source_offset_jump", 10, 15)
    assert named == [{"ledger": "away"}] * 2
    assert problems == {}
    assert len(source.written) == 1
    assert source.created == [LEDGER_TOPIC] * 3  # made sure of again after each failure
    assert source.closed == 2
    assert metrics.ledger.labels("source_offset_jump")._value.get() == 1


async def test_the_topic_is_made_sure_of_once():
    source = Source()
    writer, _ = writer_of(source)
    await writer.write_loss(new_stream(), "source_offset_jump", 10, 15)
    await writer.write_loss(new_stream(), "source_offset_jump", 20, 25)
    assert source.created == [LEDGER_TOPIC]


async def test_one_write_at_a_time():
    source = Source()
    writer, _ = writer_of(source)
    losses = [writer.write_loss(new_stream(), "source_offset_jump", n, n + 1) for n in range(5)]
    await asyncio.gather(*losses)
    assert len(source.written) == 5


async def test_a_dead_letter_goes_to_its_own_topic():
    source = Source()
    writer, _ = writer_of(source)
    await writer.write_letter(b"batch")
    assert source.letters == [(DEAD_LETTER_TOPIC, b"batch")]
    assert source.created == [DEAD_LETTER_TOPIC]
    assert source.written == []
