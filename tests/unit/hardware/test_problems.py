"""What is wrong, how badly, and how a monitoring system is told.

Invariants: what is unknown is never wrong; every rule is met by its own example and by a mock board; a check's status
is that of the worst problem, and its line is one line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hardware import JSON
from hardware.cli import main
from hardware.health import read_health
from hardware.mock import mock_names, write_mock
from hardware.problems import FIELDS, Status, check, find_problems
from tests.support.board_files import GOLDEN, put

W, C = Status.WARNING, Status.CRITICAL
LIVE_ONLY = {"disk_free_bytes", "clock_synchronised"}  # a captured tree cannot say that they are bad
EXAMPLES: list[tuple[str, JSON, JSON, Status]] = [
    ("under_voltage", False, True, C),
    ("under_voltage_occurred", False, True, W),
    ("supply_weak", False, True, W),
    ("throttled", False, True, W),
    ("temperature_celsius", 79.9, 80.0, W),
    ("temperature_celsius", 79.9, 85.0, C),
    ("storage_failing", False, True, C),
    ("storage_pre_end_of_life", "normal", "warning", W),
    ("storage_pre_end_of_life", "normal", "urgent", C),
    ("storage_life_used_percent_max", 90, 100, W),
    ("storage_life_used_percent_max", 90, 110, C),
    ("file_system_errors", 0, 1, C),
    ("disk_free_bytes", 64 * 1024 * 1024, 64 * 1024 * 1024 - 1, C),
    ("network_links_up", 1, 0, C),
    ("clock_synchronised", True, False, W),
    ("rtc_cell_never_charged", False, True, W),
    ("watchdog_active", True, False, W),
    ("cgroup_memory", True, False, W),
]


@pytest.fixture
def unknown(tmp_path: Path) -> dict[str, JSON]:
    return read_health(tmp_path)


@pytest.mark.parametrize(("field", "good", "bad", "status"), EXAMPLES)
def test_each_problem_has_its_severity(
    field: str, good: JSON, bad: JSON, status: Status, unknown: dict[str, JSON]
) -> None:
    assert find_problems({**unknown, field: good}) == []
    assert [(problem.field, problem.status) for problem in find_problems({**unknown, field: bad})] == [(field, status)]
    assert find_problems({**unknown, field: bad}, [field]) == []


def test_every_rule_has_an_example_and_a_mock_board(tmp_path: Path) -> None:
    assert {field for field, _, _, _ in EXAMPLES} == set(FIELDS)
    readings = [read_health(write_mock(name, tmp_path / name), smart="auto") for name in mock_names()]
    assert {problem.field for health in readings for problem in find_problems(health)} == set(FIELDS) - LIVE_ONLY


def test_the_worst_comes_first(unknown: dict[str, JSON]) -> None:
    found = find_problems({**unknown, "throttled": True, "file_system_errors": 1, "supply_weak": True})
    assert [problem.field for problem in found] == ["file_system_errors", "supply_weak", "throttled"]


def test_a_check_is_unknown_only_if_nothing_is_known(unknown: dict[str, JSON]) -> None:
    assert check(unknown)[0] is Status.UNKNOWN
    assert check({**unknown, "throttled": False}) == (
        Status.OK,
        "OK: 1 of 15 things known, none wrong",
    )
    assert check({**unknown, "throttled": True})[0] is Status.WARNING
    assert check({**unknown, "throttled": False}, ["throttled"])[0] is Status.UNKNOWN


def test_performance_data(unknown: dict[str, JSON]) -> None:
    known = {"temperature_celsius": 47.8, "disk_free_bytes": 10**9, "cpu_percent": 1.5, "disk_written_bytes": 512}
    assert check({**unknown, **known})[1].partition(" | ")[2] == (
        "temp=47.8;80;85 cpu=1.5% disk_free=1000000000B;;67108864: disk_written_bytes=512c"
    )


@pytest.mark.parametrize("name", mock_names())
def test_checks_of_mock_boards_are_as_written_down(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["health", "--check", "--mock", name])
    assert f"{status} {capsys.readouterr().out}" == (GOLDEN / f"{name}.check.txt").read_text()


def test_a_check_of_this_machine_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["health", "--check"])
    line = capsys.readouterr().out
    assert re.fullmatch(r"(OK|WARNING|CRITICAL): [^|\n]+ \| [^|\n]+\n", line)
    assert Status[line.partition(":")[0]] == status


def test_problems_that_are_ignored_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    fields = ["temperature_celsius", "cgroup_memory"]
    assert main(["health", "--mock", "pi_zero_2w", *(word for field in fields for word in ("--ignore", field))]) == 0
    assert main(["health", "--mock", "pi_zero_2w", "--ignore", fields[0]]) == 1
    assert "cgroup_enable=memory" in capsys.readouterr().out


def test_a_machine_that_tells_nothing_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "/etc/os-release", "")
    assert main(["health", "--check", "--root", str(tmp_path)]) == Status.UNKNOWN
    assert capsys.readouterr().out.startswith("UNKNOWN: ")


@pytest.mark.parametrize("words", [["--mock", "none"], ["--json"], ["--ignore", "nothing"], ["--smart", "guess"]])
def test_bad_usage_of_a_check_is_unknown(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="3"):
        main(["health", "--check", *words])
    with pytest.raises(SystemExit, match="2"):
        main(["health", *(word for word in words if word != "--json"), "--no-such-option"])


def test_help_of_a_check_is_no_failure() -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["health", "--check", "--help"])


def test_a_check_without_psutil_is_unknown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.delitem(sys.modules, "hardware.health")
    assert main(["health", "--check"]) == Status.UNKNOWN
    assert "pip install '.[hardware]'" in capsys.readouterr().err
