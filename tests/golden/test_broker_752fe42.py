"""Data directories that the broker at 752fe42 wrote are opened: nothing is lost, and all that it said of them is said.

Of each directory in `broker_752fe42` there is what the commands and consumers of 752fe42 themselves found in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.command import edge_broker_run
from tests.support.golden import GOLDEN, differences, expected, unpacked
from tests.support.processes import EdgeBroker, wait_until
from tests.support.raw_client import connected
from tests.support.record_batches import make_batch
from tests.support.waiting import CALL_S

DIRECTORY = GOLDEN / "broker_752fe42"
FOREVER = {"log.retention.ms": -1, "producer.id.expiration.ms": 2_147_483_647}
BEGIN_MS = 1_764_000_000_000
OF_NOW = {"behind_ms", "host", "port", "internal"}  # `internal`: the ledger's topic is said to be, by now
run = pytest.fixture(edge_broker_run)


@pytest.fixture
def data(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack one of the directories."""
    return lambda name: unpacked(DIRECTORY / f"{name}.tar.xz", tmp_path / name)


@contextmanager
def served(directory: Path, **settings: str | int) -> Iterator[EdgeBroker]:
    with EdgeBroker(directory.parent, data_dir=directory, settings={**FOREVER, **settings}) as broker:
        yield broker


def read(bootstrap: str, topic: str, partition: int = 0) -> list[Any]:
    """Each record as offset, timestamp, its type, key, value, headers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader-of-now", "enable.auto.commit": False})
    place = TopicPartition(topic, partition)
    found: list[Any] = []
    try:
        low, high = consumer.get_watermark_offsets(place, timeout=CALL_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        wait_until(lambda: _took(consumer, place, found) >= high, 20, f"{topic}-{partition} read to {high}")
    finally:
        consumer.close()
    return found


def _took(consumer: Consumer, place: TopicPartition, found: list[Any]) -> int:
    for one in consumer.consume(1000, timeout=0.05):
        assert one.error() is None
        kind, time_ms = one.timestamp()
        value = None if one.value() is None else one.value().decode()
        headers = [[name, data.decode()] for name, data in one.headers() or []]
        found.append([one.offset(), time_ms, kind, one.key().decode(), value, headers])
    return int(consumer.position([place])[0].offset)


def all_of(bootstrap: str, then: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: read(bootstrap, *_place(name)) for name in then["records"]}


def _place(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


@pytest.mark.parametrize("name", ["clean", "cut", "recovered", "swapping", "deleting"])
def test_commands_find_in_a_stopped_directory_what_they_found(
    data: Callable[[str], Path], run: Callable[..., Any], name: str
) -> None:
    directory = data(name)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    for words, then in expected(DIRECTORY / f"{name}.json", directory)["stopped"].items():
        now = run(*words.split(), "--data-dir", directory, "--json").rows
        assert differences(then, now, {"last_recovery"}) == [], words  # its sentences name files where they were then
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_a_directory_left_by_a_clean_stop_is_served_as_it_was(
    data: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    directory = data("clean")
    then = expected(DIRECTORY / "clean.json", directory)
    with served(directory) as broker:
        assert all_of(broker.bootstrap, then) == then["records"]
        for words, rows in then["served"].items():
            now = run(*words.split(), "--bootstrap", broker.bootstrap, "--json").rows
            assert differences(rows, now, OF_NOW) == [], words
        log = broker.log_path.read_text()
    assert "unclean=False read_bytes=0" in log
    assert "recovery" not in log


def test_it_goes_on_where_it_stopped(data: Callable[[str], Path]) -> None:
    """Offsets, producers that come again with the same batch, ids that were given, and epochs."""
    with served(data("clean")) as broker, connected(broker.bootstrap) as client:
        # The producer with id 5 sent 20 records from sequence 0 on, at offset 100; it sends them again.
        again = [(b"key", b"value", BEGIN_MS)] * 20
        answer = client.produce("readings", make_batch(again, producer=(5, 0, 0)))
        assert (answer.error_code, answer.base_offset) == (0, 100)
        answer = client.produce("readings", make_batch(again[:1], producer=(5, 0, 20)))
        assert (answer.error_code, answer.base_offset) == (0, 120)
        assert client.end_offset("readings") == 121


def test_a_cut_in_the_middle_of_an_append_costs_what_was_not_synced_alone(
    data: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    directory = data("cut")
    then = expected(DIRECTORY / "cut.json", directory)
    with served(directory) as broker:
        assert all_of(broker.bootstrap, then) == then["records"]
        for words, rows in then["served"].items():
            now = run(*words.split(), "--bootstrap", broker.bootstrap, "--json").rows
            assert differences(rows, now, OF_NOW) == [], words
        now = run("ledger", "--data-dir", directory, "--json").rows
    assert differences(then["ledger after"], now, {"time_ms", "boot_id", "clock"}) == []
    assert (directory / "interval-0" / f"{0:020}.cut-1").stat().st_size == 911


def test_quarantined_ranges_and_losses_stay_what_they_were(
    data: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    directory = data("recovered")
    then = expected(DIRECTORY / "recovered.json", directory)
    with served(directory) as broker:
        assert all_of(broker.bootstrap, then) == then["records"]
        now = run("ledger", "--data-dir", directory, "--json").rows
    assert differences(then["stopped"]["ledger"], now) == []


def test_a_compacted_segment_takes_its_place_at_the_next_start(data: Callable[[str], Path]) -> None:
    directory = data("swapping")
    then = expected(DIRECTORY / "swapping.json")
    with served(directory) as broker:
        assert all_of(broker.bootstrap, then) == then["records"]
        assert {one[3]: one for one in read(broker.bootstrap, "state")} == then["latest"]
    assert not (directory / "state-0" / "swap").exists()
    assert not [*directory.rglob("*.cleaned")]


def test_a_deletion_that_was_decided_is_finished(data: Callable[[str], Path], run: Callable[..., Any]) -> None:
    directory = data("deleting")
    then = expected(DIRECTORY / "deleting.json")
    with served(directory) as broker:
        assert all_of(broker.bootstrap, then) == then["records"]
        for words, rows in then["served"].items():
            now = run(*words.split(), "--bootstrap", broker.bootstrap, "--json").rows
            assert differences(rows, now, OF_NOW) == [], words
        wait_until(lambda: not [*(directory / "deleted").iterdir()], 10, "the topic's files gone")
    assert not (directory / "gone-0").exists()
