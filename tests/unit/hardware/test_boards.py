"""What boards are, read from mock trees and from this machine.

Invariants: every machine answers the same fields, null where it cannot tell; the mock boards read as the golden files
say (each was checked by hand against its tree); every file of a mock board is read, every field has a value on some
mock board.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware import JSON, system_files
from hardware.board import read_board
from hardware.cli import main
from hardware.health import LOAD_FIELDS, read_health
from hardware.mock import mock_names, mock_tree, write_mock
from hardware.system_files import SystemFiles
from hardware.table import is_block, left_out, table
from tests.support.board_files import GOLDEN, put, put_cell

FIRST_SOURCES = [
    "captured_commands/vcgencmd_get_throttled",
    "proc/cpuinfo",
    "proc/device-tree/chosen/rpi-sdram-size-gbit",
    "proc/device-tree/system/linux,revision",
]
COMMANDS = {"show.json": ["show", "--json"], "health.json": ["health", "--json", "--smart"]}


def test_every_mock_board_has_its_golden_files() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(
        f"{name}.{ending}" for name in mock_names() for ending in (*COMMANDS, "check.txt")
    )


@pytest.mark.parametrize("name", mock_names())
@pytest.mark.parametrize("ending", COMMANDS)
def test_mock_boards_read_as_written_down(name: str, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([*COMMANDS[ending], "--mock", name])
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((GOLDEN / f"{name}.{ending}").read_text())
    assert status == bool(printed.get("problems"))


def test_the_same_fields_on_any_machine(tmp_path: Path) -> None:
    here_board, here_health = read_board(), read_health()
    for name in mock_names():
        root = write_mock(name, tmp_path / name)
        assert read_board(root).keys() == here_board.keys()
        assert read_health(root).keys() == here_health.keys()


def leaves(value: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    """List every field with its value; the names of disks, links and sensors, and places in lists, are one."""
    named = ("temperatures_celsius", "smart", "network_links")
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{'*' if path.rsplit('.', 1)[-1] in named else name}")
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for each in value:
            yield from leaves(each, f"{path}.*")
    else:
        yield path, value


def test_every_field_has_a_value_on_some_mock_board(tmp_path: Path) -> None:
    found = [
        leaf
        for name in mock_names()
        for root in [write_mock(name, tmp_path / name)]
        for leaf in [*leaves(read_board(root)), *leaves(read_health(root, smart="auto"))]
    ]
    unknown = {path for path, _ in found} - {path for path, value in found if value not in (None, [], {})}
    assert unknown - {".smart.*.problems", ".storage", ".smart"} == {f".{name}" for name in LOAD_FIELDS}


@pytest.mark.parametrize("name", mock_names())
def test_every_file_of_a_mock_board_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_mock(name, tmp_path.resolve())
    asked: set[str] = set()
    for method in ("data", "exists", "resolve"):
        real = getattr(SystemFiles, method)
        monkeypatch.setattr(SystemFiles, method, lambda s, name, real=real: (asked.add(name), real(s, name))[1])
    match = SystemFiles.match
    monkeypatch.setattr(
        SystemFiles, "match", lambda s, pattern: (asked.update(match(s, pattern)), match(s, pattern))[1]
    )
    read_board(root)
    read_health(root, smart="auto")
    for first in FIRST_SOURCES:  # what is read where these are missing
        (root / first).unlink(missing_ok=True)
    read_board(root)
    read_health(root)
    assert {own(root, file_name) for file_name in mock_tree(name)} - set(touched(root, asked)) == set()


def own(root: Path, name: str) -> Path:
    """Place a name by the real directory that it is in, itself not followed."""
    place = root / name.lstrip("/")
    return place.parent.resolve() / place.name


def touched(root: Path, names: set[str]) -> Iterator[Path]:
    """List the files, and the links on the way to them, that a reader of these names comes by."""
    for name in names:
        parts = name.lstrip("/").split("/")
        for end in range(1, len(parts) + 1):
            yield own(root, "/".join(parts[:end]))
            yield (root / "/".join(parts[:end])).resolve()


def test_this_machine_is_described_by_its_own_kernel_and_system() -> None:
    found = read_board()
    assert (found["machine"], found["page_size_bytes"]) == (platform.machine(), resource.getpagesize())
    assert found["userland_bits"] == 8 * struct.calcsize("P")
    assert found["processor_cores"] == os.cpu_count()
    assert json.loads(json.dumps(found)) == found


def test_another_make_of_arm_board_is_no_pi(tmp_path: Path) -> None:
    put(tmp_path, "/proc/device-tree/compatible", "xunlong,orangepi-zero\0allwinner,sun8i\0")
    put(tmp_path, "/proc/device-tree/model", "Xunlong Orange Pi Zero\0")
    put(tmp_path, "/proc/cpuinfo", "processor\t: 0\nRevision\t: 0000\n")
    found = read_board(tmp_path)
    assert (found["model"], found["revision_code"], found["maker"]) == ("Xunlong Orange Pi Zero", None, None)


def test_a_new_model_keeps_its_own_name_and_its_voltage(tmp_path: Path) -> None:
    root = write_mock("pi_4b", tmp_path)
    put_cell(root, "/proc/device-tree/system/linux,revision", 0xC03FF0)
    put(root, "/proc/device-tree/model", "Raspberry Pi 9\0")
    put(root, "/captured_commands/vcgencmd_get_throttled", "throttled=0x1")
    found = read_board(root)
    assert (found["model"], found["model_code"], found["memory_mb"]) == ("Raspberry Pi 9", None, 4096)
    assert read_health(root)["under_voltage"] is True


@pytest.mark.parametrize("model", ["Raspberry Pi Zero 3 W Rev 1.0", "Raspberry Pi Compute Module 6 Rev 1.0"])
def test_a_new_model_of_a_family_without_a_detector_has_none(model: str, tmp_path: Path) -> None:
    root = write_mock("pi_3b_plus", tmp_path)
    put_cell(root, "/proc/device-tree/system/linux,revision", 0xC03FF0)
    put(root, "/proc/device-tree/model", f"{model}\0")
    found = read_health(root)
    assert (found["under_voltage"], found["under_voltage_occurred"], found["throttled"]) == (None, None, True)


@pytest.mark.parametrize(
    ("gigabits", "code", "total_kib", "memory_mb"),
    [
        (8, 0xF04171, 900_000, 1024),  # memory code 7: the device tree tells
        (128, 0xC03115, 900_000, 16384),  # and is believed before the code
        (None, 0xF04171, 16_500_000, 16384),  # an older bootloader tells nothing: what the kernel has, rounded up
        (None, 0xF04171, 3_884_564, 4096),
        (None, 0xF04171, 426_920, 512),
        (None, 0xC03115, 900_000, 4096),
        (0, 0xC03115, 900_000, 4096),
    ],
)
def test_memory_is_told_by_device_tree_code_and_kernel(
    gigabits: int | None, code: int, total_kib: int, memory_mb: int, tmp_path: Path
) -> None:
    put_cell(tmp_path, "/proc/device-tree/system/linux,revision", code)
    if gigabits is not None:
        put_cell(tmp_path, "/proc/device-tree/chosen/rpi-sdram-size-gbit", gigabits)
    put(tmp_path, "/proc/meminfo", f"MemTotal:       {total_kib} kB\n")
    assert read_board(tmp_path)["memory_mb"] == memory_mb


@pytest.mark.parametrize(
    ("code", "model", "name"),
    [
        (0xD04190, "Raspberry Pi 500 Rev 1.0", "500"),
        (0xE04190, "Raspberry Pi 500 Rev 1.0", "500+"),
        (0xF04190, "Raspberry Pi 500+ Rev 1.0", "500+"),
    ],
)
def test_the_500_plus_is_told_from_the_500(code: int, model: str, name: str, tmp_path: Path) -> None:
    put_cell(tmp_path, "/proc/device-tree/system/linux,revision", code)
    put(tmp_path, "/proc/device-tree/model", f"{model}\0")
    assert read_board(tmp_path)["model_code"] == name


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({"/sys/fs/cgroup/cgroup.controllers": "cpu io memory"}, True),
        ({"/sys/fs/cgroup/cgroup.controllers": "cpu io pids", "/proc/cgroups": "memory 0 1 1"}, False),
        ({"/proc/cgroups": "#subsys_name hierarchy num_cgroups enabled\nmemory\t4\t63\t1\n"}, True),
        ({"/proc/cgroups": "memory\t0\t63\t0\n"}, False),
        ({"/proc/cgroups": "cpu\t0\t63\t1\n"}, None),  # since Linux 6.12 memory is not listed
        ({}, None),
    ],
)
def test_cgroup_memory(files: dict[str, str], limits: bool | None, tmp_path: Path) -> None:
    for name, text in files.items():
        put(tmp_path, name, text)
    assert read_board(tmp_path)["cgroup_memory"] is limits


@pytest.mark.parametrize(
    ("state", "interval", "holder"),
    [
        ("active", "RuntimeWatchdogUSec=10s", "systemd"),
        ("active", "RuntimeWatchdogUSec=0", "another program"),
        ("active", "RuntimeWatchdogUSec=infinity", "systemd"),
        ("active", "", None),
        ("inactive", "RuntimeWatchdogUSec=10s", "nobody"),
        (None, "RuntimeWatchdogUSec=10s", "systemd"),
        (None, "RuntimeWatchdogUSec=0", None),
    ],
)
def test_who_feeds_the_watchdog(state: str | None, interval: str, holder: str | None, tmp_path: Path) -> None:
    put(tmp_path, "/dev/watchdog0", "")
    if state:
        put(tmp_path, "/sys/class/watchdog/watchdog0/state", f"{state}\n")
    put(tmp_path, "/captured_commands/systemctl_show_--property=RuntimeWatchdogUSec", interval)
    assert read_board(tmp_path)["watchdog_holder"] == holder
    (tmp_path / "dev/watchdog0").unlink()
    assert read_board(tmp_path)["watchdog_holder"] == ("nobody" if state == "inactive" else None)


def test_the_bootloaders_date_in_both_spellings(tmp_path: Path) -> None:
    put_cell(tmp_path, "/proc/device-tree/chosen/bootloader/build_timestamp", 1746713597)
    assert read_board(tmp_path)["bootloader_date"] == "2025-05-08"


def test_reads_are_bounded_and_refusals_are_unknown(tmp_path: Path) -> None:
    put(tmp_path, "/large", "1" * (2 * system_files.FILE_BYTES_MAX))
    files = SystemFiles(tmp_path)
    assert len(files.data("/large") or b"") == system_files.FILE_BYTES_MAX
    assert files.data("/") is None
    assert SystemFiles().command("false") is None
    assert SystemFiles().command("sh", "-c", "echo said; exit 3", any_status=True) == "said"
    assert SystemFiles().command("sleep", "60", timeout_s=0.05) is None
    assert SystemFiles().command("no-such-command-here") is None


def test_links_lead_on_below_the_root_and_here(tmp_path: Path) -> None:
    assert SystemFiles(write_mock("pi_4b", tmp_path)).resolve("/sys/block/sda").startswith("/sys/devices/platform/scb/")
    assert SystemFiles().resolve("/proc/self") == f"/proc/{os.getpid()}"


def test_an_unknown_mock_board_is_named() -> None:
    with pytest.raises(KeyError, match="no mock board 'pi_99'"):
        mock_tree("pi_99")


@pytest.mark.parametrize("board", mock_names())
@pytest.mark.parametrize("command", ["show", "health"])
def test_the_table_has_what_the_board_has_and_json_every_field(
    capsys: pytest.CaptureFixture[str], command: str, board: str
) -> None:
    main([command, "--mock", board])
    lines = capsys.readouterr().out.splitlines()
    main([command, "--mock", board, "--json"])
    fields = json.loads(capsys.readouterr().out)
    names = {line.split()[0] for line in lines if line and not line.startswith(" ")}
    plain = {name: value for name, value in fields.items() if not is_block(value)}
    assert {name for name, value in plain.items() if value not in (None, [], {})} <= names
    assert not {name for name, value in plain.items() if value is None} - {"smart"} & names
    assert not [line for line in lines if line.split()[1:] == ["unknown"]]
    if missing := left_out(fields | ({"smart": ""} if command == "health" else {})):
        assert f"{missing} fields are left out, which this machine lacks or does not tell: null in --json" in lines


def test_problems_stand_above_all_and_what_they_are_about_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--mock", "pi_zero_2w"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["problems", "the", "processor", "is"]
    assert lines[1].startswith("  ")
    assert lines[2].split()[0] == "temperature_celsius"
    assert lines[-1].startswith("not judged, as this machine does not tell: ")


def test_a_board_without_problems_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(table({"problems": [], "model": None})) == ["problems  none"]


def test_the_table_says_it_as_people_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--mock", "pi_4b"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"storage: sda", "size_bytes 240.1 GB", "sd_classes C10; U3; V30; A2"} <= set(rows)


def test_bad_usage_is_status_2() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "--mock", "no-such-board"])
