"""Disks, cards, what disks say of themselves, and network links.

Invariants: what a device does not tell is null; a bridge that smartctl does not know is not guessed at; why a disk did
not answer is said with a remedy.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hardware.health import read_health
from hardware.mock import write_mock
from hardware.network import network_health, network_links
from hardware.smart import read_smart
from hardware.storage import life_used_percent_max, sd_classes, storage_devices
from hardware.system_files import SystemFiles
from tests.support.board_files import put


@pytest.mark.parametrize(
    ("text", "percent"),
    [("0x01 0x01", 10), ("0x02 0x0a", 100), ("0x0b 0x01", 110), ("0x00 0x00", None), (None, None), ("0xff 0x02", 20)],
)
def test_emmc_life_time(text: str | None, percent: int | None) -> None:
    assert life_used_percent_max(text) == percent


def status_register(**fields: int) -> str:
    register = bytearray(64)
    for byte, value in fields.items():
        register[int(byte.removeprefix("byte"))] = value
    return register.hex()


@pytest.mark.parametrize(
    ("register", "classes"),
    [
        (status_register(byte8=4, byte14=0x39, byte15=30, byte21=2), ["C10", "U3", "V30", "A2"]),
        (status_register(byte8=1), ["C2"]),
        (status_register(byte21=0xF1), ["A1"]),
        (status_register(), []),
        (status_register(byte8=99), []),
        ("00" * 63, None),
        ("not hexadecimal", None),
        (None, None),
    ],
)
def test_sd_classes(register: str | None, classes: list[str] | None) -> None:
    assert sd_classes(register) == classes


@pytest.mark.parametrize(
    ("name", "files", "kind"),
    [
        ("mmcblk0", {"device/type": "SD"}, "sd"),
        ("mmcblk1", {"device/type": "MMC"}, "emmc"),
        ("nvme0n1", {}, "nvme"),
        ("vda", {"queue/rotational": "1"}, "virtual"),
        ("sda", {"queue/rotational": "1"}, "rotating"),
        ("sda", {"queue/rotational": "0"}, "solid_state"),
    ],
)
def test_kinds_of_storage(name: str, files: dict[str, str], kind: str, tmp_path: Path) -> None:
    put(tmp_path, f"/sys/block/{name}/size", "8")
    for file_name, text in files.items():
        put(tmp_path, f"/sys/block/{name}/{file_name}", text)
    assert [device["kind"] for device in storage_devices(SystemFiles(tmp_path))] == [kind]


def test_memory_loops_and_boot_areas_are_no_storage(tmp_path: Path) -> None:
    for name in ("loop0", "ram0", "zram0", "dm-0", "md0", "sr0", "nbd0", "mmcblk0boot0"):
        put(tmp_path, f"/sys/block/{name}/size", "8")
        put(tmp_path, f"/sys/block/{name}/stat", "1 1 1 1 1 1 1 1 1 1 1")
    assert list(storage_devices(SystemFiles(tmp_path))) == []
    assert read_health(tmp_path)["disk_written_bytes"] is None


def test_writes_are_counted_in_sectors_of_512_over_all_disks(tmp_path: Path) -> None:
    for name in ("mmcblk0", "sda"):
        put(tmp_path, f"/sys/block/{name}/stat", " 1 0 20 3 4 0 1000 5 0 6 7 0 0 0 0 0 0")
    found = read_health(tmp_path)
    assert (found["disk_read_bytes"], found["disk_written_bytes"]) == (2 * 20 * 512, 2 * 1000 * 512)


def smartctl(root: Path, words: str, answer: object) -> None:
    put(root, f"/captured_commands/smartctl_-j_-a_{words}", json.dumps(answer))


def refused(words: str) -> dict[str, object]:
    return {"smartctl": {"exit_status": 2, "messages": [{"string": words, "severity": "error"}]}}


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Smartctl open device: /dev/sda failed: Permission denied", "run as root"),
        ("/dev/sda: Unknown USB bridge [0x174c:0x55aa]. Please specify device type with the -d option.", "--smart"),
        ("/dev/sda: Unable to detect device type", "Unable to detect device type"),
    ],
)
def test_why_a_disk_does_not_answer(said: str, remedy: str, tmp_path: Path) -> None:
    root = write_mock("pi_4b", tmp_path)
    smartctl(root, "/dev/sda", refused(said))
    report = read_smart(SystemFiles(root), "auto")["sda"]
    assert isinstance(report, dict)
    assert remedy in str(report.pop("problems"))
    assert set(report.values()) == {None}
    assert read_health(root, smart="auto")["storage_failing"] is None


def test_a_bridges_type_is_for_disks_on_usb_alone(tmp_path: Path) -> None:
    root = write_mock("pi_4b", tmp_path / "usb")
    smartctl(root, "-d_sntrealtek_/dev/sda", {"smartctl": {"exit_status": 0}, "smart_status": {"passed": True}})
    assert read_health(root, smart="sntrealtek")["storage_failing"] is False
    root = write_mock("pi_5", tmp_path / "nvme")
    assert read_health(root, smart="sntrealtek")["storage_failing"] is False


def test_without_smartctl_or_with_an_old_one(tmp_path: Path) -> None:
    root = write_mock("pi_4b", tmp_path)
    put(root, "/captured_commands/smartctl_-j_-a_/dev/sda", "smartctl 6.6 UNRECOGNIZED OPTION: j")
    assert "version 7" in str(read_smart(SystemFiles(root), "auto"))
    (root / "captured_commands/smartctl_-j_-a_/dev/sda").unlink()
    assert "apt install smartmontools" in str(read_smart(SystemFiles(root), "auto"))


@pytest.mark.parametrize(
    ("passed", "warning", "failing"),
    [(True, 0, False), (True, 4, True), (False, 0, True), (None, 0, False), (None, None, None)],
)
def test_a_disk_that_expects_to_fail(
    passed: bool | None, warning: int | None, failing: bool | None, tmp_path: Path
) -> None:
    root = write_mock("pi_5", tmp_path)
    answer: dict[str, object] = {"smartctl": {"exit_status": 8}}
    if passed is not None:
        answer["smart_status"] = {"passed": passed}
    if warning is not None:
        answer["nvme_smart_health_information_log"] = {"critical_warning": warning}
    smartctl(root, "/dev/nvme0n1", answer)
    assert read_health(root, smart="auto")["storage_failing"] is failing


def test_wear_is_that_of_the_most_worn_whoever_tells_it(tmp_path: Path) -> None:
    root = write_mock("pi_5", tmp_path)
    log = {"percentage_used": 120, "data_units_written": 2}
    smartctl(root, "/dev/nvme0n1", {"smartctl": {"exit_status": 0}, "nvme_smart_health_information_log": log})
    found = read_health(root, smart="auto")
    assert found["storage_life_used_percent_max"] == 120
    assert found["smart"]["nvme0n1"]["written_bytes"] == 1_024_000
    assert read_health(root)["storage_life_used_percent_max"] is None


def link(root: Path, name: str, **files: str) -> None:
    put(root, f"/sys/class/net/{name}/device/uevent", "")
    for file_name, text in files.items():
        put(root, f"/sys/class/net/{name}/{file_name}", text)


def test_links_without_a_device_are_none(tmp_path: Path) -> None:
    for name in ("lo", "docker0", "veth12"):
        put(tmp_path, f"/sys/class/net/{name}/operstate", "up")
    files = SystemFiles(tmp_path)
    assert network_links(files) == []
    assert network_health(files) == {"network_links": {}, "network_links_up": None}


@pytest.mark.parametrize(
    ("states", "up"), [(["up", "down"], 1), (["down", "lowerlayerdown"], 0), (["up", "unknown"], None)]
)
def test_how_many_links_are_up(states: list[str], up: int | None, tmp_path: Path) -> None:
    for number, state in enumerate(states):
        link(tmp_path, f"eth{number}", operstate=state)
    assert network_health(SystemFiles(tmp_path))["network_links_up"] == up


@pytest.mark.parametrize(("text", "speed"), [("1000", 1000), ("-1", None), ("", None), ("0", None)])
def test_speed(text: str, speed: int | None, tmp_path: Path) -> None:
    link(tmp_path, "eth0", speed=text)
    assert network_health(SystemFiles(tmp_path))["network_links"]["eth0"]["speed_mbit_s"] == speed


@pytest.mark.parametrize(
    ("row", "signal"),
    [
        (" wlan0: 0000   57.  -53.  -256        0", -53),
        (" wlan0: 0000   57   40   0", None),  # a driver that does not count in dBm
        (" wlan0: 0000", None),
        (" wlan1: 0000   57.  -53.  -256        0", None),
    ],
)
def test_signal(row: str, signal: int | None, tmp_path: Path) -> None:
    link(tmp_path, "wlan0", operstate="up")
    os.makedirs(tmp_path / "sys/class/net/wlan0/wireless")
    put(tmp_path, "/proc/net/wireless", f"Inter-| sta-|\n face | tus |\n{row}\n")
    found = network_health(SystemFiles(tmp_path))["network_links"]["wlan0"]
    assert (found["wireless"], found["signal_dbm"]) == (True, signal)
