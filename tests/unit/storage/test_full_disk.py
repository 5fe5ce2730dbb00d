"""Looks at a disk that gets full: what goes, what the ledger says, and when writes are refused."""

import errno
import json
import os

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.files.filesystem import Space
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.maintenance.disk_watch import DiskWatch
from edge_broker.storage.maintenance.full_disk_marker import FILE as MARKER
from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker
from edge_broker.storage.retention.eviction_plan import Marks
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, append, batch, open_store, read_all, sync, time_at

TOTAL = 1 << 40


class Card:
    """A store on a disk whose free space is what is left of `capacity`; segments of 4 KiB."""

    def __init__(self, capacity=200_000):
        self.disk = SimulatedDisk(1)
        self.capacity = capacity
        self.store = open_store(self.disk)
        self.watch = DiskWatch(self.store, 40_000, 20_000)
        self.begin = None

    def topic(self, name, partitions=1, **config):
        keys = {key.replace("_", "."): str(value) for key, value in config.items()}
        return make_topic(self.store, name, partitions, {"segment.bytes": "4096", **keys}).partitions

    def fill(self, log, batches, timestamp_ms=NOW_MS):
        for _ in range(batches):
            append(log, batch(bytes(900), timestamp_ms=timestamp_ms))
        sync(log)

    def used(self):
        return sum(log.size for topic in self.store.topics.values() for log in topic.partitions)

    def look(self, passed=None, now=NOW, led=None, *, spares=False, for_others=None):
        disk, card = self.disk, self

        class Room(SimulatedDisk):
            @property
            def room(self):
                return Space(TOTAL, max(card.capacity - card.used(), 0))

            @room.setter
            def room(self, _room):
                raise AssertionError

        disk.__dict__.pop("room", None)
        disk.__class__ = Room
        return self.watch.check(passed or {}, now, led, spares=spares, for_others=for_others)

    def look_until_done(self, passed=None):
        """Look as the broker does: again when segments were closed for it."""
        found = self.look(passed)
        while found.rolls:
            for log in found.rolls:
                assert log.writer.begin_roll()
                log.roller.roll()
                log.writer.end_roll()
                single_node_watermark.advance_high_watermark(log.state)
            found = self.look(passed)
        return found

    def ledgered(self):
        log = self.store.topics[LEDGER_TOPIC].partitions[0]
        return [json.loads(bytes(one.value)) for part in read_all(log, 1 << 20) for one in records_of(memoryview(part))]


@pytest.fixture
def card():
    return Card()


def test_with_space_enough_nothing_goes(card):
    (log,) = card.topic("t")
    card.fill(log, 100)
    found = card.look()
    assert (found.stage, found.refusing, found.marks) == (0, False, Marks(40_000, 20_000))
    assert log.log_start_offset == 0
    assert found.room_bytes == found.free - 20_000
    assert card.disk.exists("/data/.spare")


def test_the_rungs_are_climbed_one_by_one(card):
    (expired,) = card.topic("expired", retention_ms=1000)
    (passed,) = card.topic("passed", edge_required_groups="mirror", edge_priority=0)
    (low,) = card.topic("low", edge_priority=1)
    (high,) = card.topic("high", edge_priority=9)
    card.fill(expired, 40, NOW_MS - 5000)
    for log in (passed, low, high):
        card.fill(log, 40)
    ends = {("passed", 0): 30}
    seen = []
    while low.size or high.size:
        before = [log.log_start_offset for log in (expired, passed, low, high)]
        card.capacity -= 6000
        found = card.look_until_done(ends)
        after = [log.log_start_offset for log in (expired, passed, low, high)]
        seen += [at for at in range(4) if after[at] != before[at]]
        if found.stage == 4:
            break
    assert list(dict.fromkeys(seen)) == [0, 1, 2, 3]
    assert passed.removed[0].cause == "passed"
    assert expired.removed[0].cause == "retention"
    assert {one["topic"] for one in card.ledgered()} == {"passed", "low", "high"}
    assert {one["cause"] for one in card.ledgered()} == {"evicted"}
    assert min(one["first_offset"] for one in card.ledgered() if one["topic"] == "passed") >= 30
    assert card.watch.lost["low"].records == sum(one["records"] for one in card.ledgered() if one["topic"] == "low")


def test_only_what_is_led_goes_and_only_what_is_shown(card):
    led, followed = card.topic("t", partitions=2)
    card.fill(led, 40)
    card.fill(followed, 40)
    border = led.segments[2].base_offset
    led.state.set_visible_end(led.state.shown._replace(offset=border), border)
    card.capacity = card.used() + 10_000
    found = card.look(led=[led])
    assert (led.log_start_offset, followed.log_start_offset) == (border, 0)
    assert (found.refusing, found.rolls) == (True, [])


def test_where_other_boards_have_room_only_data_that_is_safe_to_go_goes(card):
    passed, plain = card.topic("passed", edge_required_groups="mirror"), card.topic("plain")
    for (log,) in (passed, plain):
        card.fill(log, 40)
        log.state.set_visible_end(log.state.shown._replace(offset=40), 40)
    card.capacity = card.used() + 30_000
    led = [*passed, *plain]
    found = card.look({("passed", 0): 8}, led=led, spares=True)
    assert (found.tight, found.refusing, found.stage) == (True, False, 2)
    assert (passed[0].log_start_offset, plain[0].log_start_offset) == (8, 0)
    assert card.ledgered() == []
    assert card.look(led=[]).tight, "it leads nothing now, and has no room yet"
    card.capacity = card.used() + 49_000
    assert card.look(led=[], spares=True).tight
    card.capacity = card.used() + 51_000
    assert not card.look(led=[], spares=True).tight


def test_the_last_that_has_room_evicts_as_one_board_does(card):
    (log,) = card.topic("t")
    card.fill(log, 40)
    log.state.set_visible_end(log.state.shown._replace(offset=40), 40)
    card.capacity = card.used() + 30_000
    found = card.look(led=[log])
    assert (found.tight, found.stage) == (False, 3)
    assert {one["cause"] for one in card.ledgered()} == {"evicted"}


def test_a_loss_begins_where_the_groups_have_come_to(card):
    (log,) = card.topic("t", edge_required_groups="mirror")
    card.fill(log, 100)
    middle = log.segments[1].base_offset + 2
    card.capacity = card.used() + 30_000
    card.look({("t", 0): middle})
    assert [entry[:2] for entry in log.removed] == [("passed", 0), ("evicted", middle)]
    assert card.ledgered()[0]["first_offset"] == middle


def test_what_is_expired_and_not_passed_is_named_so(card):
    (log,) = card.topic("t", edge_required_groups="mirror", retention_ms=1000)
    card.fill(log, 100, NOW_MS - 5000)
    card.capacity = card.used() + 30_000
    card.look({})
    assert {one["cause"] for one in card.ledgered()} == {"expired_unpassed"}


def test_writes_are_refused_when_nothing_may_go_and_taken_again_with_space(card):
    (log,) = card.topic("t", cleanup_policy="compact")
    for _ in range(100):
        append(log, batch(bytes(900)))
    sync(log)
    card.capacity = card.used() + 19_000
    found = card.look()
    assert (found.refusing, found.stage, found.room_bytes, log.log_start_offset) == (True, 4, -1, 0)
    card.capacity += 9_000
    assert card.look().refusing
    card.capacity += 5_000
    found = card.look()
    assert (found.refusing, found.stage) == (False, 0)


def test_internal_topics_are_never_taken_from(card):
    offsets = make_topic(card.store, "__consumer_offsets", 1, {"segment.bytes": "4096"}).partitions[0]
    ledger = card.store.topics[LEDGER_TOPIC].partitions[0]
    for log in (offsets, ledger):
        log.settings.segment_bytes = 4096
        card.fill(log, 60)
    card.capacity = card.used()
    found = card.look()
    assert found.refusing
    assert (offsets.log_start_offset, ledger.log_start_offset, found.rolls) == (0, 0, [])


def test_a_topic_is_kept_within_its_budget(card):
    first, second = card.topic("t", 2, edge_budget_bytes=20_000)
    (other,) = card.topic("other")
    for log in (first, second, other):
        card.fill(log, 20)
    found = card.look_until_done()
    assert first.size + second.size <= 20_000
    assert (other.log_start_offset, found.full_topics, found.refusing) == (0, frozenset(), False)
    assert sum(one["records"] for one in card.ledgered()) == first.log_start_offset + second.log_start_offset


def test_a_topic_of_which_nothing_may_go_is_full(card):
    (log,) = card.topic("t", edge_budget_bytes=20_000, cleanup_policy="compact")
    for _ in range(30):
        append(log, batch(bytes(900)))
    sync(log)
    found = card.look()
    assert (found.full_topics, found.refusing, found.stage) == (frozenset({"t"}), False, 4)


def test_a_ledger_that_takes_nothing_lets_nothing_go(card):
    (log,) = card.topic("t")
    card.fill(log, 100)
    card.capacity = card.used()

    def broken(step, path, _size):
        if step == "write" and LEDGER_TOPIC in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    card.disk.fault = broken
    found = card.look()
    assert (log.log_start_offset, found.refusing) == (0, True)
    assert any("nothing can be removed" in note for note in found.notes)
    assert (log.fault, card.store.topics[LEDGER_TOPIC].partitions[0].fault) == (None, None)
    card.disk.fault = None
    assert not card.look().refusing
    assert log.log_start_offset > 0


def test_one_partition_that_fails_costs_no_other(card):
    first, second = card.topic("t", 2)
    for log in (first, second):
        card.fill(log, 50)

    def broken(step, path, _size):
        if step == "create" and "t-0" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    card.disk.fault = broken
    card.capacity = card.used() + 30_000
    card.look()
    assert (first.log_start_offset, first.fault) == (0, None)
    assert second.log_start_offset > 0


def test_the_plan_goes_by_age_and_not_by_a_clock_that_jumped(card):
    (log,) = card.topic("t", retention_ms=10_000)
    card.fill(log, 100)
    card.capacity = card.used() + 30_000
    now = time_at(NOW_MS)._replace(wall_ms=NOW_MS + 10**9, trusted=False)
    card.look({}, now)
    assert {one["cause"] for one in card.ledgered()} == {"evicted"}


def test_a_step_is_evicted_for_other_boards_though_this_disk_has_room(card):
    log, other = card.topic("t", 2)
    card.fill(log, 20)
    card.fill(other, 20)
    found = card.look(led=[log, other], for_others={log: 3})
    assert (log.log_start_offset, other.log_start_offset, found.stage, found.tight) == (3, 0, 0, False)
    (entry,) = card.ledgered()
    assert (entry["cause"], entry["first_offset"], entry["last_offset"], entry["records"]) == ("evicted", 0, 2, 3)
    card.look(led=[log, other], for_others={log: 9}, now=time_at(NOW.wall_ms + 1_999))
    assert log.log_start_offset == 3, "what the former step brought is not known yet"
    card.look({("t", 0): 5}, led=[log, other], for_others={log: 9}, now=time_at(NOW.wall_ms + 2_000))
    assert log.log_start_offset == 9
    lost = [range(each["first_offset"], each["last_offset"] + 1) for each in card.ledgered()]
    assert [offset for each in lost for offset in each] == [0, 1, 2, 5, 6, 7, 8], "what was passed is no loss"


def test_the_lowest_priority_goes_for_other_boards_and_nothing_that_is_not_shown(card):
    (low,), (high,), (kept,) = (
        card.topic("low", edge_priority=1),
        card.topic("high", edge_priority=9),
        card.topic("kept", cleanup_policy="compact", edge_priority=1),
    )
    for log in (low, high, kept):
        card.fill(log, 5)
    append(low, batch(bytes(900)))
    card.look(led=[low, high, kept], for_others={low: 50, high: 4, kept: 4})
    assert (low.log_start_offset, high.log_start_offset, kept.log_start_offset) == (low.high_watermark, 0, 0)


@pytest.mark.parametrize("capacity_bytes", [15_000, 35_000])
def test_a_look_makes_the_marker_of_a_full_disk_in_a_cluster_alone(card, capacity_bytes):
    card.topic("t")
    card.capacity = capacity_bytes
    found = card.look(spares=True)
    assert found.refusing or found.tight
    assert not card.disk.exists(f"/data/{MARKER}")
    card.watch.full_disk_marker = FullDiskMarker(card.disk, "/data", 60_000)
    card.look(spares=True)
    assert card.disk.exists(f"/data/{MARKER}")
    card.capacity = 200_000
    card.look(spares=True)
    card.look(spares=True, now=time_at(NOW.wall_ms + 59_999))
    assert card.disk.exists(f"/data/{MARKER}")
    card.look(spares=True, now=time_at(NOW.wall_ms + 60_000))
    assert not card.disk.exists(f"/data/{MARKER}")
