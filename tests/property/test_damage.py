"""Random damage to the files of a log that stopped cleanly: what is not damaged is served, what is missing is written
down, and nothing else.

Bits of a leader epoch stay as they are: no checksum covers them, and nothing else says what they were.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, ledgered, open_store, read_through_damage, sync

SETTINGS = LogSettings(segment_bytes=8192, index_interval_bytes=300)


class Scene:
    """A log of some segments, and what each of its files holds."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        store = open_store(self.disk, settings=SETTINGS)
        log = make_topic(store).partitions[0]
        self.batches: list[tuple[str, int, bytes]] = []  # path, position, bytes
        for _ in range(self.random.randrange(5, 90)):
            values = [self.random.randbytes(self.random.randrange(400)) for _ in range(self.random.randrange(1, 6))]
            records = batch(*values)
            append(log, records)
            active = log.segments[-1]
            self.batches.append((active.path, active.size - len(records), bytes(records)))
        sync(log)
        self.end_offset = log.log_end_offset
        self.sealed = [segment.path for segment in log.segments[:-1]]
        store.close()
        self.disk.kill()
        self.broken: set[int] = set()

    def damage(self) -> None:
        """One random harm to a closed segment; whose batches it harms is noted."""
        path = self.random.choice(self.sealed)
        content = bytearray(self.disk.content(path))
        if not content:
            return
        before = bytes(content)
        kind = self.random.randrange(5)
        if kind <= 1:
            self._flip(path, content)
        elif kind == 2:
            begin = self.random.randrange(len(content)) // 4096 * 4096
            content[begin : begin + 4096] = bytes(len(content[begin : begin + 4096]))
        elif kind == 3:
            begin = self.random.randrange(len(content))
            end = min(len(content), begin + self.random.randrange(1, 3000))
            content[begin:end] = self.random.randbytes(end - begin)
        else:
            del content[self.random.randrange(len(content)) :]
        self.disk.put(path, bytes(content))
        for number, (where, position, data) in enumerate(self.batches):
            if where == path and bytes(content[position : position + len(data)]) != data:
                if _apart_from_epoch(before, content, position, len(data)) or number in self.broken:
                    self.broken.add(number)
                else:
                    content[position + 12 : position + 16] = data[12:16]
                    self.disk.put(path, bytes(content))

    def _flip(self, path: str, content: bytearray) -> None:
        held = [(position, data) for where, position, data in self.batches if where == path]
        position, data = self.random.choice(held)
        byte = position + self.random.choice([*range(12), *range(16, len(data))])
        if byte < len(content):
            content[byte] ^= 1 << self.random.randrange(8)


def _apart_from_epoch(before: bytes, after: bytearray, position: int, size: int) -> bool:
    end = position + size
    return (
        len(after) < end
        or before[position : position + 12] != after[position : position + 12]
        or (before[position + 16 : end] != after[position + 16 : end])
    )


@pytest.mark.leaves("the entry speaks of no batch in the log")
@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_undamaged_batches_are_served_and_missing_offsets_are_in_the_ledger(seed: int) -> None:
    scene = Scene(seed)
    if not scene.sealed:
        return
    for _ in range(scene.random.randrange(1, 4)):
        for _ in range(scene.random.randrange(1, 5)):
            scene.damage()
        scene.disk.kill()
        store = open_store(scene.disk, settings=SETTINGS)
        log = store.topics["t"].partitions[0]
        for pass_ in range(2):
            scene.disk.cold = bool(pass_)
            served = read_through_damage(log, scene.random.choice([100, 1000, 50_000]))
            assert served == [data for number, (_, _, data) in enumerate(scene.batches) if number not in scene.broken]
        assert (log.high_watermark, log.log_end_offset, log.fault) == (scene.end_offset, scene.end_offset, None)
        _check_ledger(scene, store)


def _check_ledger(scene: Scene, store: LogStore) -> None:
    missing = {
        offset
        for number in scene.broken
        for offset in range(
            read_header(scene.batches[number][2]).base_offset, read_header(scene.batches[number][2]).next_offset
        )
    }
    told: set[int] = set()
    for cause, topic, _, first, last in ledgered(store):
        assert (cause, topic) == ("damaged", "t")
        assert last is not None
        told |= set(range(first, last + 1))
    assert told == missing
