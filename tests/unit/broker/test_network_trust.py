"""Beyond loopback nothing is served without TLS and a log-in, unless the configuration says that this is meant."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from edge_broker.cli import main
from edge_broker.configuration.config import Endpoint, read_config
from edge_broker.configuration.listeners import open_to_anybody, read_listeners
from tests.support.processes import EdgeBroker, Process
from tests.support.waiting import CALL_S

LAN = "0.0.0.0:0"
SERVE = ["serve", "--listen", LAN, "--advertise", "pi-3.local:9092"]
MAP = "listener.security.protocol.map=LAN:SSL,HERE:PLAINTEXT,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_start_ends_with_the_key_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    error = refused(capsys, *SERVE, "--data-dir", str(data_dir))
    assert f"PLAINTEXT://{LAN} is open to anybody in the network; set edge.network.trusted=true if" in error
    here = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    assert "--metrics [::]:0 is open" in refused(capsys, *here, "--metrics", "[::]:0")
    both = refused(capsys, *SERVE, "--data-dir", str(data_dir), "--metrics", "10.0.0.7:1")
    assert f"PLAINTEXT://{LAN} and --metrics 10.0.0.7:1 are open" in both
    assert not data_dir.exists()


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (["listeners=HERE://127.0.0.1:1,LAN://10.0.0.7:2"], ["LAN://10.0.0.7:2"]),
        (["listeners=HERE://[::1]:1,LAN://10.0.0.7:2", "listener.name.lan.ssl.client.auth=required"], []),
        (["listeners=LAN://10.0.0.7:2", "ssl.client.auth=requested"], ["LAN://10.0.0.7:2"]),
        (["listeners=HERE://10.0.0.7:1", "ssl.client.auth=required"], ["HERE://10.0.0.7:1"]),
        (["listeners=HERE://pi-3:1"], ["HERE://pi-3:1"]),
        (["listeners=HERE://localhost:1"], []),
        (["listeners=LOGIN://10.0.0.7:1"], ["LOGIN://10.0.0.7:1"]),
        (["listeners=LOGIN://127.0.0.1:1,BOTH://10.0.0.7:2"], []),
    ],
)
def test_what_is_open_to_anybody(settings: list[str], found: list[str]) -> None:
    config = read_config(None, "", [*settings, MAP])
    assert open_to_anybody(config, read_listeners(config, None, None), Endpoint("127.0.0.1", 1)) == found


def test_a_data_directory_of_an_older_version_is_served_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EdgeBroker(tmp_path) as broker:
        broker.stop()
        new = [*SERVE, "--data-dir", str(broker.data_dir)]
        assert "edge.network.trusted" in refused(capsys, *new), "made by this version"
        (broker.data_dir / "secured").unlink()
        assert "edge.network.trusted" in refused(capsys, *new, "--set", "edge.network.trusted=false"), "and told so"
        with on_the_network(broker) as process:
            assert "open to anybody" in health(broker)
            assert "warning edge-broker network_not_trusted" in process.log_tail()
        with on_the_network(broker, "--set", "edge.network.trusted=true"):
            assert health(broker) == "ok\n"


def on_the_network(broker: EdgeBroker, *more: str) -> Process:
    """The same broker, listening on every address."""
    command = [*broker.command, *more, "--advertise", broker.bootstrap]
    command[command.index("--listen") + 1] = f"0.0.0.0:{broker.port}"
    return Process("network", command, broker.directory, ready=f"edge-broker ready on 0.0.0.0:{broker.port}")


def health(broker: EdgeBroker, token: str = "") -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(broker.metrics_url.replace("metrics", "health"), headers=headers)
    with urllib.request.urlopen(request, timeout=CALL_S) as answer:
        text: str = answer.read().decode()
    return text


def test_metrics_are_for_who_shows_the_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("a t0ken\n")
    key = f"edge.metrics.token.file={token}"
    config = read_config(None, "", ["listeners=HERE://127.0.0.1:1", MAP, key])
    assert open_to_anybody(config, read_listeners(config, None, None), Endpoint("10.0.0.7", 1)) == []
    token.chmod(0o644)
    here = ["serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    assert f"chmod g-w,o= {token}" in refused(capsys, *here, "--set", key)
    token.chmod(0o600)
    with EdgeBroker(tmp_path, settings={"edge.metrics.token.file": str(token)}) as broker:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            health(broker)
        assert health(broker, "a t0ken") == "ok\n"
