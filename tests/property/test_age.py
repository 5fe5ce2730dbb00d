"""Random lives of a board, its clock wrong or right, its power cut or not: age against true time."""

from __future__ import annotations

import random
import uuid

import pytest

from edge_broker.clock import Reading
from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import build_batch, check_batch
from edge_broker.storage.files.data_age import KEPT_MS, STEP_MS, Age
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.testing.disk import SimulatedDisk

YEAR = 365 * 86_400_000
LIVES = 40
STEPS = 120


class Board:
    """True time in ms since the directory was made, a wall clock with an error, and what the broker does with both."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.true_ms = 0
        self.boots = 0
        self.booted_ms = 0
        self.error_ms = 0
        self.trusted = False
        self.verified = True
        self.age = Age()
        self.kept: Age | None = None
        self.boot()

    def boot(self) -> None:
        """Power comes back, the clock says something."""
        self.boots += 1
        self.booted_ms = self.true_ms
        self.set_clock()
        self.age = (self.kept or Age()).with_reading(self.reading())

    def set_clock(self) -> None:
        self.trusted = self.random.random() < 0.3
        self.error_ms = 0 if self.trusted else self.random.choice((0, -YEAR, YEAR, self.random.randrange(-YEAR, YEAR)))

    def reading(self) -> Reading:
        wall_ms = 1_700_000_000_000 + self.true_ms + self.error_ms
        return Reading(str(self.boots), self.true_ms - self.booted_ms, wall_ms, self.trusted, self.verified)

    def step(self) -> None:
        """One random event, checked."""
        what = self.random.randrange(6)
        if what == 0:
            self.set_clock()
        elif what == 1:
            self.power_off(kept=self.random.random() < 0.5)
        else:
            self.true_ms += self.random.choice((1, 10_000, 3_600_000, 7 * 86_400_000))
        before = self.age
        self.check_now()
        self.age = before.with_reading(self.reading())
        self.check(before)
        if self.age.worth_keeping(self.kept) and self.random.random() < 0.8:
            self.kept = self.age

    def power_off(self, *, kept: bool) -> None:
        """A clean stop keeps the age, a cut what the file said; then nothing counts until the next boot."""
        if kept:
            self.kept = self.age.with_reading(self.reading())
        self.true_ms += self.random.randrange(30 * 86_400_000)
        self.boot()

    def check_now(self) -> None:
        now = self.age.now(self.reading()._replace(trusted=True))  # what the last look said may be out of date
        assert now.age_ms <= self.true_ms
        assert not now.trusted or abs(self.error_ms) <= STEP_MS, "a wrong clock was trusted"

    def check(self, before: Age) -> None:
        age = self.age
        assert before.age_ms <= age.age_ms <= self.true_ms
        if not self.trusted or not before.known_boot_id:
            return
        known_true_ms = before.known_wall_ms - 1_700_000_000_000
        assert age.age_ms - before.known_age_ms >= self.true_ms - known_true_ms, "time that is known was not counted"


@pytest.mark.parametrize("seed", range(LIVES))
def test_age_is_never_ahead_of_true_time_and_knows_what_can_be_known(seed: int) -> None:
    board = Board(seed)
    for _ in range(STEPS):
        board.step()


class Site(Board):
    """A board with a log whose segments hold a batch or two each; retention as the broker applies it."""

    retention_ms = 20 * 86_400_000

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.store: LogStore | None = None
        self.written_true_ms: list[int] = []
        self.sure_true_ms: list[int] = []  # when the clock was next trusted, the record's own time if it was then
        super().__init__(seed)

    def boot(self) -> None:
        """The broker starts on what the disk has."""
        super().boot()
        self.store = LogStore.open(self.disk, "/data", LogSettings(), self.reading(), uuid.uuid4)
        if "t" not in self.store.topics:
            config = {"segment.ms": "1", "retention.ms": str(self.retention_ms)}
            self.store.add_topic(self.store.topic_files.make_topic("t", 1, config, uuid.uuid4()))
        self.age = self.store.directory.age

    def power_off(self, *, kept: bool) -> None:
        """A clean stop or a cut."""
        assert self.store is not None
        self.store.directory.advance_age(self.reading())
        if kept:
            self.store.close()
            self.disk.kill()
        else:
            self.disk.crash()
            del self.sure_true_ms[-1:]  # a segment that was open counts as written when it is found again
            while self.sure_true_ms and self.written_true_ms[len(self.sure_true_ms) - 1] >= self.true_ms - KEPT_MS:
                self.sure_true_ms.pop()  # the cut takes these ages back, they may be given once more
        self.true_ms += self.random.randrange(30 * 86_400_000)
        self.boot()

    def step(self) -> None:
        """One random event; a record comes, retention is applied, and both are checked."""
        if self.random.randrange(6) == 0:
            self.power_off(kept=self.random.random() < 0.5)
        else:
            self.true_ms += self.random.choice((10_000, 3_600_000, 86_400_000))
        if self.random.randrange(4) == 0:
            self.set_clock()
        assert self.store is not None
        self.store.directory.advance_age(self.reading())
        if self.trusted:
            self.sure_true_ms += [self.true_ms] * (len(self.written_true_ms) - len(self.sure_true_ms))
        self.store.checkpoint()
        self.append()
        self.apply_retention()

    def append(self) -> None:
        """A record whose producer's clock is anywhere, as far as it is not known to be right."""
        assert self.store is not None
        log = self.store.topics["t"].partitions[0]
        del self.written_true_ms[log.log_end_offset :], self.sure_true_ms[log.log_end_offset :]
        now = self.store.directory.age.now(self.reading())
        wrong = self.random.choice((-1, 0, 5_000, now.wall_ms + YEAR, 1_000_000_000_000))
        timestamp_ms = self.random.choice((wrong, 1_700_000_000_000 + self.true_ms))
        records = memoryview(bytearray(build_batch([(None, b"x")], timestamp_ms=timestamp_ms)))
        header = check_batch(records, 1 << 20)
        try:
            log.writer.append(records, header, now)
        except RollDue:
            log.roller.roll()
            log.writer.end_roll()
            single_node_watermark.advance_high_watermark(log.state)
            log.writer.append(records, header, now)
        flush = log.writer.begin_flush()
        assert flush is not None
        flush.run()
        log.writer.finish_flush(flush)
        single_node_watermark.advance_high_watermark(log.state)
        self.written_true_ms.append(self.true_ms)
        if now.trusted:
            self.sure_true_ms.append(self.true_ms)

    def apply_retention(self) -> None:
        """Nothing young goes; what is old by known time goes."""
        assert self.store is not None
        log = self.store.topics["t"].partitions[0]
        start, now = log.log_start_offset, self.store.directory.age.now(self.reading())
        delete_expired(log, now)
        for offset in range(start, log.log_start_offset):
            assert self.true_ms - self.written_true_ms[offset] > self.retention_ms, f"offset {offset} was young"
        age = self.store.directory.age
        if self.trusted and len(log.segments) > 1:
            unknown_ms = self.true_ms - age.age_ms  # what no trusted clock ever told, and no more
            oldest_ms = self.true_ms - self.sure_true_ms[log.segments[1].base_offset - 1]
            assert oldest_ms <= self.retention_ms + unknown_ms, "what is past its retention by known time was kept"


@pytest.mark.parametrize("seed", range(LIVES))
def test_retention_deletes_nothing_young_and_all_that_is_known_to_be_old(seed: int) -> None:
    site = Site(seed)
    for _ in range(STEPS):
        site.step()


class LyingSite(Site):
    """The clock is always believed: right at first in each boot, or as far behind as before; then it steps anywhere."""

    def set_clock(self) -> None:
        self.trusted = True
        if self.booted_ms == self.true_ms:  # a step that is the first reading of a boot looks like time without power
            keeps = self.boots > 1 and self.error_ms < 0 and self.age.stepped_ms and self.random.random() < 0.5
            self.error_ms = self.error_ms if keeps else 0
        else:
            self.error_ms = self.random.choice((0, -10 * YEAR, 10 * YEAR, self.random.randrange(-YEAR, YEAR)))

    def apply_retention(self) -> None:
        """Nothing goes that is on the disk for less than its retention."""
        assert self.store is not None
        log = self.store.topics["t"].partitions[0]
        start = log.log_start_offset
        delete_expired(log, self.store.directory.age.now(self.reading()))
        assert self.store.directory.age.age_ms <= self.true_ms
        for offset in range(start, log.log_start_offset):
            assert self.true_ms - self.written_true_ms[offset] > self.retention_ms, f"offset {offset} was young"


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_believed_clock_that_steps_within_boots_makes_nothing_old(seed: int) -> None:
    site = LyingSite(seed)
    for _ in range(STEPS):
        site.step()


class WrongChipSite(LyingSite):
    """The configuration alone trusts the clock, which may be ten years ahead from a boot on, until somebody sets it."""

    def set_clock(self) -> None:
        super().set_clock()
        self.verified = False
        begins = self.booted_ms == self.true_ms
        is_known = not begins and self.age.known_boot_id == str(self.boots)
        if self.boots > 1 and not is_known and not (begins and self.error_ms < 0):
            self.error_ms = self.random.choice((0, 10 * YEAR))


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_clock_chip_that_is_years_ahead_makes_nothing_old(seed: int) -> None:
    site = WrongChipSite(seed)
    for _ in range(STEPS):
        site.step()
