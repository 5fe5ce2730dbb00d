"""A running broker: the audit log's files beside a command, and the sums of a window that a stop ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_broker.network.log_lines import LINES_MAX
from tests.support.login_client import LoginClient, RefusedError
from tests.support.secured_edge import SecuredEdge
from tests.support.secured_kafka import PASSWORD, USER

GUESSES = LINES_MAX + 5


def test_a_stop_writes_the_sums_and_the_files_have_changes_and_super_users(tmp_path: Path) -> None:
    settings = {"connection.failed.authentication.delay.ms": 0, "super.users": f"User:{USER}"}
    broker = SecuredEdge(tmp_path / "edge", settings=settings)
    log = tmp_path / "edge" / "edge-broker.log"
    with broker:
        for _ in range(GUESSES):
            with LoginClient(broker.login_port) as client, pytest.raises(RefusedError):
                client.log_in("SCRAM-SHA-256", "nobody", "guess")
        with LoginClient(broker.login_port) as client:
            client.log_in("SCRAM-SHA-256", USER, PASSWORD)
        assert "audit-summed" not in log.read_text()
        broker.stop()
    said = log.read_text()
    assert said.count(" log-in-failed ") == LINES_MAX
    assert f"audit-summed of=log-in-failed source=127.0.0.1 left_out={GUESSES - LINES_MAX} " in said
    assert f"principal=User:{USER}" in (broker.data_dir / "security-admins.log").read_text()
    changes = (broker.data_dir / "security-changes.log").read_text()
    assert f"user={USER} mechanism=SCRAM-SHA-512" in changes
    assert " uid=" in changes
