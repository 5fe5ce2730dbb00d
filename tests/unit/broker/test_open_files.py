"""The loop opens no file: what is not open is read by the reader and written by the writer, and stays open then."""

from __future__ import annotations

import pytest

from edge_broker.protocol.api import FETCH, PRODUCE
from edge_broker.storage.segment.open_file_cache import FILES_MAX, FILES_MIN, OpenFiles
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import Site
from edge_broker.testing.worker import HandWorker
from tests.support.storage import batch, fill, read_all
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_produce import part, produce


class Opens:
    """A site's disk that says on which thread a file is opened: a worker's name, or `loop`."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by: list[str] = []
        self._on = "loop"
        disk_open = site.disk.open

        def noted(path: str) -> object:
            self.by.append(self._on)
            return disk_open(path)

        monkeypatch.setattr(site.disk, "open", noted)
        for name, worker in site.workers.items():
            monkeypatch.setattr(worker, "work", self._named(name, worker))

    def _named(self, name: str, worker: HandWorker) -> object:
        work = worker.work

        def work_on() -> None:
            self._on = name
            try:
                work()
            finally:
                self._on = "loop"

        return work_on


def test_a_fetch_of_a_file_that_is_not_open_goes_to_the_reader_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    logs = site.topic(partitions=3)
    for log in logs:
        fill(log, 2)
        log.close_files()
    opens = Opens(site, monkeypatch)
    client = site.client()
    everything = fetch(*(("t", index, 0) for index in range(3)))
    client.send(FETCH, everything, BY_NAME)
    assert client.answers() == []
    site.run_until_idle()
    assert client.answer() is not None
    assert set(opens.by) == {"reader"}
    before = len(opens.by)
    client.send(FETCH, everything, BY_NAME)
    assert client.answer() is not None
    assert len(opens.by) == before


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_for_a_file_that_is_not_open_goes_to_the_writer_once(
    monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    site = Site()
    (log,) = site.topic()
    written = fill(log, 2)
    log.close_files()
    opens = Opens(site, monkeypatch)
    client = site.client()
    offsets = []
    for value in (b"a", b"b", b"c"):
        client.send(PRODUCE, produce(("t", 0, batch(value)), acks=acks))
        site.run_until_idle()
        offsets.append(part(client.answer()).base_offset)
    assert offsets == [2, 3, 4]
    assert opens.by == ["writer"]
    assert read_all(log)[:2] == written
    assert not site.broker.throttle.slow, "a file that had to be opened says nothing about the disk"


@pytest.mark.leaves("EIO")
def test_a_file_that_cannot_be_opened_takes_its_partition_offline_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    first, second = site.topic(partitions=2)
    for log in (first, second):
        fill(log, 1)
        log.close_files()
    disk_open = site.disk.open

    def refuse(path: str) -> object:
        if "/t-0/" in path:
            raise OSError(5, "EIO", path)
        return disk_open(path)

    monkeypatch.setattr(site.disk, "open", refuse)
    client = site.client()
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), ("t", 1, batch(b"a")), acks=1))
    site.workers["writer"].step()
    site.workers["writer"].step()
    assert first.fault is not None
    assert (second.fault, second.log_end_offset) == (None, 2)


@pytest.mark.parametrize(
    ("limit", "kept"), [(20, FILES_MIN), (1024, 512), (65_536, FILES_MAX), (FILES_MAX * 2 + 2, FILES_MAX)]
)
def test_as_many_stay_open_as_half_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, kept: int) -> None:
    disk = SimulatedDisk(1)
    monkeypatch.setattr(disk, "files_max", lambda: limit)
    assert OpenFiles(disk)._files_max == kept
