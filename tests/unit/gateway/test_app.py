"""The gateway put together: what ends it, and how, without any peer to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from gateway import app
from gateway.app import Gateway
from gateway.config import parse_config
from tests.support.ports import free_port
from tests.support.waiting import CALL_S


def gateway(tmp_path: Path, text: str = "[board]\n", top: str = "stop_timeout_ms = 0") -> Gateway:
    head = f'state_dir = "{tmp_path}/state"\n{top}\n[kafka]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n'
    return Gateway(parse_config(tmp_path / "g.toml", head + text))


async def run_for(gateway: Gateway, then: object) -> None:
    await asyncio.wait_for(gateway.run(lambda: asyncio.get_running_loop().call_soon(then)), CALL_S)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_also_while_the_broker_is_away(tmp_path: Path, number: signal.Signals) -> None:
    await run_for(gateway(tmp_path), lambda: os.kill(os.getpid(), number))


async def test_a_callback_of_ours_that_raises_ends_it_with_that_error(tmp_path: Path) -> None:
    broken = gateway(tmp_path)

    def fail() -> None:
        broken.publisher.offer(None, lambda: None)  # type: ignore[arg-type]

    with pytest.raises(AttributeError, match="has no attribute"):
        await run_for(broken, fail)


async def test_a_metrics_port_that_is_taken_is_a_configuration_error(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(
        ConfigurationError, match=rf"metrics 127.0.0.1:{port} cannot be listened on \(address already in use\): free it"
    ):
        await run_for(gateway(tmp_path, top=f'metrics = "127.0.0.1:{port}"'), lambda: None)
    server.close()


async def test_the_part_that_is_in_trouble_is_named(tmp_path: Path) -> None:
    part = gateway(tmp_path, f'[mqtt]\nport = {free_port()}\n[[mqtt.routes]]\npattern = "a"\ntopic = "t"\n')
    assert "not connected yet" in str(part.problem())


def test_a_state_dir_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"g\.toml: state_dir .*/state is or lies in a file: name a directory"):
        gateway(tmp_path)


async def test_a_task_that_lost_its_cancellation_is_cancelled_again(monkeypatch) -> None:
    """As wait_for of Python 3.11 does when what it waits for ends in the same moment."""
    monkeypatch.setattr(app, "CANCEL_AGAIN_S", 0.01)
    begun = asyncio.Event()
    heard = 0

    async def deaf_once() -> None:
        nonlocal heard
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(CALL_S)
        heard += 1
        await asyncio.sleep(CALL_S)

    task = asyncio.ensure_future(deaf_once())
    await begun.wait()
    await app._cancel([task])
    assert task.cancelled()
    assert heard == 1
