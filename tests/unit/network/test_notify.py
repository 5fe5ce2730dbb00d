"""What broker and gateway tell systemd, over real datagram sockets.

Invariants: WATCHDOG=1 goes on while a sync waits for the disk, and ends when one job waits longer than the bound, not
when many short ones follow each other; a gateway whose peers are away is ready all the same.
"""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

import gateway.app
from drupelet.host.systemd import Notifier
from edge_broker.network.background import systemd_notify
from edge_broker.network.worker import Worker
from gateway.app import Gateway
from gateway.config import parse_config
from tests.support.notify_socket import NotifySocket
from tests.support.ports import free_port


class Disk:
    """A real worker whose jobs wait for the test."""

    def __init__(self) -> None:
        self.worker = Worker("disk", asyncio.get_running_loop())
        self.hangs = threading.Event()

    def hang(self) -> None:
        self.worker.submit(self.hangs.wait, lambda _result, _error: None)

    def close(self) -> None:
        self.hangs.set()
        self.worker.close()


async def test_a_disk_that_hangs_within_the_bound_is_told_and_alive() -> None:
    disk = Disk()
    disk.hang()
    with NotifySocket() as systemd:
        notifier = Notifier(systemd.environment(watchdog_ms=100), print)
        telling = asyncio.ensure_future(systemd_notify.keep_alive(notifier, [disk.worker], lambda: "serving"))
        busy = re.compile("serving; the disk has been busy for [1-9][0-9]* s")
        await asyncio.to_thread(
            systemd.wait_until, lambda told: busy.fullmatch(told["STATUS"]) is not None, "a busy disk"
        )
        assert all(message["WATCHDOG"] == "1" for message in systemd.messages)
        disk.hangs.set()
        await asyncio.to_thread(systemd.wait_for, "STATUS", "serving")
        telling.cancel()
    disk.close()


async def test_a_job_that_outlasts_the_bound_ends_the_watchdog() -> None:
    disk = Disk()
    disk.hang()
    with NotifySocket() as systemd:
        notifier = Notifier(systemd.environment(watchdog_ms=40), print)
        telling = asyncio.ensure_future(
            systemd_notify.keep_alive(notifier, [disk.worker], lambda: "serving", stuck_s=2.0)
        )
        while "WATCHDOG" in (message := await asyncio.to_thread(systemd.receive)):
            pass
        assert message["STATUS"].startswith("serving")
        assert len(systemd.messages) > 5  # it was alive for the time of the bound
        disk.hangs.set()
        await asyncio.to_thread(systemd.wait_for, "WATCHDOG")
        telling.cancel()
    disk.close()


async def test_a_broker_that_cannot_come_back_into_its_cluster_is_not_alive_until_it_can() -> None:
    disk, reasons = Disk(), ["the client of ZooKeeper has ended"]
    with NotifySocket() as systemd:
        notifier = Notifier(systemd.environment(watchdog_ms=40), print)
        broken = lambda: reasons[-1]  # noqa: E731
        telling = asyncio.ensure_future(
            systemd_notify.keep_alive(notifier, [disk.worker], lambda: "serving", stuck_s=60.0, broken=broken)
        )
        for _ in range(3):
            message = await asyncio.to_thread(systemd.receive)
            assert message == {"STATUS": "serving; the client of ZooKeeper has ended"}
        reasons.append("")
        await asyncio.to_thread(systemd.wait_for, "WATCHDOG")
        telling.cancel()
    disk.close()


async def test_many_short_jobs_are_no_stuck_one() -> None:
    disk = Disk()
    watch = systemd_notify.JobWatch(disk.worker)
    for now in range(1, 1000):
        turn, went = threading.Event(), threading.Event()
        disk.worker.submit(lambda turn=turn, went=went: (went.set(), turn.wait()), lambda _result, _error: None)  # type: ignore[misc]
        assert await asyncio.to_thread(went.wait, 60)
        assert watch.busy_s(now) == 0
        assert watch.busy_s(now + 0.5) == 0.5
        turn.set()
    await disk.worker.turn()
    disk.close()


async def run_gateway(tmp_path: Path, text: str, systemd: NotifySocket) -> dict[str, str]:
    head = f'state_dir = "{tmp_path}/state"\n[kafka]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n'
    running = asyncio.ensure_future(Gateway(parse_config(tmp_path / "g.toml", head + text)).run(lambda: None))
    ready = await asyncio.to_thread(systemd.wait_for, "READY")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return ready


@pytest.mark.parametrize("peers", ["[board]\n", "[mqtt]\nport = 1\n[[mqtt.routes]]\npattern = 'a'\ntopic = 't'\n"])
async def test_a_gateway_without_its_peers_is_ready_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: str
) -> None:
    monkeypatch.setattr(gateway.app, "READY_WAIT_S", 0.3)
    with NotifySocket() as systemd:
        for name, value in systemd.environment().items():
            monkeypatch.setenv(name, value)
        ready = await run_gateway(tmp_path, peers, systemd)
    assert "the broker cannot be reached" in ready["STATUS"]
