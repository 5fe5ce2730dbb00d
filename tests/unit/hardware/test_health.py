"""How boards are, read from mock trees and from this machine.

Invariants: unknown is never said to be fine; a reading is cheap enough for every ten seconds on a Zero 2 W; no disk is
asked for SMART unless the caller wants it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from drupelet.host import kernel_clock
from hardware.board import TIMESYNC_MARK
from hardware.health import clock_synchronised, read_health
from hardware.mock import mock_names, write_mock
from hardware.problems import find_problems
from hardware.system_files import SystemFiles
from tests.support.board_files import put, put_cell

FILES_READ_MAX = 30


def test_this_machine_is_alive() -> None:
    found = read_health(cpu_interval_s=0.05)
    assert 0 <= found["cpu_percent"] <= 100
    assert 0 < found["memory_available_bytes"] < found["memory_total_bytes"]
    assert found["uptime_s"] > 0
    assert found["clock_synchronised"] in {True, False, None}
    assert json.loads(json.dumps(found)) == found


UNSYNCHRONISED = kernel_clock.STATUS_UNSYNCHRONISED


@pytest.mark.parametrize(
    ("result", "status", "is_synchronised"),
    [(0, 0, True), (0, UNSYNCHRONISED, False), (5, 0, False), (5, UNSYNCHRONISED, False), (1, 0x0011, True)],
    ids=["synchronised", "never synchronised", "a lost pulse signal", "not synchronised", "a leap second to come"],
)
def test_the_clock_is_synchronised_if_the_kernel_reports_no_error(
    monkeypatch: pytest.MonkeyPatch, result: int, status: int, is_synchronised: bool
) -> None:
    monkeypatch.setattr(kernel_clock, "read", lambda: kernel_clock.KernelClock(result, status))
    assert clock_synchronised(SystemFiles(Path("/"))) is is_synchronised


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_kernel_that_refuses_the_question_leaves_the_mark_of_timesyncd(
    monkeypatch: pytest.MonkeyPatch, has_mark: bool
) -> None:
    def refuse() -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel_clock, "read", refuse)
    monkeypatch.setattr(SystemFiles, "exists", lambda _files, path: has_mark and path == TIMESYNC_MARK)
    assert clock_synchronised(SystemFiles(Path("/"))) is (True if has_mark else None)


def test_the_kernel_answers_every_time_it_is_asked() -> None:
    first, second = kernel_clock.read(), kernel_clock.read()
    assert first.status == second.status
    assert first.is_synchronised is kernel_clock.is_synchronised()
    assert not first.has_error or first.result == kernel_clock.CLOCK_ERROR


def test_an_empty_machine_knows_nothing_and_nothing_is_wrong(tmp_path: Path) -> None:
    found = read_health(tmp_path)
    answered = {"temperatures_celsius": {}, "network_links": {}, "rtc_present": False}
    assert {name: value for name, value in found.items() if value is not None} == answered
    assert find_problems(found) == []


def test_nonsense_in_files_is_unknown(tmp_path: Path) -> None:
    root = write_mock("pi_cm4_emmc", tmp_path)
    nonsense = {
        "/captured_commands/vcgencmd_get_throttled": "VCHI initialization failed",
        "/sys/class/thermal/thermal_zone0/temp": "",
        "/sys/class/hwmon/hwmon0/temp1_input": "hot",
        "/sys/block/mmcblk0/device/life_time": "worn",
        "/sys/block/mmcblk0/stat": "1 2",
        "/sys/fs/ext4/mmcblk0p2/errors_count": "",
        "/sys/class/net/eth0/operstate": "testing",
        "/sys/class/watchdog/watchdog0/state": "asleep",
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "<unknown>",
    }
    for name, text in nonsense.items():
        put(root, name, text)
    found = read_health(root)
    unknown = (
        "throttled", "frequency_capped_occurred", "temperature_celsius", "storage_life_used_percent_max",
        "disk_written_bytes", "file_system_errors", "network_links_up", "watchdog_active", "cpu_frequency_mhz",
    )  # fmt: skip
    assert {name: found[name] for name in unknown} == dict.fromkeys(unknown)


def test_a_reading_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_mock("pi_zero_2w", tmp_path)
    names: list[str] = []
    data = SystemFiles.data
    monkeypatch.setattr(SystemFiles, "data", lambda self, name: (names.append(name), data(self, name))[1])
    read_health(root)
    assert len(names) <= FILES_READ_MAX
    assert [name for name in names if name.startswith("captured_commands")] == [
        "captured_commands/vcgencmd_get_throttled"
    ]


def test_a_machine_that_is_no_pi_runs_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_mock("pc", tmp_path)
    monkeypatch.setattr(SystemFiles, "command", lambda *words: pytest.fail(f"{words} was run"))
    assert read_health(root)["throttled"] is None


@pytest.mark.parametrize("name", mock_names())
def test_no_disk_is_asked_for_smart_by_default(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, words = SystemFiles.command, set()
    monkeypatch.setattr(
        SystemFiles, "command", lambda self, *asked, **how: (words.add(asked[0]), command(self, *asked, **how))[1]
    )
    found = read_health(write_mock(name, tmp_path))
    assert (found["smart"], found["storage_failing"]) == (None, None)
    assert words <= {"vcgencmd"}


def test_under_voltage_by_the_kernels_sensor_where_the_firmware_is_silent(tmp_path: Path) -> None:
    root = write_mock("pi_3b_plus", tmp_path)
    (root / "captured_commands/vcgencmd_get_throttled").unlink()
    put(root, "/sys/class/hwmon/hwmon1/in0_lcrit_alarm", "0")
    assert read_health(root)["under_voltage"] is False
    (root / "sys/class/hwmon/hwmon1/in0_lcrit_alarm").unlink()
    assert read_health(root)["under_voltage"] is None


@pytest.mark.parametrize(
    ("model", "current_ma", "weak"),
    [(0xC04170, 3000, True), (0xC04170, 5000, False), (0xC04170, None, None), (0xC04180, 3000, None)],
)
def test_the_supply_of_a_pi_5_but_not_of_a_module(
    model: int, current_ma: int | None, weak: bool | None, tmp_path: Path
) -> None:
    put_cell(tmp_path, "/proc/device-tree/system/linux,revision", model)
    if current_ma is not None:
        put_cell(tmp_path, "/proc/device-tree/chosen/power/max_current", current_ma)
    assert read_health(tmp_path)["supply_weak"] is weak


@pytest.mark.parametrize(
    ("battery", "charging", "never_charged"),
    [
        ("2984512", "0", True),
        ("2984512", "3000000", False),
        ("5128", "0", False),  # an empty holder
        ("2984512", None, None),
        (None, None, None),
    ],
)
def test_the_clocks_cell(battery: str | None, charging: str | None, never_charged: bool | None, tmp_path: Path) -> None:
    put(tmp_path, "/sys/class/rtc/rtc0/name", "rpi-rtc")
    for name, value in (("battery", battery), ("charging", charging)):
        if value is not None:
            put(tmp_path, f"/sys/class/rtc/rtc0/{name}_voltage", value)
    found = read_health(tmp_path)
    assert (found["rtc_present"], found["rtc_cell_never_charged"]) == (True, never_charged)


def test_a_fan_without_a_speed_wire(tmp_path: Path) -> None:
    put(tmp_path, "/sys/class/hwmon/hwmon1/pwm1", "255")
    found = read_health(tmp_path)
    assert (found["fan_rpm"], found["fan_pwm_percent"]) == (None, 100)
