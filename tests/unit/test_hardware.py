"""Boards read from mock trees and from this machine.

Invariants: every machine answers the same fields, null where it cannot tell; unknown is never said to be fine; the
mock boards read as the golden files say (each was checked by hand against its tree).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hardware import health, system_files
from hardware.board import read_board
from hardware.cli import main
from hardware.health import problems, read_health
from hardware.mock import mock_names, write_mock
from hardware.storage import life_used_percent_max
from hardware.system_files import SystemFiles

GOLDEN = Path(__file__).parents[1] / "golden/boards"


def test_every_mock_board_has_its_golden_files() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(
        f"{name}.{command}.json" for name in mock_names() for command in ("show", "health")
    )


@pytest.mark.parametrize("name", mock_names())
def test_mock_boards_read_as_written_down(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "health"):
        status = main([command, "--json", "--mock", name])
        printed = json.loads(capsys.readouterr().out)
        assert printed == json.loads((GOLDEN / f"{name}.{command}.json").read_text())
        assert status == bool(printed.get("problems"))


def test_the_same_fields_on_any_machine(tmp_path: Path) -> None:
    here_board, here_health = read_board(), read_health()
    for name in mock_names():
        root = write_mock(name, tmp_path / name)
        assert read_board(root).keys() == here_board.keys()
        assert read_health(root).keys() == here_health.keys()


def test_this_machine_is_alive() -> None:
    found = read_health(cpu_interval_s=0.05)
    assert 0 <= found["cpu_percent"] <= 100
    assert 0 < found["memory_available_bytes"] < found["memory_total_bytes"]
    assert found["uptime_s"] > 0
    assert found["clock_synchronised"] in {True, False, None}
    assert json.loads(json.dumps(found)) == found


def test_an_empty_machine_knows_nothing_and_nothing_is_wrong(tmp_path: Path) -> None:
    found = read_health(tmp_path)
    assert {value for name, value in found.items() if name not in {"temperatures_celsius", "rtc_present"}} == {None}
    assert problems(found) == []
    assert read_board(tmp_path)["model"] is None


def put(root: Path, name: str, text: str) -> None:
    place = root / name.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_another_make_of_arm_board_is_no_pi(tmp_path: Path) -> None:
    put(tmp_path, "/proc/device-tree/compatible", "xunlong,orangepi-zero\0allwinner,sun8i\0")
    put(tmp_path, "/proc/device-tree/model", "Xunlong Orange Pi Zero\0")
    put(tmp_path, "/proc/cpuinfo", "processor\t: 0\nRevision\t: 0000\n")
    found = read_board(tmp_path)
    assert (found["model"], found["revision_code"], found["maker"]) == ("Xunlong Orange Pi Zero", None, None)


def test_a_new_model_keeps_its_own_name_and_its_voltage(tmp_path: Path) -> None:
    root = write_mock("pi_4b", tmp_path)
    (root / "proc/device-tree/system/linux,revision").write_bytes((0xC03FF0).to_bytes(4, "big"))
    put(root, "/proc/device-tree/model", "Raspberry Pi 9\0")
    put(root, "/captured_commands/vcgencmd_get_throttled", "throttled=0x1")
    found = read_board(root)
    assert (found["model"], found["model_code"], found["memory_mb"]) == ("Raspberry Pi 9", None, 4096)
    assert read_health(root)["under_voltage"] is True


def test_nonsense_in_files_is_unknown(tmp_path: Path) -> None:
    root = write_mock("pi_cm4_emmc", tmp_path)
    put(root, "/captured_commands/vcgencmd_get_throttled", "VCHI initialization failed")
    put(root, "/sys/class/thermal/thermal_zone0/temp", "")
    put(root, "/sys/block/mmcblk0/device/life_time", "worn")
    found = read_health(root)
    unknown = ("throttled", "frequency_capped_occurred", "temperature_celsius", "storage_life_used_percent_max")
    assert [found[name] for name in unknown] == [None] * 4


@pytest.mark.parametrize(
    ("text", "percent"),
    [("0x01 0x01", 10), ("0x02 0x0a", 100), ("0x0b 0x01", 110), ("0x00 0x00", None), (None, None), ("0xff 0x02", 20)],
)
def test_emmc_life_time(text: str | None, percent: int | None) -> None:
    assert life_used_percent_max(text) == percent


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("under_voltage", False, True),
        ("throttled", False, True),
        ("temperature_celsius", 79.9, 80.0),
        ("storage_pre_end_of_life", "warning", "urgent"),
        ("storage_life_used_percent_max", 100, 110),
        ("disk_free_bytes", 64 * 1024 * 1024, 1),
    ],
)
def test_each_problem_is_named(tmp_path: Path, field: str, good: object, bad: object) -> None:
    healthy = read_health(tmp_path)
    assert problems({**healthy, field: good}) == []
    assert len(problems({**healthy, field: bad})) == 1
    assert field in {name for name, _, _ in health.PROBLEMS}


def test_reads_are_bounded_and_refusals_are_unknown(tmp_path: Path) -> None:
    put(tmp_path, "/large", "1" * (2 * system_files.FILE_BYTES_MAX))
    files = SystemFiles(tmp_path)
    assert len(files.data("/large") or b"") == system_files.FILE_BYTES_MAX
    assert files.data("/") is None
    assert SystemFiles().command("false") is None
    assert SystemFiles().command("no-such-command-here") is None


def test_the_table_names_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--mock", "pi_4b"]) == 0
    table = capsys.readouterr().out
    assert "storage.0.kind" in table
    assert "Raspberry Pi 4 Model B Rev 1.5" in table


def test_bad_usage_is_status_2() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "--mock", "no-such-board"])
