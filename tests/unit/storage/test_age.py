"""Elapsed time on boards whose clock cannot be believed: the table in files/data_age.py's head, line by line."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.clock import Reading, SystemClock
from edge_broker.configuration.config import read_config
from edge_broker.configuration.settings import LogSettings
from edge_broker.protocol.record_batch import build_batch, read_header
from edge_broker.storage.files.data_age import (
    DRIFT_MS,
    GRACE_MS,
    JUMPS_MAX,
    KEPT_MS,
    OFF_MS_MAX,
    STEPS_BACK_MAX,
    TIMESTAMP_MIN_MS,
    Age,
    Now,
    StepBack,
    age_of,
    age_written,
)
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.log_cleaner import youngest
from edge_broker.storage.retention.segment_removal import delete_expired
from edge_broker.storage.segment.segment_summary import LastWrite, Summary
from edge_broker.testing.clock import NOW_MS, reading_at
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, READING, batch, open_store, time_at

HOUR = 3_600_000
DAY = 24 * HOUR
YEAR = 365 * DAY
WALL = 1_700_000_000_000


def reading(boot: str, boot_ms: int, wall_ms: int = WALL, *, trusted: bool = False, verified: bool = True) -> Reading:
    return Reading(boot, boot_ms, wall_ms, trusted, verified)


def by_chip(boot: str, boot_ms: int, wall_ms: int) -> Reading:
    """A clock that the configuration trusts and no time service keeps."""
    return reading(boot, boot_ms, wall_ms, trusted=True, verified=False)


def aged(*readings: Reading) -> int:
    age = Age()
    for one in readings:
        age = age.with_reading(one)
    return age.age_ms


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("jump", [0, YEAR, -YEAR])
def test_within_a_boot_only_monotonic_time_counts(jump: int, trusted: bool) -> None:
    first = reading("a", 5_000, trusted=trusted)
    assert aged(first, reading("a", 9_000, WALL + jump, trusted=trusted)) == 4_000
    assert aged(first, reading("a", 9_000, WALL + jump, trusted=not trusted)) == 4_000


def test_monotonic_time_that_goes_back_counts_as_none() -> None:
    assert aged(reading("a", 9_000), reading("a", 5_000), reading("a", 6_000)) == 1_000


@pytest.mark.parametrize("wall", [WALL + YEAR, WALL - YEAR])
def test_an_untrusted_clock_tells_nothing_about_the_time_without_power(wall: int) -> None:
    before = reading("a", 1_000, trusted=True), reading("a", 2_000, WALL + 1_000, trusted=True)
    assert aged(*before, reading("b", 50_000, wall), reading("b", 51_000, wall)) == 2_000


def test_time_without_power_counts_once_the_clock_is_trusted() -> None:
    before = reading("a", 1_000, trusted=True), reading("a", 2_000, WALL + 1_000)
    boots = reading("b", 0), reading("b", 3_000), reading("c", 0), reading("c", 500, WALL + YEAR)
    assert aged(*before, *boots) == 4_500
    assert aged(*before, *boots, reading("c", 600, WALL + DAY, trusted=True)) == DAY
    last = reading("c", 600, WALL + DAY, trusted=True), reading("c", 700, WALL + 2 * DAY, trusted=True)
    assert aged(*before, *boots, *last) == DAY + 100


def test_time_without_power_before_the_first_trusted_reading_is_never_known() -> None:
    assert aged(reading("a", 0), reading("a", 10), reading("b", 0, WALL + YEAR, trusted=True)) == 10


def test_a_trusted_clock_that_went_back_takes_nothing_away() -> None:
    assert aged(reading("a", 0, trusted=True), reading("a", 70), reading("b", 0, WALL - YEAR, trusted=True)) == 70


def test_a_wall_clock_that_was_set_is_not_trusted_before_it_was_looked_at() -> None:
    age = Age().with_reading(reading("a", 0, trusted=True))
    assert age.now(reading("a", 400, WALL + 900, trusted=True)) == Now(WALL + 900, 400, True, "a")
    assert not age.now(reading("a", 400, WALL + YEAR, trusted=True)).trusted
    assert not age.now(reading("a", 400, WALL - YEAR, trusted=True)).trusted
    set_now = reading("a", 500, WALL + 500 + DRIFT_MS, trusted=True)
    assert age.with_reading(set_now).now(set_now).trusted
    assert not Age().with_reading(reading("a", 0)).now(reading("a", 1, trusted=True)).trusted


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (WALL - DAY, NOW.age_ms - DAY),
        (WALL + HOUR, NOW.age_ms),
        (WALL + HOUR + 1, NOW.age_ms),
        (-1, NOW.age_ms),
        (0, NOW.age_ms),
        (TIMESTAMP_MIN_MS - 1, NOW.age_ms),
        (TIMESTAMP_MIN_MS, NOW.age_ms - (WALL - TIMESTAMP_MIN_MS)),
    ],
)
def test_a_timestamp_counts_only_within_trusted_time(timestamp: int, expected: int) -> None:
    assert age_written(NOW, timestamp) == expected
    assert age_written(NOW._replace(trusted=False), timestamp) == NOW.age_ms


def test_the_files_line_says_it_all() -> None:
    for age in (Age().with_reading(reading("a", 5)), Age().with_reading(reading("a", 5, trusted=True))):
        assert age_of([line.split(" ") for line in age.lines()]) == age
    with pytest.raises(ValueError, match="values to unpack"):
        age_of([])


def test_it_is_kept_when_trust_comes_a_boot_begins_and_now_and_then() -> None:
    first = Age().with_reading(reading("a", 0))
    assert first.worth_keeping(None)
    assert not first.with_reading(reading("a", KEPT_MS - 1)).worth_keeping(first)
    assert first.with_reading(reading("a", KEPT_MS)).worth_keeping(first)
    trusted = first.with_reading(reading("a", 1, trusted=True))
    assert trusted.worth_keeping(first)
    assert not trusted.with_reading(reading("a", 2)).worth_keeping(trusted)
    assert first.with_reading(reading("b", 0)).worth_keeping(first)


def test_the_store_goes_on_where_it_stopped() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    store.directory.advance_age(reading_at(NOW_MS + 7_000))
    store.close()
    disk.crash()
    again = LogStore.open(disk, "/data", LogSettings(), reading_at(NOW_MS + 9_000), uuid.uuid4)
    assert again.directory.age.age_ms == 9_000
    again.close()
    disk.kill()
    other_boot = READING._replace(boot_id="other", wall_ms=NOW_MS + DAY)
    assert LogStore.open(disk, "/data", LogSettings(), other_boot, uuid.uuid4).directory.age.age_ms == DAY


def test_a_checkpoint_writes_the_age_only_when_it_is_worth_it() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    store.checkpoint()
    steps = disk.steps
    store.directory.advance_age(reading_at(NOW_MS + KEPT_MS - 1))
    store.checkpoint()
    assert disk.steps == steps
    store.directory.advance_age(reading_at(NOW_MS + KEPT_MS))
    store.checkpoint()
    assert disk.steps > steps
    disk.crash()
    assert open_store(disk).directory.age.age_ms == KEPT_MS


def test_a_damaged_age_begins_anew_and_is_noted() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    store.directory.advance_age(reading_at(NOW_MS + DAY))
    store.close()
    disk.kill()
    disk.flip("/data/age", 30)
    again = LogStore.open(disk, "/data", LogSettings(), reading_at(NOW_MS + DAY), uuid.uuid4)
    assert again.directory.age.age_ms == 0
    assert any("/data/age" in note and "longer" in note for note in again.recovery_notes)


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_a_jump_of_the_wall_clock_rolls_nothing_and_forgets_no_producer(jump: int) -> None:
    log = make_topic(open_store(SimulatedDisk(1)), config={"segment.ms": "60000"}).partitions[0]
    first, jumped = batch(b"a", producer=(7, 0, 0)), Now(NOW_MS + jump, 1_000, True, "boot")
    assert log.writer.append(first, read_header(first), NOW).base_offset == 0
    again = batch(b"a", producer=(7, 0, 0))
    assert log.writer.append(again, read_header(again), jumped).duplicate
    second = batch(b"b", producer=(7, 0, 1))
    log.writer.append(second, read_header(second), jumped)
    assert len(log.segments) == 1
    third = batch(b"c", producer=(7, 0, 2))
    with pytest.raises(RollDue):
        log.writer.append(third, read_header(third), time_at(NOW_MS + 60_001))


def test_the_systems_clocks() -> None:
    clock = SystemClock("true")
    first, second = clock.refresh(), clock.reading()
    assert first.trusted
    assert second.trusted
    assert first.boot_id == second.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < first.boot_ms <= second.boot_ms < first.boot_ms + 60_000
    assert not SystemClock("false").refresh().trusted
    assert not SystemClock().reading().trusted


@pytest.mark.parametrize("kept", [True, False])
def test_a_clock_that_the_configuration_trusts_is_verified_by_a_time_service_alone(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_broker.clock.kernel_clock.is_synchronised", lambda: kept)
    assert SystemClock("true").refresh()[-2:] == (True, kept)
    assert SystemClock("auto").refresh()[-2:] == (kept, kept)
    assert SystemClock("false").refresh()[-2:] == (False, False)


def test_where_the_boot_id_may_not_be_read_each_start_counts_as_a_boot(tmp_path) -> None:
    one, two = (SystemClock("auto", str(tmp_path / "hidden")).reading() for _ in range(2))
    assert one.boot_id
    assert two.boot_id not in ("", one.boot_id)


@pytest.mark.parametrize("told", [True, False])
def test_an_automatic_clock_asks_the_kernel(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock("auto")
    monkeypatch.setattr("edge_broker.clock.kernel_clock.is_synchronised", lambda: told)
    assert clock.refresh().trusted is told
    assert clock.reading().trusted is told

    def refused() -> bool:
        raise PermissionError

    monkeypatch.setattr("edge_broker.clock.kernel_clock.is_synchronised", refused)
    assert not clock.refresh().trusted


def test_trust_is_configured_as_text_or_as_a_truth_value() -> None:
    assert read_config(None, "", []).text("edge.clock.trusted") == "auto"
    assert read_config("[edge.clock]\ntrusted = false", "a.toml", []).text("edge.clock.trusted") == "false"
    assert read_config(None, "", ["edge.clock.trusted=true"]).text("edge.clock.trusted") == "true"
    with pytest.raises(ConfigurationError, match=r"edge.clock.trusted.*auto, true, false"):
        read_config(None, "", ["edge.clock.trusted=yes"])


def test_what_came_while_the_clock_was_wrong_is_never_taken_for_older_than_it_is() -> None:
    """Off for eight days, on again, a record before the time service has set the clock."""
    age = Age().with_reading(reading("a", 0, trusted=True)).with_reading(reading("b", 0, WALL - YEAR))
    written = age.now(reading("b", 1_000, WALL - YEAR)).age_ms
    age = age.with_reading(reading("b", 2_000, WALL + 8 * DAY, trusted=True))
    assert age.age_ms == 8 * DAY
    now = age.now(reading("b", 5_000, WALL + 8 * DAY + 3_000, trusted=True))
    assert now.elapsed_ms(written) == 4_000
    assert now.elapsed_ms(age.age_ms) == 3_000
    assert now.elapsed_ms(-5) == now.age_ms + 5
    assert age_of([line.split(" ") for line in age.lines()]) == age


def test_the_file_stays_small() -> None:
    age = Age().with_reading(reading("0", 0, trusted=True))
    for boot in range(1, 3 * JUMPS_MAX):
        age = age.with_reading(reading(str(boot), 0)).with_reading(
            reading(str(boot), 10, WALL + boot * DAY, trusted=True)
        )
    assert len(age.jumps) == JUMPS_MAX
    assert age.age_ms == (3 * JUMPS_MAX - 1) * DAY
    now = age.now(reading(str(boot), 10, WALL + boot * DAY, trusted=True))
    assert 0 <= now.elapsed_ms(0) <= now.age_ms
    assert now.elapsed_ms(age.age_ms - DAY + 5) == 5, "the newest are kept apart"


def after(*readings: Reading) -> Age:
    age = Age()
    for one in readings:
        age = age.with_reading(one)
        assert age_of([line.split(" ") for line in age.lines()]) == age
    return age


FIRST = reading("a", 0, trusted=True)


@pytest.mark.parametrize("jump", [10 * YEAR, -10 * YEAR, 2 * HOUR, -2 * HOUR])
def test_a_trusted_clock_that_steps_within_a_boot_makes_no_record_older_than_its_time_on_disk(jump: int) -> None:
    stepped = reading("a", 10_000, WALL + 10_000 + jump, trusted=True)
    age = after(FIRST, stepped)
    for later in (stepped, reading("a", 40 * DAY, WALL + 40 * DAY + jump, trusted=True)):
        age = age.with_reading(later)
        now = age.now(later)
        assert not now.trusted
        for timestamp_ms in (later.wall_ms - jump, later.wall_ms - HOUR, WALL - DAY):
            assert age_written(now, timestamp_ms) == now.age_ms


@pytest.mark.parametrize("jump", [10 * YEAR, -10 * YEAR])
def test_the_doubt_ends_once_the_step_is_taken_back_or_the_next_boot_is_synchronised(jump: int) -> None:
    stepped = reading("a", 10_000, WALL + 10_000 + jump, trusted=True)
    back = reading("a", 60_000, WALL + 60_000, trusted=True)
    assert after(FIRST, stepped, back).now(back).trusted
    booted = reading("b", 0, WALL + DAY, trusted=True)
    assert after(FIRST, stepped, booted).now(booted).trusted


@pytest.mark.parametrize("jump", [10 * YEAR, -10 * YEAR])
@pytest.mark.parametrize("right_again", [True, False])
def test_a_step_is_no_time_without_power(jump: int, right_again: bool) -> None:
    """Off for three weeks after a step; the next boot's clock is right, or is as wrong as this one's was."""
    stepped = reading("a", 10_000, WALL + 10_000 + jump, trusted=True)
    off_ms = 21 * DAY
    wall_ms = WALL + 10_000 + off_ms + (0 if right_again else jump)
    assert after(FIRST, stepped, reading("b", 500, wall_ms, trusted=True)).age_ms == 10_000 + off_ms


def test_the_first_synchronisation_of_a_boot_is_no_step() -> None:
    """A board without a clock chip, off for three weeks: its clock says last year until a time service sets it."""
    unset = reading("b", 0, WALL - YEAR), reading("b", 60_000, WALL - YEAR + 60_000)
    synchronised = reading("b", 61_000, WALL + 21 * DAY, trusted=True)
    age = after(FIRST, *unset, synchronised)
    assert (age.age_ms, age.now(synchronised).trusted) == (21 * DAY, True)


def test_a_clock_chip_that_is_years_ahead_at_a_boot_makes_nothing_old_until_a_time_service_sets_it() -> None:
    """Its board was off for three weeks. The boot lasts longer than the time that a time service is waited for."""
    age = after(FIRST, *(by_chip("b", boot_ms, WALL + 10 * YEAR + boot_ms) for boot_ms in (500, GRACE_MS, DAY)))
    chip = by_chip("b", DAY, WALL + 10 * YEAR + DAY)
    assert (age.age_ms, age.now(chip).trusted) == (DAY - 500, False)
    assert age_written(age.now(chip), WALL) == age.age_ms
    assert age.unverified_off_ms(chip) > OFF_MS_MAX
    synchronised = reading("b", DAY + 1, WALL + 22 * DAY, trusted=True)
    age = age.with_reading(synchronised)
    assert (age.age_ms, age.now(synchronised).trusted) == (22 * DAY, True)
    assert age.unverified_off_ms(synchronised) == 0
    set_by_hand = by_chip("c", GRACE_MS, WALL + 23 * DAY)
    assert age.with_reading(set_by_hand).age_ms == 23 * DAY


@pytest.mark.parametrize("ahead_ms", [30 * DAY, 80 * DAY])
def test_a_clock_chip_that_is_weeks_ahead_waits_for_a_time_service(ahead_ms: int) -> None:
    chip = by_chip("b", 500, WALL + DAY + ahead_ms)
    age = after(FIRST, chip)
    assert (age.age_ms, age.now(chip).trusted) == (0, False)
    synchronised = reading("b", GRACE_MS - 1, WALL + DAY, trusted=True)
    assert age.with_reading(synchronised).age_ms == DAY


def test_a_clock_chip_counts_the_time_without_power_where_no_time_service_comes() -> None:
    early, late = by_chip("b", GRACE_MS - 1, WALL + 21 * DAY), by_chip("b", GRACE_MS, WALL + 21 * DAY + 1)
    age = after(FIRST, early)
    assert not age.now(early).trusted
    assert age.with_reading(late).age_ms == 21 * DAY + 1
    assert age.with_reading(late).now(late).trusted
    at_once = by_chip("b", 0, WALL + 60_000)
    assert after(FIRST, at_once).age_ms == 60_000, "a reboot waits for nothing"


def test_a_step_just_before_a_power_cut_is_no_time_without_power() -> None:
    """The step is not on the disk yet, and the clock chip keeps it."""
    assert after(FIRST, *(by_chip("b", boot_ms, WALL + 10 * YEAR) for boot_ms in (0, GRACE_MS))).age_ms == GRACE_MS


def test_a_step_is_seen_before_the_next_look() -> None:
    age = after(FIRST)
    assert not age.is_stepped(reading("a", 5_000, WALL + 5_900, trusted=True))
    for jump in (10 * YEAR, -10 * YEAR):
        assert age.is_stepped(reading("a", 5_000, WALL + 5_000 + jump, trusted=True))
        assert not age.is_stepped(reading("b", 5_000, WALL + 5_000 + jump, trusted=True))


def test_a_second_step_in_doubt_is_kept_too() -> None:
    """Ten years ahead, then three weeks: power goes, and the clock chip keeps the three weeks."""
    ahead = reading("a", 10_000, WALL + 10_000 + 10 * YEAR, trusted=True)
    first = after(FIRST, ahead)
    second = first.with_reading(reading("a", 20_000, WALL + 20_000 + 21 * DAY, trusted=True))
    assert second.worth_keeping(first)
    assert second.differs_in_doubt(first)
    assert not second.with_reading(reading("a", 30_000, WALL + 30_000 + 21 * DAY, trusted=True)).differs_in_doubt(
        second
    )
    booted = reading("b", 0, WALL + 40_000 + 21 * DAY, trusted=True)
    assert second.with_reading(booted).age_ms == 40_000


def test_a_step_while_the_machine_sleeps_is_a_step() -> None:
    slept = reading("a", 8 * HOUR, WALL + 8 * HOUR, trusted=True)
    assert after(FIRST, slept).now(slept).trusted
    stepped = slept._replace(wall_ms=WALL + 10 * YEAR)
    assert not after(FIRST, stepped).now(stepped).trusted


def test_a_small_step_forward_makes_no_record_older_and_is_no_reason_for_doubt() -> None:
    """A clock chip that drifted while the board was off; a time service corrects it."""
    corrected = reading("a", 10_000, WALL + 10_000 + 36_000, trusted=True)
    now = after(FIRST, corrected).now(corrected)
    assert now.trusted
    assert age_written(now, corrected.wall_ms - 36_000) == now.age_ms
    assert age_written(now, corrected.wall_ms - 36_000 - HOUR) == now.age_ms - HOUR
    half_a_year = 182 * DAY
    drifted = reading("a", half_a_year, WALL + half_a_year + 300_000, trusted=True)
    assert after(FIRST, drifted).now(drifted).trusted, "20 ppm, until the time service came back"


def test_a_step_is_known_to_a_broker_that_is_started_again_in_the_same_boot() -> None:
    age = after(FIRST)
    found = age_of([line.split(" ") for line in age.lines()])
    stepped = reading("a", 10_000, WALL + 10 * YEAR, trusted=True)
    assert not found.with_reading(stepped).now(stepped).trusted
    assert found.with_reading(stepped).worth_keeping(age)


def test_a_file_of_an_older_version_is_read_and_one_without_a_step_is_as_it_wrote_it() -> None:
    old = ["10 a 20 10 1700000000000 a 0", "1 2 3"]
    age = age_of([line.split(" ") for line in old])
    assert (age.age_ms, age.stepped_ms, age.lines()) == (10, 0, old)
    with pytest.raises(ValueError, match="values"):
        age_of([[*old[0].split(" "), "1", "2"]])


def test_the_steps_back_that_are_kept_are_bounded() -> None:
    age = Age()
    for boot in range(STEPS_BACK_MAX + 5):
        for wall_ms in (WALL + boot * DAY, WALL + boot * DAY - YEAR, WALL + boot * DAY, WALL + boot * DAY - YEAR):
            age = age.with_reading(reading(str(boot), 10, wall_ms, trusted=True))
    assert len(age.steps_back) == STEPS_BACK_MAX
    assert len({step.boot_id for step in age.steps_back}) == STEPS_BACK_MAX


def sealed(log: PartitionLog, now: Now, timestamp_ms: int) -> None:
    """A record with this timestamp in a segment of its own."""
    records = memoryview(bytearray(build_batch([(None, b"x")], timestamp_ms=timestamp_ms)))
    try:
        log.writer.append(records, read_header(records), now)
    except RollDue:
        log.roller.roll()
        log.writer.end_roll()
        log.writer.append(records, read_header(records), now)
    flush = log.writer.begin_flush()
    assert flush is not None
    flush.run()
    log.writer.finish_flush(flush)
    single_node_watermark.advance_high_watermark(log.state)


def test_a_clock_chip_that_was_wrong_until_a_step_back_costs_no_record() -> None:
    """Ten years ahead since the boot, and believed; devices are right. A time service sets the clock after an hour."""
    store = open_store(SimulatedDisk(1))
    log = make_topic(store, config={"segment.ms": "1", "retention.ms": str(DAY)}).partitions[0]
    ahead = reading("a", 0, NOW_MS + 10 * YEAR, trusted=True)
    age = Age().with_reading(ahead)
    for minute in range(3):
        boot_ms = minute * 60_000
        now = age.now(ahead._replace(boot_ms=boot_ms, wall_ms=ahead.wall_ms + boot_ms))
        assert now.trusted
        sealed(log, now, NOW_MS + boot_ms)
    set_right = reading("a", HOUR, NOW_MS + HOUR, trusted=True)
    age = age.with_reading(set_right)
    assert delete_expired(log, age.now(set_right)) == 0
    assert log.log_start_offset == 0
    booted = reading("b", 0, NOW_MS + 2 * HOUR, trusted=True)
    age = age.with_reading(booted)
    assert age.now(booted).trusted
    assert delete_expired(log, age.now(booted)) == 0
    later = reading("b", 2 * DAY, NOW_MS + 2 * HOUR + 2 * DAY, trusted=True)
    delete_expired(log, age.now(later))
    assert log.log_start_offset == 2, "and goes when its time is over: all but the open segment"


def test_compaction_keeps_the_time_on_disk_of_a_segment_that_a_wrong_clock_made_old() -> None:
    step_back = StepBack("a", 5_000)
    now = Now(WALL, 9_000, trusted=True, boot_id="b", steps_back=(step_back,))
    old = Summary(1, 1, 0, 0, 1, 1, 0, 0, -10 * YEAR, True, "a")
    other = old._replace(written_age_ms=1_000, boot_id="z")
    assert youngest([old, other], now) == LastWrite(5_000, True, "a")
