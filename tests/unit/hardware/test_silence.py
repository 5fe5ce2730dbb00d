"""A field that this machine must tell and does not is unknown, and no health.

Invariants: a check is UNKNOWN where nothing is wrong and a field is silent; --ignore accepts it; a captured tree, and a
machine of another kind, are asked for nothing that they cannot tell.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware import JSON
from hardware.health import read_health
from hardware.mock import mock_names, write_mock
from hardware.problems import Status, check
from hardware.silence import silent_fields
from hardware.smart import report
from hardware.system_files import SystemFiles


@pytest.fixture
def pi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, JSON]:
    """A Raspberry Pi 5 that runs, healthy as far as it tells."""
    write_mock("pi_5", tmp_path)
    health = read_health(tmp_path)
    monkeypatch.setattr("hardware.silence.board_model", lambda files: "5B")
    good: dict[str, JSON] = {"throttled": False, "under_voltage": False, "temperature_celsius": 50.0}
    return {**dict.fromkeys(health), **good, "clock_synchronised": True}


@pytest.mark.parametrize("field", ["throttled", "under_voltage", "temperature_celsius", "clock_synchronised"])
def test_what_a_running_pi_must_tell(field: str, pi: dict[str, JSON]) -> None:
    assert check(pi, (), silent_fields(pi))[0] == Status.OK
    pi[field] = None
    silent = silent_fields(pi)
    assert list(silent) == [field]
    status, line = check(pi, (), silent)
    assert (status, line.startswith(f"UNKNOWN: {field} is unknown: ")) == (Status.UNKNOWN, True)
    assert check(pi, [field], silent)[0] == Status.OK
    pi["network_links_up"] = 0
    status, line = check(pi, (), silent)
    assert status == Status.CRITICAL
    assert f"; {field} is unknown: " in line


def test_a_board_without_a_detector_need_not_tell_under_voltage(
    pi: dict[str, JSON], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardware.silence.board_model", lambda files: "Zero 2 W")
    assert silent_fields({**pi, "under_voltage": None}) == {}


def test_another_machine_need_not_tell_what_a_pi_does(pi: dict[str, JSON], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.silence.board_model", lambda files: None)
    assert silent_fields({**dict.fromkeys(pi), "clock_synchronised": True}) == {}


def test_a_disk_that_does_not_answer_is_not_well_because_another_one_does(pi: dict[str, JSON]) -> None:
    answered = report({"smart_status": {"passed": True}}, None)
    pi |= {
        "smart": {"nvme0n1": answered, "sda": report({}, "Permission denied: run as root")},
        "storage_failing": False,
    }
    silent = silent_fields(pi)
    assert silent == {"storage_failing": "sda: Permission denied: run as root"}
    assert check(pi, (), silent)[0] == Status.UNKNOWN


@pytest.mark.parametrize("name", mock_names())
def test_a_captured_tree_is_asked_for_nothing(name: str, tmp_path: Path) -> None:
    write_mock(name, tmp_path)
    assert silent_fields(read_health(tmp_path), tmp_path) == {}
    assert not SystemFiles(tmp_path).live
