"""The journal of a real journald, which runs in a mount namespace of its own, through the gateway into a real broker.

Invariants:
- every entry after the first start arrives, over kill -9 of the gateway, rotation and a killed journalctl;
- what was vacuumed past the saved entry is one ledger record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.gateway_site import read_whole
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.root
JOURNALD = """\
mount -t tmpfs tmpfs /run
mkdir -p /run/log/journal /run/systemd/journal
SYSTEMD_LOG_TARGET=console exec /lib/systemd/systemd-journald
"""


class Journald:
    """A journald that sees a /run of its own."""

    def __init__(self, directory: Path) -> None:
        self.process = Process(
            "journald",
            ["unshare", "--mount", "bash", "-c", JOURNALD],
            directory,
            ready=lambda: os.path.exists(f"{self.root}/run/systemd/journal/stdout"),
            stop_statuses=(0, -signal.SIGTERM),
        )

    @property
    def root(self) -> str:
        return f"/proc/{self.process.pid}/root"

    def run(self, *command: str, text: str = "") -> None:
        inside = ["nsenter", "--target", str(self.process.pid), "--mount", *command]
        subprocess.run(inside, input=text.encode(), check=True, capture_output=True, timeout=CALL_S)

    def log(self, text: str) -> None:
        self.run("systemd-cat", "--identifier=trial", text=text + "\n")


@pytest.fixture
def edge(tmp_path):
    with EdgeBroker(tmp_path) as broker:
        yield broker


def trial_lines(edge) -> list[bytes]:
    """What arrived of our own entries, once each: a kill may repeat some."""
    found = [message.value() for message in read_whole(edge.bootstrap, "logs") if message.key() == b"trial"]
    return list(dict.fromkeys(found))


def arrived(edge, *texts: bytes) -> None:
    wait_until(lambda: trial_lines(edge) == list(texts), 60, f"{texts} arrive")


def test_the_journal_arrives_whatever_is_killed_rotated_or_vacuumed(edge, tmp_path):
    journald = Journald(tmp_path)
    with all_stopped(journald.process):
        journald.process.start()
        journald.log("before")
        config = tmp_path / "g.toml"
        config.write_text(
            f'state_dir = "state"\nmetrics = "127.0.0.1:{free_port()}"\n[kafka]\n'
            f'bootstrap_servers = "{edge.bootstrap}"\n[journal]\nsave_interval_ms = 0\n'
            f'directory = "{journald.root}/run/log/journal"\n'
        )
        command: list[str | Path] = [runtimes.console_script("edge-gateway"), "run", "--config", config]
        gateway = Process("gateway", command, tmp_path, ready="edge-gateway ready")
        with all_stopped(gateway):
            gateway.start()
            journald.log("one")
            arrived(edge, b"one")
            gateway.kill()
            journald.log("two")
            gateway.start()
            arrived(edge, b"one", b"two")
            journald.run("journalctl", "--rotate")
            journald.log("three")
            arrived(edge, b"one", b"two", b"three")
            for child in Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            journald.log("four")
            arrived(edge, b"one", b"two", b"three", b"four")
            gateway.kill()
            journald.log("lost")
            journald.run("journalctl", "--rotate")
            journald.run("journalctl", "--vacuum-files=1")
            journald.log("after")
            gateway.start()
            arrived(edge, b"one", b"two", b"three", b"four", b"after")
            wait_until(lambda: read_whole(edge.bootstrap, "__edge_ledger"), 30, "the loss is ledgered")
    (record,) = [json.loads(message.value()) for message in read_whole(edge.bootstrap, "__edge_ledger")]
    assert (record["cause"], record["topic"], record["records"]) == ("source_offset_out_of_range", "logs", None)
