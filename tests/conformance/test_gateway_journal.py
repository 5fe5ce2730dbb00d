"""The journal of a real journald, which runs in a mount namespace of its own, through the gateway into a real broker.

Invariants:
- every entry after the first start arrives, over kill -9 of the gateway, rotation and a killed journalctl;
- what was logged before a reboot arrives after it, all of it, with nothing new to wake the reader;
- the first entry of those chosen arrives, also when the saved entry is none of them;
- what was vacuumed past the saved entry is one ledger record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.gateway_site import read_whole
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.root
JOURNALD = """\
mount --bind "$1" /run
mkdir -p /run/log/journal /run/systemd/journal
mount --bind "$2" /proc/sys/kernel/random/boot_id
SYSTEMD_LOG_TARGET=console exec /lib/systemd/systemd-journald
"""


class Journald:
    """A journald that sees a /run of its own, which outlives it, and a boot of its own at each start."""

    def __init__(self, directory: Path) -> None:
        self.run_directory = directory / "run"
        self.run_directory.mkdir()
        self.boot_id = directory / "boot_id"
        self.ready = self.run_directory / "systemd/journal/stdout"
        self.process = Process(
            "journald",
            ["unshare", "--mount", "bash", "-c", JOURNALD, "journald", self.run_directory, self.boot_id],
            directory,
            ready=self.ready.exists,
            stop_statuses=(0, -signal.SIGTERM),
        )

    def boot(self) -> None:
        self.process.kill()
        self.ready.unlink(missing_ok=True)
        self.boot_id.write_text(f"{uuid.uuid4()}\n")
        self.process.start()

    def run(self, *command: str, text: str = "") -> str:
        inside = ["nsenter", "--target", str(self.process.pid), "--mount", *command]
        return subprocess.run(inside, input=text, check=True, capture_output=True, text=True, timeout=CALL_S).stdout

    def log(self, *lines: str) -> None:
        self.run("systemd-cat", "--identifier=trial", text="".join(f"{line}\n" for line in lines))
        newest = ("journalctl", "--identifier=trial", "--lines=1", "--output=cat")
        wait_until(lambda: lines[-1].endswith(self.run(*newest).strip() or "?"), 10, "journald has taken the lines")


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


def gateway_of(edge, tmp_path: Path, journald: Journald, more: str = "") -> Process:
    config = tmp_path / "g.toml"
    config.write_text(
        f'state_dir = "state"\nmetrics = "127.0.0.1:{free_port()}"\n[kafka]\n'
        f'bootstrap_servers = "{edge.bootstrap}"\n[journal]\nsave_interval_ms = 0\n'
        f'directory = "{journald.run_directory}/log/journal"\n{more}'
    )
    command: list[str | Path] = [runtimes.console_script("edge-gateway"), "run", "--config", config]
    return Process("gateway", command, tmp_path, ready="edge-gateway ready")


def test_the_journal_arrives_whatever_is_killed_rotated_or_vacuumed(edge, tmp_path):
    journald = Journald(tmp_path)
    gateway = gateway_of(edge, tmp_path, journald)
    with all_stopped(journald.process):
        journald.boot()
        journald.log("before")
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


def test_what_a_reboot_interrupted_arrives_after_it_and_at_once(edge, tmp_path):
    journald = Journald(tmp_path)
    gateway = gateway_of(edge, tmp_path, journald)
    with all_stopped(journald.process, gateway):
        journald.boot()
        journald.log("before")
        gateway.start()
        journald.log("one")
        arrived(edge, b"one")
        gateway.kill()
        unread = [f"unread {number}" for number in range(20)]
        journald.log(*unread)
        journald.boot()
        journald.log("after")
        gateway.start()
        arrived(edge, b"one", *(line.encode() for line in unread), b"after")


def test_the_first_chosen_entry_arrives_though_the_saved_one_is_not_chosen(edge, tmp_path):
    journald = Journald(tmp_path)
    gateway = gateway_of(edge, tmp_path, journald, 'priority = "err"\n')
    with all_stopped(journald.process, gateway):
        journald.boot()
        journald.log("not chosen")
        gateway.start()
        journald.log("<3>one", "<3>two")
        arrived(edge, b"one", b"two")
