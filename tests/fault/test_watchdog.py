"""The parts as systemd sees them: real processes, a real notification socket, stopped, blocked and held up by the disk.

Invariants: READY=1 is said when the port answers, by the broker not before recovery is done, by gateway and mirror also
with nobody to talk to; a process that stands still says no WATCHDOG=1; the broker says it all the while a sync hangs,
tells of it, and loses nothing; STOPPING=1 comes at SIGTERM.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mirror_road import EdgeMirror, produce
from tests.support.notify_socket import NotifySocket
from tests.support.processes import EdgeBroker, Process, can_connect, free_port
from tests.support.runtimes import console_script
from tests.support.waiting import wait_until

WATCHDOG_MS = 200
QUIET_S = 1.5

# The broker with syncs that wait while a file is there: what a card does that is busy with itself
SLOW_CARD = """
import os, sys, time
sync = {name: getattr(os, name) for name in ("fdatasync", "fsync")}
def slowly(name, descriptor):
    while os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    sync[name](descriptor)
os.fdatasync = lambda descriptor: slowly("fdatasync", descriptor)
os.fsync = lambda descriptor: slowly("fsync", descriptor)
from edge_broker.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def systemd() -> Iterator[NotifySocket]:
    with NotifySocket(abstract=True) as listening:
        yield listening


def gateway(directory: Path) -> Process:
    config = directory / "gateway.toml"
    kafka = f'[kafka]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n'
    config.write_text(f'state_dir = "{directory}/state"\nstop_timeout_ms = 0\n{kafka}[board]\n')
    return Process("gateway", [console_script("edge-gateway"), "run", "--config", config], directory)


def mirror(directory: Path) -> Process:
    return EdgeMirror(directory, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", site="plant-7")


@pytest.mark.parametrize("make", [EdgeBroker, gateway, mirror])
def test_a_life_as_systemd_hears_it(make: type[Process], tmp_path: Path, systemd: NotifySocket) -> None:
    part = make(tmp_path)
    part.environment |= systemd.environment(watchdog_ms=WATCHDOG_MS)
    part.spawn()
    try:
        systemd.wait_for("READY")
        for _ in range(3):
            systemd.wait_for("WATCHDOG")
        part.send_signal(signal.SIGSTOP)
        wait_until(lambda: stands_still(part), 10, "every thread stands still")
        systemd.drain(WATCHDOG_MS / 1000)
        assert systemd.drain(QUIET_S) == []
        part.send_signal(signal.SIGCONT)
        systemd.wait_for("WATCHDOG")
        part.send_signal(signal.SIGTERM)
        systemd.wait_for("STOPPING")
        assert part.wait(30) == 0
    finally:
        part.kill()
    assert not any("WATCHDOG" in message for message in systemd.messages if "READY" in message)


def stands_still(process: Process) -> bool:
    """Whether the kernel has stopped every thread of a process; its state is the first word behind the name."""
    stats = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def test_the_broker_is_ready_when_its_port_answers_and_not_before(tmp_path: Path, systemd: NotifySocket) -> None:
    busy, broker = slow_broker(tmp_path, systemd)
    busy.touch()
    broker.spawn()
    try:
        systemd.wait_for("STATUS", f"recovering {broker.data_dir}")
        assert systemd.drain(QUIET_S) == []
        assert not can_connect(broker.port)
        busy.unlink()
        ready = systemd.wait_for("READY")
        assert can_connect(broker.port)
        assert ready["STATUS"] == f"serving 1 topic on {broker.bootstrap}"  # the ledger
    finally:
        broker.kill()


def test_a_card_that_hangs_ends_no_broker(tmp_path: Path, systemd: NotifySocket) -> None:
    busy, broker = slow_broker(tmp_path, systemd)
    with broker:
        produce(broker.bootstrap, "readings", 0, 10)
        busy.touch()
        producing = threading.Thread(target=produce, args=(broker.bootstrap, "readings", 10, 20))
        producing.start()
        hanging = wait_for_status(systemd, r".*the disk has been busy for ([3-9]|\d\d+) s")
        assert all(message.get("WATCHDOG") == "1" for message in hanging)
        busy.unlink()
        wait_until(lambda: not producing.is_alive(), 30, "the producer is answered", seen=systemd.last)
        wait_for_status(systemd, re.escape(f"serving 2 topics on {broker.bootstrap}"))  # the ledger is one


def slow_broker(directory: Path, systemd: NotifySocket) -> tuple[Path, EdgeBroker]:
    """A broker whose syncs wait while the file returned with it is there."""
    busy, broker = directory / "busy", EdgeBroker(directory)
    broker.command[:1] = [sys.executable, "-c", SLOW_CARD, str(busy)]
    broker.environment |= systemd.environment(watchdog_ms=WATCHDOG_MS)
    return busy, broker


def wait_for_status(systemd: NotifySocket, pattern: str) -> list[dict[str, str]]:
    """The messages of the watchdog until one's whole status matches `pattern`."""
    heard: list[dict[str, str]] = []

    def is_wanted(message: dict[str, str]) -> bool:
        if "READY" not in message and "recovering" not in message["STATUS"]:
            heard.append(message)
        return re.fullmatch(pattern, message["STATUS"]) is not None

    systemd.wait_until(is_wanted, pattern)
    return heard
