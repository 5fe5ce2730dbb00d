"""A disk that fails: EIO from a sync, a write or a read, and no space; real clients, the broker as it is run.

The broker stays, what it answered holds, and the clients go on by themselves once the disk does; a cut of the power
afterwards shows whether what was acked since is on the disk. What must hold is in `rounds`.
"""

import os
import time
from contextlib import suppress

import pytest
from confluent_kafka import Producer

from tests.fault.disk import FuseDisk
from tests.fault.rounds import EDGE_SETTINGS, TOPIC, Rounds, prove_ledger
from tests.fault.workload import PARTITIONS
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S, wait_until

pytestmark = pytest.mark.root("fuse")
RECORDS = 1000
LOG = rf"^/data/{TOPIC}-{PARTITIONS - 1}/\d+\.log$"  # where newcomers' last records go: its leader epoch must rise


@pytest.fixture
def site(tmp_path, chance):
    """A disk, and clients at work on a broker that has its data there."""
    with FuseDisk(tmp_path, seed=chance.randrange(1 << 32)) as disk:
        broker = EdgeBroker(tmp_path, data_dir=disk.mountpoint / "data", settings=EDGE_SETTINGS)
        with broker, Rounds(broker, 60, chance) as run:
            yield disk, run


@pytest.fixture
def times(is_long):
    return 3 if is_long else 1


def _struck(disk, times):
    wait_until(lambda: disk.state()["struck"] == [times], 30, "the fault strikes")
    disk.release()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["datasync", "write"])
def test_a_partition_whose_disk_failed_once_comes_back_with_all_that_was_acked(site, chance, kind, times):
    disk, run = site

    def fail():
        disk.fault([kind], LOG, error="EIO", count=1)
        _struck(disk, 1)

    for _ in range(times):
        run.run(fail, chance)
        run.run(fail, chance)
        run.run(lambda: disk.cut(run.broker), chance)
    run.finish()


@pytest.mark.timeout(240)
def test_a_full_disk_refuses_writes_and_nothing_else_until_there_is_room(site, chance, times):
    disk, run = site

    def fill():
        before = _refusals(run.broker)
        disk.limit(_used(disk.mountpoint))
        wait_until(lambda: _refusals(run.broker) > before, 60, "the broker refuses writes")
        writers = [worker for worker in run.workers if worker.name.endswith(("writer", "-1", "-2"))]
        wait_until(lambda: _stalled(writers), 60, "every write is refused", seen=lambda: [one.done for one in writers])
        disk.limit(None)

    for _ in range(times):
        run.run(fill, chance, raises_epoch=False)  # it does where a sync failed, and not where writes were refused
        run.run(lambda: disk.cut(run.broker), chance)
    run.finish()


def _used(directory):
    used = 0
    for folder, folders, files in os.walk(directory):  # it leaves out a folder that goes meanwhile
        for name in [*folders, *files]:
            with suppress(FileNotFoundError):  # the broker removes files meanwhile
                used += os.stat(os.path.join(folder, name)).st_size
    return used


def _refusals(broker):
    return broker.log_path.read_text().count("writes are refused")


def _stalled(writers):
    """Whether none is answered for a second, which is long beside their retries."""
    before = [writer.done for writer in writers]
    time.sleep(1)
    return before == [writer.done for writer in writers]


def test_a_segment_that_cannot_be_read_costs_its_own_records_alone(tmp_path):
    with FuseDisk(tmp_path) as disk:
        broker = EdgeBroker(tmp_path, data_dir=disk.mountpoint / "data", settings={"log.segment.bytes": 16384})
        with broker:
            create_topic(broker.bootstrap, TOPIC)
            producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
            for number in range(RECORDS):
                producer.produce(TOPIC, b"%d" % number * 50)
                assert producer.flush(CALL_S) == 0
            disk.cut(broker, keep=True)  # what is read from now on is read from the disk
            bad, behind = sorted(int(path.stem) for path in (broker.data_dir / f"{TOPIC}-0").glob("*.log"))[1:3]
            disk.fault(["read"], rf"^/data/{TOPIC}-0/{bad:020}\.log$", error="EIO")
            broker.start()
            found = [read.offset for read in read_topic(broker.bootstrap, TOPIC)]
            assert disk.state()["struck"][0] > 0
            assert found == [*range(bad), *range(behind, RECORDS)]
            prove_ledger(broker)
