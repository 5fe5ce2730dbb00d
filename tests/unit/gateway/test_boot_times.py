"""Records of a board whose clock is not set: their mark, and the time of the boot once it is known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.boot_clock import (
    BOOT_TIMES_TOPIC,
    BootClock,
    KernelBootClock,
    decode_boot,
    encode_boot,
)
from gateway.boot_times import BootTimes
from gateway.records import Record
from gateway.state import StateError

IN_1970, RIGHT = 60_000, 1_795_000_000_000


class FakeClock:
    """A board's clocks: up for a minute, its wall clock at 1970."""

    def __init__(self, boot_id: str = "boot-a", synchronised: bool | None = False) -> None:
        self.boot_id = boot_id
        self.known = synchronised
        self.up_ms, self.now_ms = 60_000, IN_1970

    def boot_time_ms(self) -> int:
        return self.up_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def synchronised(self) -> bool | None:
        return self.known

    def set_right(self, up_ms: int = 100_000) -> None:
        """A time service sets the clock."""
        self.up_ms, self.now_ms, self.known = up_ms, RIGHT + up_ms, True


def of(clock: BootClock, directory: Path) -> BootTimes:
    return BootTimes(clock, directory / "clock.json", "pi-1")


def reading(headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record("mqtt", "readings", b"k", b"v", headers, IN_1970, IN_1970, "mqtt:t")


def published(boots: BootTimes) -> list[Record]:
    """What one check of the running loop hands to the publisher; each record is acknowledged."""
    found: list[Record] = []

    def offer(record: Record, on_acked: Callable[[], None]) -> None:
        found.append(record)
        on_acked()

    async def once() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(boots.run(offer), 0.01)

    asyncio.run(once())
    return found


def test_a_record_of_an_unset_clock_carries_boot_id_and_time_since_boot(tmp_path: Path) -> None:
    boots = of(FakeClock(), tmp_path)
    marked = boots.mark(reading((("source", b"mqtt"),)))
    assert marked.headers == (("source", b"mqtt"), ("boot_id", b"boot-a"), ("boot_time_ms", b"60000"))
    assert marked.timestamp_ms == IN_1970, "the log is as the board had it"
    assert boots.mark(marked) is marked, "a record that becomes a dead letter later keeps its time"
    assert "not synchronised" in str(boots.note())


def test_a_record_of_a_set_clock_costs_nothing_more(tmp_path: Path) -> None:
    boots = of(FakeClock(synchronised=True), tmp_path)
    record = reading()
    assert boots.mark(record) is record
    assert (boots.note(), published(boots), boots.needs_topic) == (None, [], False)


def test_once_synchronised_the_boots_epoch_is_published_once(tmp_path: Path) -> None:
    clock = FakeClock()
    boots = of(clock, tmp_path)
    assert published(boots) == []
    clock.set_right()
    (record,) = published(boots)
    assert (record.topic, record.key) == (BOOT_TIMES_TOPIC, b"boot-a")
    assert decode_boot(record.key, record.value) == ("boot-a", RIGHT)
    clock.now_ms += 3_600_000
    assert published(boots) == [], "a later step is a reason for doubt"
    assert published(of(clock, tmp_path)) == []
    assert boots.note() is None
    clock.known = False
    boots.check()
    assert boots.mark(reading()).headers == (), "its time servers are away: a clock that was set stays set"


def test_a_board_that_synchronises_while_the_gateway_is_stopped(tmp_path: Path) -> None:
    clock = FakeClock()
    of(clock, tmp_path)
    clock.set_right(up_ms=7_200_000)
    (record,) = published(of(clock, tmp_path))
    assert decode_boot(record.key, record.value) == ("boot-a", RIGHT)


def test_what_is_not_acknowledged_is_published_again_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    boots = of(clock, tmp_path)
    clock.set_right()
    boots.check()
    assert boots.due() is not None
    assert [decode_boot(one.key, one.value) for one in published(of(clock, tmp_path))] == [("boot-a", RIGHT)]


def test_a_boot_that_ended_before_it_was_synchronised_is_never_known_and_named(tmp_path: Path) -> None:
    of(FakeClock(), tmp_path)
    boots = of(FakeClock("boot-b", synchronised=True), tmp_path)
    assert "boot-a is not known" in str(boots.note())
    assert published(boots) == []


def test_two_gateways_of_a_board_publish_the_same_key(tmp_path: Path) -> None:
    clock = FakeClock()
    one, other = of(clock, tmp_path / "one"), of(clock, tmp_path / "other")
    clock.set_right()
    (first,), (second,) = published(one), published(other)
    assert (first.key, first.value) == (second.key, second.value)


def test_a_state_that_the_kernel_does_not_tell_is_named(tmp_path: Path) -> None:
    boots = of(FakeClock(synchronised=None), tmp_path)
    record = reading()
    assert boots.mark(record) is record
    assert "unknown" in str(boots.note())


def test_a_clock_that_goes_back_leaves_the_time_since_boot(tmp_path: Path) -> None:
    clock = FakeClock()
    boots = of(clock, tmp_path)
    before = boots.mark(reading())
    clock.now_ms, clock.up_ms = -5, 61_000
    assert [dict(one.headers)["boot_time_ms"] for one in (before, boots.mark(reading()))] == [b"60000", b"61000"]
    clock.known = True
    boots.check()
    assert boots.due() is None, "a time before 1970 is no time of a boot"


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "clock.json").write_text('{"boot_id": 7}')
    with pytest.raises(StateError, match=r"clock\.json"):
        of(FakeClock(), tmp_path)


def test_a_state_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "clock.json.new").mkdir()
    boots = of(FakeClock(), tmp_path)
    assert "cannot be written" in str(boots.note())
    assert boots.mark(reading()).headers


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
    monkeypatch.setattr("drupelet.boot_clock.kernel_synchronised", lambda: kernel)
    monkeypatch.setattr("drupelet.boot_clock.TIMESYNC_MARK", "/nonexistent")
    clock = KernelBootClock()
    assert clock.synchronised() is kernel
    assert clock.boot_id
    monkeypatch.setattr(clock, "wall_ms", lambda: IN_1970)
    assert clock.synchronised() is False
    assert KernelBootClock("true").synchronised() is True
    assert KernelBootClock("false").synchronised() is False
