"""What a service tells systemd, over real datagram sockets.

Invariants: without NOTIFY_SOCKET nothing is sent and no watchdog is served; a value never makes a second line; a
watchdog of another process is not ours; a socket that is gone ends nothing.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from drupelet.host.systemd import Notifier, alive
from tests.support.notify_socket import NotifySocket
from tests.support.waiting import CALL_S

ANOTHERS = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}


def never(**fields: object) -> None:
    raise AssertionError(fields)


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_what_is_told_arrives_as_one_datagram(abstract: bool) -> None:
    with NotifySocket(abstract=abstract) as systemd:
        Notifier(systemd.environment(), never).notify("READY=1", "STATUS=two\nREADY=1\nlines")
        assert systemd.receive() == {"READY": "1", "STATUS": "two READY=1 lines"}


def test_without_a_socket_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: object) -> None:
        raise AssertionError("a socket was made")

    monkeypatch.setattr("socket.socket", no_socket)
    Notifier({}, never).notify("READY=1")
    Notifier({"NOTIFY_SOCKET": ""}, never).notify("READY=1")


def test_a_socket_that_is_gone_is_told_and_ends_nothing(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}, lambda **fields: told.append(fields))
    notifier.notify("READY=1", "STATUS=up")
    assert [(fields["message"], type(fields["error"])) for fields in told] == [
        ("READY=1\nSTATUS=up", FileNotFoundError)
    ]


async def test_a_turning_loop_is_alive() -> None:
    with NotifySocket() as systemd:
        notifier = Notifier(systemd.environment(watchdog_ms=40), never)
        telling = asyncio.ensure_future(notifier.keep_alive(alive(lambda: "at work")))
        for _ in range(3):
            assert await asyncio.to_thread(systemd.receive) == {"WATCHDOG": "1", "STATUS": "at work"}
        telling.cancel()


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "20000"}, {"NOTIFY_SOCKET": "/x"}, ANOTHERS],
    ids=["nothing", "no socket", "no watchdog", "another's watchdog"],
)
async def test_no_watchdog_of_ours_is_none_to_serve(environment: dict[str, str]) -> None:
    notifier = Notifier(environment, never)
    assert notifier.watchdog_s == 0
    await asyncio.wait_for(notifier.keep_alive(alive(str)), CALL_S)


def test_our_own_watchdog_is_served() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier(environment, never).watchdog_s == 9
