"""A start that is refused leaves nothing in its process: no thread, no port, no lock; the next start succeeds."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_broker import cli
from tests.support.certificates import Authority
from tests.support.command import in_process
from tests.support.ports import free_port

main = in_process(cli.main)
ONE = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another process listens."""
    with socket.create_server((ONE, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Serve with TLS; return the last line of standard error of a start that is refused."""
    keystore = Authority(tmp_path / "ca").store("board", f"DNS:localhost,IP:{ONE}")

    def run(listeners: str, *words: str) -> str:
        settings = [f"listeners={listeners}", "listener.security.protocol.map=TLS:SSL,PLAIN:PLAINTEXT"]
        settings.append(f"ssl.keystore.location={keystore}")
        options = [word for setting in settings for word in ("--set", setting)]
        assert main(["serve", "--data-dir", str(tmp_path / "data"), *options, *words]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


def test_a_listener_with_tls_whose_port_is_taken(serve: Callable[..., str], taken: int) -> None:
    assert f"cannot listen on {ONE}:{taken}: address already in use" in serve(f"TLS://{ONE}:{taken}")


def test_the_second_listener_whose_port_is_taken_closes_the_first(serve: Callable[..., str], taken: int) -> None:
    port = free_port()
    assert f"cannot listen on {ONE}:{taken}" in serve(f"TLS://{ONE}:{port},PLAIN://{ONE}:{taken}")
    with socket.create_server((ONE, port)):
        pass


def test_metrics_whose_port_is_taken(serve: Callable[..., str], taken: int) -> None:
    port = free_port()
    said = serve(f"TLS://{ONE}:{port}", "--metrics", f"{ONE}:{taken}")
    assert f"cannot serve metrics on {ONE}:{taken}: address already in use" in said
    with socket.create_server((ONE, port)):
        pass


def test_a_key_that_does_not_exist(serve: Callable[..., str]) -> None:
    assert "nowhere.pem" in serve(f"TLS://{ONE}:{free_port()}", "--set", "ssl.keystore.location=/nowhere.pem")


def test_a_data_directory_of_another_broker_id(serve: Callable[..., str], taken: int) -> None:
    listeners = f"TLS://{ONE}:{taken}"
    assert "address already in use" in serve(listeners, "--set", "broker.id=4")
    said = serve(listeners, "--set", "broker.id=5")
    assert said.startswith("edge-broker: broker.id is 5, and the data directory /")
    assert "/data is of broker 4; set broker.id=4, give this broker its own card" in said
    assert "address already in use" in serve(listeners, "--set", "broker.id=4")
