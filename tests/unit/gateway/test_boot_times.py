"""Records of a board whose clock is not set: their mark, and the time of the boot once it is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet.host.boot_clock import (
    BOOT_TIMES_TOPIC,
    BootClock,
    BootMoment,
    KernelBootClock,
    decode_boot,
    encode_boot,
)
from gateway.boot_state import BOOTS_MAX, Boots
from gateway.records.boot_times import BootTimes
from gateway.records.records import MARK_BYTES_MAX, Record
from gateway.state import StateError

BOOT_A, BOOT_B = "11111111-2222-3333-4444-55555555555a", "11111111-2222-3333-4444-55555555555b"
IN_1970, RIGHT = 60_000, 1_795_000_000_000


class FakeClock:
    """A board's clocks: up for a minute, its wall clock at 1970."""

    def __init__(self, boot_id: str = BOOT_A, synchronised: bool | None = False) -> None:
        self.boot_id = boot_id
        self.known = synchronised
        self.kept: bool | None = None
        self.up_ms, self.now_ms, self.asleep_ms = 60_000, IN_1970, 0
        if synchronised:
            self.set_right(self.up_ms)

    def boot_time_ms(self) -> int:
        return self.up_ms

    def slept_ms(self) -> int:
        return self.asleep_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def is_synchronised(self) -> bool | None:
        return self.known

    def is_kept(self) -> bool | None:
        return self.known if self.kept is None else self.kept

    def set_right(self, up_ms: int = 100_000) -> None:
        """A time service sets the clock."""
        self.up_ms, self.now_ms, self.known = up_ms, RIGHT + up_ms, True


def of(clock: BootClock, directory: Path) -> BootTimes:
    return BootTimes(clock, directory / "clock.json", "pi-1")


def reading(headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record("mqtt", "readings", b"k", b"v", headers, IN_1970, IN_1970, "mqtt:t")


def entry(boot_id: str, boot_time_ms: int, timestamp_ms: int) -> Record:
    """An entry of the journal."""
    record = Record("journal", "logs", b"k", b"v", (), timestamp_ms, IN_1970, "logs", "journal")
    return replace(record, moment=BootMoment(boot_id, boot_time_ms))


class Broker:
    """Takes what is published and acknowledges it; `topic_error` is what keeps it from creating the topic."""

    def __init__(self, topic_error: str = "") -> None:
        self.topic_error = topic_error
        self.taken: list[Record] = []
        self.asked = 0
        self.acks = True

    def offer(self, record: Record, on_acked: Callable[[], None]) -> None:
        self.taken.append(record)
        if self.acks:
            on_acked()

    async def create_topic(self) -> str:
        self.asked += 1
        return self.topic_error


def published(boots: BootTimes, broker: Broker | None = None) -> list[Record]:
    """Return the records that `run` hands to the broker, until it has nothing due."""
    broker = broker or Broker()

    async def some_checks() -> None:
        task = asyncio.ensure_future(boots.run(broker.offer, broker.create_topic))
        try:
            for _ in range(20):
                await asyncio.sleep(0.001)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(some_checks())
    return broker.taken


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.records.boot_times.CHECK_S", 0.001)


def test_a_record_of_an_unset_clock_carries_boot_id_and_time_since_boot(tmp_path: Path) -> None:
    boots = of(FakeClock(), tmp_path)
    marked = boots.mark(reading((("source", b"mqtt"),)))
    assert marked.sent_headers == (("source", b"mqtt"), ("boot_id", BOOT_A.encode()), ("boot_time_ms", b"60000"))
    assert marked.timestamp_ms == IN_1970, "the log is as the board had it"
    assert boots.mark(marked) is marked, "a record that becomes a dead letter later keeps its time"
    assert "not synchronised" in str(boots.note())
    assert boots.watches()[0].state.value == "problem"


def test_a_header_of_a_route_that_is_called_boot_id_takes_no_mark_away(tmp_path: Path) -> None:
    marked = of(FakeClock(), tmp_path).mark(reading((("boot_id", b"theirs"),)))
    assert marked.sent_headers[-2:] == (("boot_id", BOOT_A.encode()), ("boot_time_ms", b"60000"))


def test_the_mark_counts_in_memory_and_in_no_bound_of_the_user(tmp_path: Path) -> None:
    record = reading()
    marked = of(FakeClock(), tmp_path).mark(record)
    assert marked.payload_bytes == record.payload_bytes
    mark_bytes = sum(len(name) + len(value) for name, value in marked.sent_headers)
    assert marked.memory_bytes == record.memory_bytes + mark_bytes
    assert 0 < mark_bytes < MARK_BYTES_MAX


def test_a_record_of_a_set_clock_costs_nothing_more(tmp_path: Path) -> None:
    boots = of(FakeClock(synchronised=True), tmp_path)
    record = reading()
    assert boots.mark(record) is record
    broker = Broker()
    assert (boots.note(), published(boots, broker), broker.asked) == (None, [], 0)


def test_once_synchronised_the_boots_epoch_is_published_once(tmp_path: Path) -> None:
    clock = FakeClock()
    boots = of(clock, tmp_path)
    assert published(boots) == []
    clock.set_right()
    (record,) = published(boots)
    assert (record.topic, record.key) == (BOOT_TIMES_TOPIC, BOOT_A.encode())
    assert decode_boot(record.key, record.value) == (BOOT_A, RIGHT)
    clock.now_ms += 3_600_000
    assert published(boots) == [], "a later step is a reason for doubt"
    assert published(of(clock, tmp_path)) == []
    assert boots.note() is None
    clock.known = False
    boots.check()
    assert boots.mark(reading()).boot is None, "its time servers are away: a clock that was set stays set"


def test_a_board_that_synchronises_while_the_gateway_is_stopped(tmp_path: Path) -> None:
    clock = FakeClock()
    of(clock, tmp_path)
    clock.set_right(up_ms=7_200_000)
    (record,) = published(of(clock, tmp_path))
    assert decode_boot(record.key, record.value) == (BOOT_A, RIGHT)


def test_an_epoch_that_is_not_acknowledged_is_published_again_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    boots, silent = of(clock, tmp_path), Broker()
    clock.set_right()
    silent.acks = False
    assert len(published(boots, silent)) == 1
    clock.now_ms += 60_000  # a step: what was known first stays
    assert [decode_boot(one.key, one.value) for one in published(of(clock, tmp_path))] == [(BOOT_A, RIGHT)]


def test_an_epoch_that_the_broker_never_had_is_published_by_the_next_boots(tmp_path: Path) -> None:
    """The broker is away while the clock is set, and the board loses power twice before it is back."""
    clock = FakeClock()
    boots = of(clock, tmp_path)
    clock.set_right()
    assert published(boots, Broker("the broker is away")) == []
    again = FakeClock(BOOT_B)
    boots = of(again, tmp_path)
    assert published(boots, Broker("the broker is away")) == []
    assert "not synchronised" in str(boots.note())
    again.set_right()
    found = [*published(of(again, tmp_path))]
    assert [decode_boot(one.key, one.value) for one in found] == [(BOOT_A, RIGHT), (BOOT_B, RIGHT)]
    assert published(of(again, tmp_path)) == []


def test_a_topic_that_cannot_be_created_is_named_and_tried_again(tmp_path: Path) -> None:
    clock, broker = FakeClock(), Broker("TopicAuthorizationFailedError")
    boots = of(clock, tmp_path)
    clock.set_right()
    assert published(boots, broker) == [], "nothing is written to a topic that the broker would make by itself"
    assert BOOT_A in str(boots.note())
    assert "boot_times: TopicAuthorizationFailedError" in str(boots.note())
    broker.topic_error = ""
    assert len(published(boots, broker)) == 1
    assert boots.note() is None


def test_a_boot_that_ended_before_it_was_synchronised_is_never_known_and_named(tmp_path: Path) -> None:
    of(FakeClock(), tmp_path)
    clock = FakeClock(BOOT_B, synchronised=True)
    for boots in (of(clock, tmp_path), of(clock, tmp_path)):
        assert f"{BOOT_A} is not known" in str(boots.note())
        assert published(boots) == []
    later = of(FakeClock("boot-c", synchronised=True), tmp_path)
    assert later.note() is None


def test_of_two_boots_each_has_its_own_epoch(tmp_path: Path) -> None:
    """Records of both lie between each other in the log, as two gateways of a site write them."""
    clocks = FakeClock(), FakeClock(BOOT_B)
    sites = [of(clock, tmp_path / clock.boot_id) for clock in clocks]
    clocks[1].up_ms = 90_000
    marks = [boots.mark(reading()).boot for boots in sites]
    assert marks == [BootMoment(BOOT_A, 60_000), BootMoment(BOOT_B, 90_000)]
    clocks[0].set_right()
    clocks[1].set_right()
    clocks[1].now_ms += 5_000
    found = [published(boots)[0] for boots in sites]
    assert [decode_boot(one.key, one.value) for one in found] == [(BOOT_A, RIGHT), (BOOT_B, RIGHT + 5_000)]


def test_two_gateways_of_a_board_publish_the_same_key(tmp_path: Path) -> None:
    clock = FakeClock()
    one, other = of(clock, tmp_path / "one"), of(clock, tmp_path / "other")
    clock.set_right()
    (first,), (second,) = published(one), published(other)
    assert (first.key, first.value) == (second.key, second.value)


def test_a_state_that_the_kernel_does_not_tell_is_a_watch_that_hears_nothing(tmp_path: Path) -> None:
    boots = of(FakeClock(synchronised=None), tmp_path)
    record = reading()
    assert boots.mark(record) is record
    assert boots.mark(entry(BOOT_B, 1_000, IN_1970)).boot is None
    assert boots.note() is None
    (watch,) = boots.watches()
    assert (watch.name, watch.state.value) == ("clock", "unknown")
    assert 'clock_trusted = "true"' in watch.reason


def test_without_a_boot_id_nothing_is_marked_and_the_watch_says_so(tmp_path: Path) -> None:
    boots = of(FakeClock(""), tmp_path)
    assert boots.mark(reading()).boot is None
    assert boots.watches()[0].state.value == "unknown"


def test_an_entry_of_the_journal_carries_its_own_boot_and_time(tmp_path: Path) -> None:
    """It was written before the gateway read it, perhaps in an earlier boot."""
    boots = of(FakeClock(), tmp_path)
    assert boots.mark(entry(BOOT_A, 4_000, IN_1970)).boot == BootMoment(BOOT_A, 4_000)
    assert boots.mark(entry(BOOT_B, 9_000, IN_1970)).boot == BootMoment(BOOT_B, 9_000)


def test_entries_from_before_the_clock_was_set_are_marked_after_it_too(tmp_path: Path) -> None:
    """The gateway starts, or reads on, after the clock was set; the journal has what was written before."""
    boots = of(FakeClock(synchronised=True), tmp_path)
    right = entry(BOOT_A, 50_000, RIGHT + 50_400)
    assert boots.mark(right) is right
    assert published(boots) == []
    assert boots.mark(entry(BOOT_A, 4_000, IN_1970)).boot == BootMoment(BOOT_A, 4_000)
    (record,) = published(boots)
    assert decode_boot(record.key, record.value) == (BOOT_A, RIGHT)


def test_entries_of_an_earlier_boot_go_by_that_boots_epoch(tmp_path: Path) -> None:
    of(FakeClock(synchronised=True), tmp_path)
    clock = FakeClock(BOOT_B, synchronised=True)
    clock.now_ms += 7_200_000
    boots = of(clock, tmp_path)
    right = entry(BOOT_A, 50_000, RIGHT + 50_000)
    assert boots.mark(right) is right
    assert boots.mark(entry(BOOT_A, 4_000, IN_1970)).boot == BootMoment(BOOT_A, 4_000)
    (record,) = published(boots)
    assert decode_boot(record.key, record.value) == (BOOT_A, RIGHT)
    assert boots.mark(entry("boot-c", 4_000, RIGHT)).boot == BootMoment("boot-c", 4_000), "nobody knows that boot"


def test_a_container_has_a_boot_id_of_its_own_and_the_machines_time(tmp_path: Path) -> None:
    boots = of(FakeClock(synchronised=True), tmp_path)
    in_a_container = entry(BOOT_B, 50_000, RIGHT + 50_000)
    assert boots.mark(in_a_container) is in_a_container


def test_a_machine_that_slept_has_right_times(tmp_path: Path) -> None:
    clock = FakeClock(synchronised=True)
    clock.asleep_ms = 3_600_000
    boots = of(clock, tmp_path)
    slept = entry(BOOT_A, 50_000, RIGHT + 50_000 + 3_600_000)
    assert boots.mark(slept) is slept
    assert boots.mark(entry(BOOT_A, 4_000, IN_1970)).boot == BootMoment(BOOT_A, 3_604_000)


def test_an_entry_of_another_machine_has_that_machines_time(tmp_path: Path) -> None:
    foreign = replace(entry(BOOT_B, 4_000, IN_1970), foreign_clock=True)
    assert of(FakeClock(), tmp_path).mark(foreign) is foreign


def test_a_clock_that_is_set_by_hand_after_it_was_synchronised_marks_records(tmp_path: Path) -> None:
    """`date -s` with the time servers away: the kernel no longer holds the clock as synchronised."""
    clock = FakeClock(synchronised=True)
    boots = of(clock, tmp_path)
    assert boots.mark(reading()).boot is None
    clock.now_ms, clock.kept = clock.now_ms + 3_650 * 86_400_000, False
    assert boots.mark(reading()).boot == BootMoment(BOOT_A, 60_000), "at once, not after the next check"
    assert "set by hand" in str(boots.note())
    assert boots.watches()[0].state.value == "problem"
    again = of(clock, tmp_path)
    assert again.mark(reading()).boot is not None, "over a restart"
    (record,) = published(again)
    assert decode_boot(record.key, record.value) == (BOOT_A, RIGHT)
    clock.now_ms, clock.kept = RIGHT + clock.up_ms, True
    assert again.mark(reading()).boot is None
    assert again.note() is None


def test_a_step_by_a_time_service_is_believed(tmp_path: Path) -> None:
    """The first time server was wrong by an hour; later the servers are away."""
    clock = FakeClock(synchronised=True)
    boots = of(clock, tmp_path)
    clock.now_ms += 3_600_000
    assert boots.mark(reading()).boot is None
    clock.kept = False
    assert boots.mark(reading()).boot is None
    of_then, of_now = (entry(BOOT_A, 50_000, RIGHT + 50_000 + ahead_ms) for ahead_ms in (0, 3_600_000))
    assert boots.mark(of_then) is of_then
    assert boots.mark(of_now) is of_now
    assert boots.note() is None


def test_a_clock_that_goes_back_leaves_the_time_since_boot(tmp_path: Path) -> None:
    clock = FakeClock()
    boots = of(clock, tmp_path)
    before = boots.mark(reading())
    clock.now_ms, clock.up_ms = -5, 61_000
    assert [one.boot.boot_time_ms for one in (before, boots.mark(reading())) if one.boot] == [60_000, 61_000]
    clock.known = True
    boots.check()
    assert boots.due() is None, "a time before 1970 is no time of a boot"


@pytest.mark.parametrize(
    "content",
    [
        '{"boot_id": 7}',
        '{"boots": {}}',
        '{"boots": [3]}',
        '{"boots": [{"boot_id": "a", "marked": 1, "published": false}]}',
        '{"boots": [{"boot_id": "a", "marked": true, "published": false, "epoch_ms": true}]}',
        '{"boots": [{"boot_id": "a", "marked": true, "published": false, "epoch_ms": -1}]}',
    ],
)
def test_a_damaged_state_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "clock.json").write_text(content)
    with pytest.raises(StateError, match=r"clock\.json"):
        of(FakeClock(), tmp_path)


def test_a_state_that_cannot_be_written_is_said_and_written_later(tmp_path: Path) -> None:
    blocked = tmp_path / "clock.json.new"
    blocked.mkdir()
    boots = of(FakeClock(), tmp_path)
    assert "cannot be written" in str(boots.note())
    assert boots.mark(reading()).boot is not None
    blocked.rmdir()
    published(boots)
    assert (tmp_path / "clock.json").exists()
    assert "cannot be written" not in str(boots.note())


def test_the_state_is_bounded_and_what_is_due_goes_last() -> None:
    boots = Boots("boot-0")
    boots.change("boot-0", marked=True, epoch_ms=7)
    for number in range(1, 3 * BOOTS_MAX):
        boots = Boots(f"boot-{number}", boots.content())
    kept = boots.content()["boots"]
    assert (len(kept), kept[0]["boot_id"], kept[-1]["boot_id"]) == (BOOTS_MAX, "boot-0", f"boot-{number}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"a", b"{"),
        (b"a", b"[]"),
        (b"b", b'{"version":1,"boot_id":"a","boot_epoch_ms":1}'),
        (b"a", b'{"version":2,"boot_id":"a","boot_epoch_ms":1}'),
        (b"a", b'{"version":true,"boot_id":"a","boot_epoch_ms":1}'),
        (b"a", b'{"version":1,"boot_id":"a","boot_epoch_ms":true}'),
        (b"a", b'{"version":1,"boot_id":"a","boot_epoch_ms":-1}'),
        (b"a", b'{"version":1,"boot_id":"a","boot_epoch_ms":1e300}'),
        (b"a", b'{"version":1,"boot_id":"\\ud800","boot_epoch_ms":1}'),
    ],
)
def test_what_is_no_record_of_a_boot_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert decode_boot(key, value) is None
    assert decode_boot(*encode_boot("a", "pi-1", 5)) == ("a", 5)


@pytest.mark.parametrize("kernel", [True, False, None])
def test_the_kernel_is_asked_and_a_clock_before_this_version_is_not_set(
    kernel: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drupelet.host.boot_clock.kernel_synchronised", lambda: kernel)
    monkeypatch.setattr("drupelet.host.boot_clock.TIMESYNC_MARK", "/nonexistent")
    clock = KernelBootClock()
    assert clock.is_synchronised() is kernel
    assert clock.boot_id
    monkeypatch.setattr(clock, "wall_ms", lambda: IN_1970)
    assert clock.is_synchronised() is False
    assert KernelBootClock("true").is_synchronised() is True
    assert KernelBootClock("false").is_synchronised() is False
