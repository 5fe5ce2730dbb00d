"""What was written, and what is known of the clock, as figures."""

from __future__ import annotations

import os
from pathlib import Path

from edge_broker.network.background.disk_write_counters import device_bytes, process_bytes
from edge_broker.network.background.metrics import metrics_text
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import Site
from tests.support.storage import append, batch, sync


def figure(text: str, name: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"edge_broker_{name} "))


def test_what_the_process_made_the_kernel_write(tmp_path: Path) -> None:
    io = tmp_path / "io"
    io.write_text("rchar: 1\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n")
    assert process_bytes(str(io)) == 4096
    assert process_bytes() is not None
    for text in ("", "nonsense\n", "write_bytes: 1\n"):
        io.write_text(text)
        assert process_bytes(str(io)) is None
    assert process_bytes(str(tmp_path / "none")) is None


def test_what_was_written_to_the_device(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    directory = tmp_path / f"{os.major(device)}:{os.minor(device)}"
    assert device_bytes(str(tmp_path), str(tmp_path)) is None
    directory.mkdir()
    (directory / "stat").write_text("  100 1 200 3 400 5 600 7 0 8 9\n")
    assert device_bytes(str(tmp_path), str(tmp_path)) == 600 * 512
    (directory / "stat").write_text("  100 1\n")
    assert device_bytes(str(tmp_path), str(tmp_path)) is None
    assert device_bytes(str(tmp_path / "none")) is None


def test_the_clock_and_the_time_that_counts() -> None:
    site = Site()
    site.loop.now_s += 7
    text = metrics_text(site.broker, site.dispatcher, site.server, 0)
    assert figure(text, "clock_trusted") == 1
    assert figure(text, "age_seconds") == 7
    assert "\nedge_broker_device_written_bytes_total " not in text, "a simulated disk is on no device"


def test_a_start_after_a_kill_says_how_much_it_read() -> None:
    disk = SimulatedDisk(1)
    site = Site(disk=disk)
    (log,) = site.topic(config={"segment.bytes": "4096"})
    for _ in range(10):
        append(log, batch(bytes(1000)))
    site.store.close()
    disk.kill()
    clean = Site(disk=disk)
    assert clean.store.recovery_bytes == 0
    log = clean.store.topics["t"].partitions[0]
    records = batch(b"after the clean stop")
    append(log, records)
    sync(log)
    disk.kill()
    killed = Site(disk=disk)
    assert killed.store.recovery_bytes == len(records), "nothing that a clean stop or a sealed segment accounts for"
    text = metrics_text(killed.broker, killed.dispatcher, killed.server, 0)
    assert figure(text, "recovery_read_bytes") == len(records)
