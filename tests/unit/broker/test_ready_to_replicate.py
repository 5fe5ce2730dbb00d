"""What a follower will need, held by the log as it is: leader epochs, topic ids, producers, and where logs diverge."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import FETCH, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_record import encode_partition_metadata
from edge_broker.testing.site import Site
from tests.support.storage import append, batch, fill, read_all, sync
from tests.unit.broker.test_fetch import BY_NAME, fetch, parts
from tests.unit.broker.test_produce import KERNEL, SMALL, code, part, produce

CHECKPOINT = "/data/t-0/leader-epoch-checkpoint"


def log_of(site: Site) -> PartitionLog:
    return site.store.topics["t"].partitions[0]


def batches_of(log: PartitionLog) -> list[tuple[int, int, int]]:
    """(epoch, base offset, end offset) of every batch that is shown."""
    headers = [read_header(one) for one in read_all(log, 1 << 20)]
    return [(header.leader_epoch, header.base_offset, header.next_offset) for header in headers]


def starts_of(batches: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Where each epoch began, by the batches alone."""
    found: dict[int, int] = {}
    for epoch, base_offset, _ in batches:
        found.setdefault(epoch, base_offset)
    return list(found.items())


def with_history(*, last: str = "stop") -> Site:
    """Four epochs, each some segments long; the last stop is clean or a kill."""
    site = Site()
    fill(site.topic(config=SMALL)[0], 30)
    for how in ("kill", "cut", "kill"):
        site = site.reopen(how)
        fill(log_of(site), 30)
    return site.reopen(last)


# leader epochs


def test_every_batch_and_the_checkpoint_have_the_leader_epoch() -> None:
    site = with_history()
    batches = batches_of(log_of(site))
    assert [epoch for epoch, *_ in batches] == [0] * 30 + [1] * 30 + [2] * 30 + [3] * 30
    lines = site.disk.content(CHECKPOINT).decode().splitlines()[1:]
    assert lines == [f"{epoch} {start}" for epoch, start in starts_of(batches)] == ["0 0", "1 30", "2 60", "3 90"]


@pytest.mark.parametrize("last", ["stop", "kill", "cut"])
@pytest.mark.parametrize("loss", ["removed", "damaged"])
def test_a_lost_checkpoint_is_made_again_from_the_batches(last: str, loss: str) -> None:
    site = with_history(last=last)
    site.store.close()
    site.disk.kill()
    if loss == "removed":
        site.disk.remove(CHECKPOINT)
        site.disk.sync_directory("/data/t-0")
    else:
        site.disk.flip(CHECKPOINT, 40)
    again = Site(disk=site.disk)
    log = log_of(again)
    assert [log.reader.epoch_end(epoch) for epoch in range(4)] == [(0, 30), (1, 60), (2, 90), (3, 120)]
    fill(log, 1)
    again.store.close()
    assert again.disk.content(CHECKPOINT).decode().splitlines()[1:5] == ["0 0", "1 30", "2 60", "3 90"]


# topic ids


@pytest.mark.leaves("names topic id")
def test_a_directory_of_another_topic_id_is_refused_and_not_touched() -> None:
    site = Site()
    fill(site.topic()[0], 3)
    site.store.close()
    assert site.disk.content("/data/t-0/partition.metadata") == encode_partition_metadata(
        site.store.topics["t"].topic_id
    )
    site.disk.put("/data/t-0/partition.metadata", encode_partition_metadata(uuid.UUID(int=7)))
    before = {name: site.disk.content(f"/data/t-0/{name}") for name in site.disk.names("/data/t-0")}
    again = site.reopen("kill")
    answer = again.client().ask(FETCH, fetch(("t", 0, 0)), BY_NAME)
    assert parts(answer)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert code(again.client().ask(PRODUCE, produce(("t", 0, batch())), 9)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "does not name topic id" in str(log_of(again).fault)
    assert {name: again.disk.content(f"/data/t-0/{name}") for name in again.disk.names("/data/t-0")} == before


# producers


@pytest.mark.leaves("the snapshot is torn or damaged")
@pytest.mark.parametrize("last", ["stop", "kill"])
@pytest.mark.parametrize("loss", ["removed", "damaged"])
def test_producers_are_made_again_from_the_log_when_snapshots_are_lost(last: str, loss: str) -> None:
    site = Site()
    (log,) = site.topic(config=SMALL)
    for number in range(60):
        append(log, batch(b"x" * 90, producer=(7, 2, number)))
        append(log, batch(b"y" * 90, producer=(8, 0, number)))
    sync(log)
    if last == "stop":
        site.store.close()
    site.disk.kill()
    snapshots = [name for name in site.disk.names("/data/t-0") if name.endswith(".snapshot")]
    assert snapshots
    for name in snapshots:
        if loss == "removed":
            site.disk.remove(f"/data/t-0/{name}")
        else:
            site.disk.flip(f"/data/t-0/{name}", 20)
    site.disk.sync_directory("/data/t-0")
    client = Site(disk=site.disk).client()
    for producer, epoch, offset in ((7, 2, 118), (8, 0, 119)):
        value = b"x" * 90 if producer == 7 else b"y" * 90
        again = client.ask(PRODUCE, produce(("t", 0, batch(value, producer=(producer, epoch, 59)))), 9)
        assert (code(again), part(again).base_offset) == (ErrorCode.NONE, offset)
        gap = client.ask(PRODUCE, produce(("t", 0, batch(value, producer=(producer, epoch, 61)))), 9)
        assert code(gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = client.ask(PRODUCE, produce(("t", 0, batch(b"x", producer=(7, 1, 0)))), 9)
    assert code(old) == ErrorCode.INVALID_PRODUCER_EPOCH


# where epochs ended


def ask_epoch(site: Site, epoch: int, current: int = -1) -> Any:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    return site.client().ask(OFFSET_FOR_LEADER_EPOCH, request).topics[0].partitions[0]


def end_by_the_rules(batches: list[tuple[int, int, int]], epoch: int, current: int, end: int) -> tuple[int, int]:
    """KIP-101 and KIP-279, by the batches: the greatest epoch up to the one asked for, and where the next begins."""
    if epoch < 0 or epoch > current:
        return -1, -1
    if epoch == current:
        return current, end
    later = [base_offset for known, base_offset, _ in batches if known > epoch]
    known = [one for one, *_ in batches if one <= epoch]
    return (max(known) if known else epoch), (min(later) if later else end)


@pytest.mark.parametrize("seed", range(8))
def test_ends_of_epochs_after_unclean_starts_with_truncated_tails(seed: int) -> None:
    chance = random.Random(seed)
    site = Site()
    site.topic(config=SMALL | (KERNEL if seed % 2 else {}))
    for _ in range(6):
        log = log_of(site)
        for _ in range(chance.randrange(12)):
            append(log, batch(chance.randbytes(chance.randrange(1, 900))))
            if chance.random() < 0.3:
                sync(log)
        site = site.reopen(chance.choice(["cut", "cut", "kill", "stop"]))
    log = log_of(site)
    batches = batches_of(log)
    current = log.leader_epoch
    for epoch in range(-1, current + 2):
        answer = ask_epoch(site, epoch)
        expected = end_by_the_rules(batches, epoch, current, log.high_watermark)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected), epoch
    assert ask_epoch(site, 0, current + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    if current > 0:
        assert ask_epoch(site, 0, current - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH


# a follower


class Follower:
    """A replica as KIP-595 scripts it: fetches with its last epoch, truncates where it is told that logs diverge."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.truncations = 0

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    @property
    def epoch(self) -> int:
        return read_header(self.batches[-1]).leader_epoch if self.batches else -1

    def pull(self, site: Site, bytes_max: int) -> bool:
        """One fetch; False when there was nothing to learn."""
        request = fetch(("t", 0, self.end), partition_max_bytes=bytes_max, last_fetched_epoch=self.epoch)
        answer = parts(site.client().ask(FETCH, request, BY_NAME))[0]
        assert answer.error_code == 0, answer
        diverging = answer.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            self.truncate(diverging.epoch, diverging.end_offset)
            return True
        found = [bytes(one) for one in whole_batches(answer.records)]
        self.batches += found
        return bool(found)

    def truncate(self, epoch: int, end_offset: int) -> None:
        """To the end that both logs have of the greatest epoch that both know."""
        before = len(self.batches)
        ours = [read_header(one).next_offset for one in self.batches if read_header(one).leader_epoch <= epoch]
        end = min(end_offset, max(ours, default=0))
        self.batches = [one for one in self.batches if read_header(one).next_offset <= end]
        assert len(self.batches) < before, "told to truncate, and nothing was to be truncated: it would ask forever"
        self.truncations += 1

    def catch_up(self, site: Site) -> None:
        for _ in range(500):
            if not self.pull(site, 1 << 20):
                return
        raise AssertionError("the follower does not come to an end")


def follow(seed: int, config: dict[str, str]) -> tuple[Site, Follower]:
    """A leader that is cut again and again, and a follower that lags behind it."""
    chance = random.Random(seed)
    site = Site()
    site.topic(config=SMALL | config)
    follower = Follower()
    for _ in range(8):
        log = log_of(site)
        for _ in range(chance.randrange(1, 10)):
            append(log, batch(chance.randbytes(chance.randrange(1, 700))))
            if chance.random() < 0.2:
                sync(log)
            if chance.random() < 0.5:
                follower.pull(site, chance.choice([1, 1000, 1 << 20]))
        site.run_until_idle()
        site = site.reopen(chance.choice(["cut", "cut", "kill", "stop"]))
    return site, follower


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_of_a_synced_topic_never_has_to_truncate(seed: int) -> None:
    site, follower = follow(seed, {})
    follower.catch_up(site)
    assert follower.truncations == 0
    assert follower.batches == [bytes(one) for one in read_all(log_of(site), 1 << 20)]


def test_a_follower_of_a_topic_left_to_the_kernel_truncates_and_ends_with_the_leaders_bytes() -> None:
    truncations = 0
    for seed in range(40):
        site, follower = follow(seed, KERNEL)
        append(log_of(site), batch(b"the end"))
        follower.catch_up(site)
        assert follower.batches == [bytes(one) for one in read_all(log_of(site), 1 << 20)], seed
        truncations += follower.truncations
    assert truncations > 20, "the histories above must make logs diverge"
