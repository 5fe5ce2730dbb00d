"""What the parts tell systemd, over real datagram sockets.

Invariants: without NOTIFY_SOCKET nothing is sent and no watchdog is served; a value never makes a second line; a
watchdog of another process is not ours; WATCHDOG=1 goes on while a sync waits for the disk, and ends when one job waits
longer than the bound, not when many short ones follow each other; a gateway whose peers are away is ready all the same.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from pathlib import Path
from typing import TypeAlias

import pytest

import gateway.app
import gateway.notify
import mirror.notify
from edge_broker.network import notify
from edge_broker.network.worker import Worker
from gateway.app import Gateway
from gateway.config import parse_config
from tests.support.notify_socket import NotifySocket
from tests.support.ports import free_port
from tests.support.waiting import CALL_S

AnyNotifier: TypeAlias = type[notify.Notifier] | type[gateway.notify.Notifier] | type[mirror.notify.Notifier]
ANOTHERS = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}
every_part = pytest.mark.parametrize(
    "notifier",
    [notify.Notifier, gateway.notify.Notifier, mirror.notify.Notifier],
    ids=["edge_broker", "gateway", "mirror"],
)


@every_part
@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_what_is_told_arrives_as_one_datagram(notifier: AnyNotifier, abstract: bool) -> None:
    with NotifySocket(abstract=abstract) as systemd:
        notifier(systemd.environment()).tell("READY=1", "STATUS=two\nREADY=1\nlines")
        assert systemd.receive() == {"READY": "1", "STATUS": "two READY=1 lines"}


@every_part
def test_without_a_socket_nothing_happens(notifier: AnyNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: object) -> None:
        raise AssertionError("a socket was made")

    monkeypatch.setattr("socket.socket", no_socket)
    notifier({}).tell("READY=1")
    notifier({"NOTIFY_SOCKET": ""}).tell("READY=1")


@every_part
def test_a_socket_that_is_gone_is_logged_and_ends_nothing(
    notifier: AnyNotifier, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1")
    assert "notify" in capfd.readouterr().err + caplog.text


@pytest.mark.parametrize("part", [gateway.notify, mirror.notify], ids=["gateway", "mirror"])
async def test_a_turning_loop_is_alive(part: object) -> None:
    with NotifySocket() as systemd:
        telling = asyncio.ensure_future(
            part.Notifier(systemd.environment(watchdog_ms=40)).keep_alive(lambda: "at work")  # type: ignore[attr-defined]
        )
        for _ in range(3):
            assert await asyncio.to_thread(systemd.receive) == {"WATCHDOG": "1", "STATUS": "at work"}
        telling.cancel()


@pytest.mark.parametrize("part", [gateway.notify, mirror.notify], ids=["gateway", "mirror"])
@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "20000"}, {"NOTIFY_SOCKET": "/x"}, ANOTHERS],
    ids=["nothing", "no socket", "no watchdog", "another's watchdog"],
)
async def test_no_watchdog_of_ours_is_none_to_serve(part: object, environment: dict[str, str]) -> None:
    await asyncio.wait_for(part.Notifier(environment).keep_alive(lambda: ""), CALL_S)  # type: ignore[attr-defined]


@pytest.mark.parametrize("environment", [{}, ANOTHERS])
def test_no_watchdog_of_the_brokers_is_none_to_serve(environment: dict[str, str]) -> None:
    assert notify.Notifier(environment).watchdog_s == 0


def test_the_brokers_own_watchdog_is_served() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9000000", "WATCHDOG_PID": str(os.getpid())}
    assert notify.Notifier(environment).watchdog_s == 9


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
        notifier = notify.Notifier(systemd.environment(watchdog_ms=100))
        telling = asyncio.ensure_future(notify.keep_alive(notifier, [disk.worker], lambda: "serving"))
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
        notifier = notify.Notifier(systemd.environment(watchdog_ms=40))
        telling = asyncio.ensure_future(notify.keep_alive(notifier, [disk.worker], lambda: "serving", stuck_s=2.0))
        while "WATCHDOG" in (message := await asyncio.to_thread(systemd.receive)):
            pass
        assert message["STATUS"].startswith("serving")
        assert len(systemd.messages) > 5  # it was alive for the time of the bound
        disk.hangs.set()
        await asyncio.to_thread(systemd.wait_for, "WATCHDOG")
        telling.cancel()
    disk.close()


async def test_many_short_jobs_are_no_stuck_one() -> None:
    disk = Disk()
    watch = notify.JobWatch(disk.worker)
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
