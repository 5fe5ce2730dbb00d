"""Metrics beyond loopback are for who shows a token, or the network is said to be trusted; else nothing starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.observe.metrics_access import MetricsAccess, access_from, check_metrics
from gateway.cli import main as gateway
from mirror.cli import main as mirror
from tests.support.command import in_process

LAN = "0.0.0.0:9404"
GATEWAY = f'metrics = "{LAN}"\nstate_dir = "s"\n{{more}}\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[board]\n'
MIRROR = f'metrics = "{LAN}"\nsource = "h:1"\ntarget = "h:2"\ntopics = "t"\n{{more}}\n'
Main = Callable[[list[str]], int]


@pytest.fixture(params=[("gateway", gateway, GATEWAY), ("mirror", mirror, MIRROR)], ids=["gateway", "mirror"])
def told(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command of a part over a configuration with metrics in the network; what it says as it ends with 2."""
    name, main, text = request.param

    def run(more: str, command: str, status: int = 2) -> str:
        file = tmp_path / f"{name}.toml"
        file.write_text(text.format(more=more))
        assert in_process(main)([command, "--config", str(file)]) == status
        return capsys.readouterr().err

    return run


def secret(tmp_path: Path, text: str = "t0ken\n", mode: int = 0o640) -> None:
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)


@pytest.mark.parametrize("command", ["run", "check"])
def test_who_would_tell_everybody_does_not_start(told: Callable[..., str], command: str, tmp_path: Path) -> None:
    said = told("", command)
    assert f".toml: metrics {LAN} is open to anybody in the network; set metrics_token_file to" in said
    assert "or network_trusted = true if" in said
    secret(tmp_path, "")
    assert f"metrics_token_file is {tmp_path}/token, which is empty" in told('metrics_token_file = "token"', command)
    secret(tmp_path, mode=0o644)
    assert f"chmod g-w,o= {tmp_path}/token" in told('metrics_token_file = "token"', command)
    assert "metrics_token_file is 1: write a string" in told("metrics_token_file = 1", command)
    assert "network_trusted is 'yes': write true or false" in told('network_trusted = "yes"', command)


@pytest.mark.parametrize("more", ['metrics_token_file = "token"', "network_trusted = true"])
def test_a_token_or_a_trusted_network_is_enough(told: Callable[..., str], more: str, tmp_path: Path) -> None:
    secret(tmp_path)
    assert told(more, "check", 0) == ""


def test_loopback_needs_neither_and_a_token_is_its_first_line(tmp_path: Path) -> None:
    check_metrics(("::1", 1), MetricsAccess(), str)
    secret(tmp_path)
    assert access_from({"metrics_token_file": "token"}, tmp_path, str).token() == b"t0ken"
    assert MetricsAccess().token() == b""
    with pytest.raises(ConfigurationError, match=r"metrics \[::\]:1 is open"):
        check_metrics(("::", 1), MetricsAccess(), str)
