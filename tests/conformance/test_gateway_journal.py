"""Journals of a real journald, in a mount namespace of its own, and of systemd-journal-remote, into a real broker.

Invariants:
- every entry after the first start arrives, over kill -9 of the gateway and rotation;
- every entry of five machines arrives whose clocks differ, also of a file that comes late;
- what was logged before a reboot arrives after it, all of it, with nothing new to wake the reader;
- the first entry of those chosen arrives, also when the saved entry is none of them;
- what was vacuumed unread is one ledger record, with count and sequence numbers;
- journalctl reads the same messages of the same files.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.conformance.journald import Journald
from tests.support.gateway_site import read_whole
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.root
REMOTE = "/lib/systemd/systemd-journal-remote"


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
            assert Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text() == ""  # no process per file
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
    assert (record["cause"], record["topic"]) == ("source_offset_out_of_range", "logs")
    assert record["records"] == record["last_seqnum"] - record["first_seqnum"] + 1 >= 1  # "lost", and journald's own


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


def entries(machine: int, first: int, count: int, *, late_s: int = 0, value: bytes = b"") -> bytes:
    """Return entries in the Journal Export Format, a second apart; the machine's clock is late by `late_s`."""
    found = b""
    for number in range(first, first + count):
        at_us = 1_764_000_000_000_000 + (number - late_s) * 1_000_000
        found += b"__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n" % (at_us, (number + 1) * 1_000_000)
        found += b"_BOOT_ID=%032x\n_MACHINE_ID=%032x\n" % (machine + 100, machine)
        found += b"SYSLOG_IDENTIFIER=trial\nMESSAGE=%d %d %s\n\n" % (machine, number, value)
    return found


def received(directory: Path, machine: int, exported: bytes) -> None:
    """Have systemd-journal-remote append entries to the machine's file."""
    command = [REMOTE, "--output", directory / f"remote-10.0.0.{machine}.journal", "-"]
    subprocess.run(command, input=exported, check=True, capture_output=True, timeout=CALL_S)


def messages_of(path: Path) -> list[str]:
    command = ["journalctl", f"--file={path}", "--output=json", "--all", "--output-fields=MESSAGE", "--no-pager"]
    lines = subprocess.run(command, check=True, capture_output=True, timeout=CALL_S).stdout.splitlines()
    return [json.loads(line)["MESSAGE"] for line in lines]


def test_all_entries_of_machines_whose_clocks_differ_arrive(edge, tmp_path):
    directory = tmp_path / "remote"
    directory.mkdir()
    config = tmp_path / "g.toml"
    config.write_text(
        f'state_dir = "state"\nmetrics = "127.0.0.1:{free_port()}"\n[kafka]\nbootstrap_servers = "{edge.bootstrap}"\n'
        f'[journal]\nstart = "beginning"\nsave_interval_ms = 0\ndirectory = "{directory}"\n'
    )
    command: list[str | Path] = [runtimes.console_script("edge-gateway"), "run", "--config", config]
    gateway = Process("gateway", command, tmp_path, ready="edge-gateway ready")
    with all_stopped(gateway):
        for machine in range(4):
            received(directory, machine, entries(machine, 0, 2, late_s=2 * machine))
        gateway.start()
        wait_until(lambda: len(trial_lines(edge)) == 8, 60, "the first entries arrive")
        for number in range(2, 20, 6):
            for machine in range(4):
                received(directory, machine, entries(machine, number, 6, late_s=2 * machine))
        wait_until(lambda: len(trial_lines(edge)) == 80, 60, "all entries arrive")
        received(directory, 4, entries(4, 0, 40, late_s=86_400, value=b"x" * 5_000))  # late, older, compressed
        wait_until(lambda: len(trial_lines(edge)) == 120, 60, "the late file arrives")
        gateway.kill()
        received(directory, 0, entries(0, 20, 5))
        gateway.start()
        wait_until(lambda: len(trial_lines(edge)) == 125, 60, "what came while the gateway was stopped arrives")
    of_journalctl = [
        message for machine in range(5) for message in messages_of(directory / f"remote-10.0.0.{machine}.journal")
    ]
    assert sorted(line.decode() for line in trial_lines(edge)) == sorted(of_journalctl)
    assert read_whole(edge.bootstrap, "__edge_ledger") == []
