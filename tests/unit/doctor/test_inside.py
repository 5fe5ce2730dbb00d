"""Batches that lie inside, which older versions acked: check and proof name them, nothing stumbles over them."""

from __future__ import annotations

import pytest

from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.log_cleaner import LogCleaner
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import make_topic
from tests.support.doctor_data.directory import let_go
from tests.support.lying_batches import (
    CODECS,
    HONEST_AREAS,
    LYING_AREAS,
    LYING_PAYLOADS,
    LYING_TIMES,
    batch,
    packed,
    record,
)
from tests.support.record_batches import COMMIT, marker
from tests.support.storage import append, open_store, sync, time_at

# What an older version could ack: count and offsets had to fit together, all else was believed.
LIES = {name: batch(area, count=count) for name, (area, count) in LYING_AREAS.items() if count < 10}
LIES |= {name: batch(content, count=2, codec=codec) for name, (codec, content) in LYING_PAYLOADS.items()}
LIES |= {
    f"packed {name}": packed(*LYING_AREAS[name][:1], count=1, codec="zstd") for name in ("garbage", "2^31-1 headers")
}


@pytest.fixture
def store(tmp_path):
    store = open_store(Disk(), str(tmp_path / "data"))
    yield store
    let_go(store)


def filled(store: LogStore, batches: list[bytes]) -> str:
    """The path of a log with these batches and an honest one before and behind each."""
    (log,) = make_topic(store, "t", 1).partitions
    good = packed(record(), count=1, codec="none")
    for content in batches:
        for one in (good, content, good):
            append(log, memoryview(bytearray(one)))
    sync(log)
    store.checkpoint()
    return log.directory


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_noted_with_its_offsets(run, store, name: str) -> None:
    filled(store, [LIES[name]])
    count = int.from_bytes(LIES[name][57:61], "big")
    ran = run("log", "check", "--data-dir", store.data_dir)
    notes = [line for line in ran.out.splitlines() if "cannot be read" in line]
    assert ran.status == 0, ran.out
    assert len(notes) == 1, ran.out
    assert f"offsets 1 to {count} were acked by an older version" in notes[0]
    assert f"seek to offset {count + 1}." in notes[0]
    ran = run("ledger", "--prove", "--data-dir", store.data_dir)
    assert ran.status == 0, ran.out + ran.err
    assert ran.out.count("cannot be read") == 1
    for words in (("log", "dump", "t-0", "--records"), ("log", "ls")):
        ran = run(*words, "--data-dir", store.data_dir)
        assert ran.status == 0, ran.err


def test_honest_batches_are_not_noted(run, store) -> None:
    found = [packed(area, count=count, codec=codec) for area, count in HONEST_AREAS.values() for codec in CODECS]
    found += [
        packed(area, count=count, codec="none", base_timestamp=base) for area, count, base in LYING_TIMES.values()
    ]
    filled(store, found)
    (log,) = store.topics["t"].partitions
    control = marker(COMMIT, base_offset=0, producer_id=7)
    append_control(log, control)
    sync(log)
    ran = run("log", "check", "--data-dir", store.data_dir)
    assert (ran.status, "cannot be read" in ran.out) == (0, False), ran.out


def append_control(log, control: memoryview) -> None:
    """What a coordinator would append: no producer may."""
    log.writer.append(control, read_header(control), time_at(NOW_MS))


def test_a_broker_starts_and_compacts_over_lies(tmp_path) -> None:
    store = open_store(Disk(), str(tmp_path / "data"))
    config = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0"}
    (log,) = make_topic(store, "t", 1, config).partitions
    good = packed(record(), count=1, codec="none")
    for content in LIES.values():
        for one in (good, content):
            append(log, memoryview(bytearray(one)))
    sync(log)
    end = log.log_end_offset
    store.close()
    again = open_store(Disk(), str(tmp_path / "data"))
    (log,) = again.topics["t"].partitions
    assert log.log_end_offset == end
    cleaner = LogCleaner(again, 1 << 20)
    for _ in range(2000):
        if not cleaner.step(time_at(NOW_MS + 10_000), 1 << 20):
            break
    assert log.fault is None
    again.close()
