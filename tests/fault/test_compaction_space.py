"""A compacted topic on a disk of 64 MB takes as much as fits there: what is replaced gives its space back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.full_disk import MIB, free_bytes, small_device
from tests.support.open_files import deleted_but_open
from tests.support.processes import EdgeBroker, wait_until
from tests.unit.broker.test_compaction_space import make_compacted, produce_keyed
from tests.unit.broker.test_process import connected, metric

pytestmark = pytest.mark.root("mount")
DEVICE_BYTES = 64 * MIB
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(2 * MIB), "min.cleanable.dirty.ratio": "0.01"}
ROUNDS, ROUND_BATCHES = 6, 100  # of 100 KB, a hundred keys of 1 KB: one batch of them is what stays
STAYS_BYTES = 12 * MIB  # five segments and what the broker keeps beside them
DEADLINE_S = 60.0


def test_what_compaction_replaced_is_free_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with small_device(tmp_path, request.config.getoption("--device"), DEVICE_BYTES) as mountpoint:
        settings = {"log.cleaner.backoff.ms": 100}
        with EdgeBroker(tmp_path, data_dir=mountpoint / "data", settings=settings) as broker, connected(broker) as wire:
            free_at_first = free_bytes(mountpoint)
            make_compacted(wire, CONFIG)
            for number in range(ROUNDS):
                produce_keyed(wire, ROUND_BATCHES)  # 10 MB
                wanted = number + 1
                wait_until(
                    lambda: metric(broker, "cleaner_passes_total") >= wanted,  # noqa: B023
                    DEADLINE_S,
                    "a pass of the cleaner",
                )
                wait_until(
                    lambda: free_at_first - free_bytes(mountpoint) <= STAYS_BYTES,
                    DEADLINE_S,
                    f"the disk has its space back, round {number}",
                )
            wait_until(
                lambda: not deleted_but_open(mountpoint, broker.pid),
                DEADLINE_S,
                "the scrubber has gone on, too",
                seen=lambda: deleted_but_open(mountpoint, broker.pid),
            )
            assert "writes are refused" not in broker.log_tail()
