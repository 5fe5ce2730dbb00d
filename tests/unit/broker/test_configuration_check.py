"""`edge-broker check`: every sentence by which `serve` refuses a configuration, and what this host lacks for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edge_broker.cli import main
from edge_broker.configuration_check import Serve, check_configuration
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.broker_id import FILE, write_broker_id
from tests.support.certificates import Authority

ROOT = Path(__file__).parents[3]
LOCAL = '"listeners" = "PLAINTEXT://127.0.0.1:9092"\n'
SASL = '"listeners" = "SASL_PLAINTEXT://127.0.0.1:9092"\n'
REFUSED = {
    "a key that is misspelt": LOCAL + '"log.retension.ms" = 5\n',
    "a value out of bounds": LOCAL + '"num.partitions" = 0\n',
    "no TOML": LOCAL + "num.partitions 3\n",
    "a table where a value belongs": LOCAL + "[num.partitions]\nmany = 3\n",
    "two keys that disagree": LOCAL + '"group.min.session.timeout.ms" = 1900000\n',
    "an ensemble": LOCAL + '"zookeeper.connect" = "zk-1:2181/a,zk-2:2181/a"\n',
    "a network": LOCAL + '"edge.ledger.writers" = "10.0.0.0/33"\n',
    "a principal": LOCAL + '"super.users" = "admin"\n',
    "a listener without a protocol": '"listeners" = "LAN://127.0.0.1:9092"\n',
    "a port": '"listeners" = "PLAINTEXT://127.0.0.1:99999"\n',
    "an open network": '"listeners" = "PLAINTEXT://10.0.0.7:9092"\n',
    "no certificate": '"listeners" = "SSL://127.0.0.1:9092"\n"ssl.client.auth" = "required"\n',
    "a cipher suite": '"listeners" = "SSL://127.0.0.1:9092"\n"ssl.keystore.location" = "a.pem"\n'
    '"ssl.cipher.suites" = "TLS_NULL"\n',
    "a listener for brokers": LOCAL + '"zookeeper.connect" = "zk-1:2181"\n"inter.broker.listener.name" = "LAN"\n',
    "no listener": '"num.partitions" = 3\n',
    "an advertised address": LOCAL + '"advertised.listeners" = "PLAINTEXT://0.0.0.0:9092"\n',
}


def check(*arguments: str) -> int:
    return main(["check", *arguments])


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("text", REFUSED.values(), ids=list(REFUSED))
def test_check_gives_the_sentence_by_which_serve_refuses(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, text)
    program = [sys.executable, "-m", "edge_broker"]
    serve = subprocess.run(
        [*program, "serve", "--data-dir", str(tmp_path / "data"), "--config", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert serve.returncode == 2
    assert check("--config", file) == 2
    assert serve.stderr.splitlines()[-1] in capsys.readouterr().err.splitlines()


def test_all_problems_come_at_once_and_serve_would_have_raised_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        '"listeners" = "LAN://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9092"\n"num.partitions" = "many"\n'
        '"log.retension.ms" = 5\n"super.users" = "admin"\n"offsets.retention.minutes" = 0\n'
    )
    assert check("--config", written(tmp_path, text), "--set", "nokey", "--metrics", "x") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 8
    for word in ("num.partitions", "log.retention.ms", "super.users", "offsets.retention", "LAN", "9092", "--set", "x"):
        assert any(word in line for line in lines), word
    assert all(line.startswith("edge-broker: ") for line in lines)


def test_a_good_configuration_exits_0_and_makes_no_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    file = written(tmp_path, '"listeners" = "PLAINTEXT://127.0.0.1:0"\n"num.partitions" = 3\n')
    assert check("--config", file, "--metrics", "127.0.0.1:0", "--data-dir", str(data), "--strict") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{file}: ok"
    assert not data.exists()
    assert sorted(os.listdir(tmp_path)) == ["broker.toml"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('"edge.metrics.token.file" = "/nowhere/token"\n', "/nowhere/token"),
        ('"edge.deny.list.file" = "/nowhere/denied"\n', "/nowhere/denied"),
        ('"listeners" = "SSL://127.0.0.1:0"\n"ssl.keystore.location" = "/nowhere/b.pem"\n', "/nowhere/b.pem"),
        ('"listeners" = "PLAINTEXT://192.0.2.7:0"\n"edge.network.trusted" = true\n', "no address of this host"),
        ('"listeners" = "PLAINTEXT://pi-3.invalid:1"\n"edge.network.trusted" = true\n', "pi-3.invalid"),
        (
            '"zookeeper.connect" = "zk-1:2181"\n"edge.zookeeper.digest.file" = "/nowhere/digest"\n',
            "/nowhere/digest",
        ),
        (
            '"message.max.bytes" = 16777216\n',
            "not below socket.request.max.bytes=16777216",
        ),
    ],
)
def test_what_this_host_lacks_is_a_warning_and_by_strict_a_problem(
    keys: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listeners = "" if "listeners" in keys else '"listeners" = "PLAINTEXT://127.0.0.1:0"\n'
    file = written(tmp_path, listeners + keys)
    assert check("--config", file) == 0
    assert any(line.startswith("WARNING: ") and said in line for line in capsys.readouterr().err.splitlines())
    assert check("--config", file, "--strict") == 2
    assert any(line.startswith("edge-broker: ") and said in line for line in capsys.readouterr().err.splitlines())


def test_trust_stores_that_others_may_change_are_named_and_no_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of a listener's clients, and that by which other brokers are believed."""
    authority = Authority(tmp_path / "ca")
    store, ca = authority.store("broker", "DNS:localhost,IP:127.0.0.1"), authority.certificate
    store.chmod(0o600)
    peers = tmp_path / "peers.pem"
    peers.write_bytes(ca.read_bytes())
    shown = tmp_path / "broker.properties"
    shown.write_text(f"security.protocol=SSL\nssl.truststore.location={peers}\nssl.keystore.location={store}\n")
    shown.chmod(0o600)
    digest = tmp_path / "digest"
    digest.touch(0o600)
    digest.write_text("u:p\n")
    keys = (
        '"listeners" = "SSL://127.0.0.1:0"\n"ssl.client.auth" = "required"\n"broker.id" = 1\n'
        f'"ssl.keystore.location" = "{store}"\n"ssl.truststore.location" = "{ca}"\n'
        f'"zookeeper.connect" = "zk-1:2181"\n"edge.inter.broker.config.file" = "{shown}"\n'
        f'"edge.zookeeper.digest.file" = "{digest}"\n'
    )
    file = written(tmp_path, keys)
    for mode, count in ((0o644, 0), (0o666, 2)):
        for each in (ca, peers):
            each.chmod(mode)
        assert check("--config", file, "--strict") == 0
        said = [line for line in capsys.readouterr().err.splitlines() if "may change" in line]
        assert len(said) == count
    assert f"WARNING: ssl.truststore.location is {ca}, which other users of this host may change: `chmod" in said[0]
    assert f"WARNING: {shown}: ssl.truststore.location is {peers}, which other users of this host may change" in said[1]


def test_a_secret_that_all_may_read_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("opensesame\n")
    token.chmod(0o644)
    file = written(tmp_path, f'"listeners" = "PLAINTEXT://127.0.0.1:0"\n"edge.metrics.token.file" = "{token}"\n')
    assert check("--config", file, "--strict") == 2
    error = capsys.readouterr().err
    assert "chmod g-w,o=" in error
    assert "opensesame" not in error


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_a_configuration_that_has_a_secret_is_private(
    mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = '"listeners" = "PLAINTEXT://127.0.0.1:0"\n"ssl.key.password" = "opensesame"\n'
    file = written(tmp_path, keys)
    os.chmod(file, mode)
    assert check("--config", file, "--strict") == 2
    assert main(["serve", "--data-dir", str(tmp_path / "data"), "--config", file]) == 2
    for line in capsys.readouterr().err.splitlines():
        assert "--config, which has ssl.key.password" in line
        assert line.endswith(f"chmod g-w,o= {file}`.")
        assert "opensesame" not in line
    os.chmod(file, 0o640)
    assert check("--config", file, "--strict") == 0


def test_the_target_of_a_linked_configuration_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = '"listeners" = "PLAINTEXT://127.0.0.1:0"\n"ssl.key.password" = "opensesame"\n'
    file, link = written(tmp_path, keys), tmp_path / "a link.toml"
    link.symlink_to(file)
    for mode, status in ((0o644, 2), (0o640, 0)):
        os.chmod(file, mode)
        assert check("--config", str(link), "--strict") == status
    assert f"`chmod g-w,o= '{link}'`" in capsys.readouterr().err


def test_a_configuration_without_a_secret_may_be_read_by_all(tmp_path: Path) -> None:
    keys = '"listeners" = "PLAINTEXT://127.0.0.1:0"\n"ssl.truststore.certificates" = "-----BEGIN CERTIFICATE-----"\n'
    file = written(tmp_path, keys)
    os.chmod(file, 0o644)
    assert check("--config", file, "--strict") == 0


def test_a_port_that_is_taken_is_a_warning_even_with_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The running broker has its own ports while its next configuration is checked."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = written(tmp_path, f'"listeners" = "PLAINTEXT://127.0.0.1:{port}"\n')
        assert check("--config", file, "--strict") == 0
    assert "WARNING: " in (error := capsys.readouterr().err)
    assert "something listens now" in error


def test_an_authorizer_that_lets_everybody_in_needs_no_super_user(tmp_path: Path) -> None:
    keys = '"authorizer.class.name" = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"\n'
    keys += '"listeners" = "PLAINTEXT://127.0.0.1:0"\n"allow.everyone.if.no.acl.found" = true\n'
    file = written(tmp_path, keys)
    assert check("--config", file, "--data-dir", str(tmp_path / "data"), "--strict") == 0


def test_an_authorizer_that_nobody_passes_needs_the_data_directory_to_be_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    keys = '"authorizer.class.name" = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"\n'
    file = written(tmp_path, SASL.replace("9092", "0") + keys)
    assert check("--config", file, "--strict", "--data-dir", str(data)) == 2
    assert "super.users" in capsys.readouterr().err
    assert list(data.iterdir()) == []
    assert check("--config", file, "--strict") == 0


def test_a_board_that_an_older_version_served_to_its_network_keeps_its_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    (data / "store").mkdir(parents=True, mode=0o700)
    options = ["--listen", "0.0.0.0:0", "--advertise", "pi-3.local:9092"]
    assert check(*options, "--data-dir", str(data)) == 0
    assert check(*options) == 2
    assert "edge.network.trusted" in capsys.readouterr().err


def test_nothing_to_check_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert check() == 2
    assert "--config" in capsys.readouterr().err


def test_the_rules_run_out_of_a_wheel_with_the_standard_library_alone(tmp_path: Path) -> None:
    """The control node of a site has Ansible and a wheel, and none of the packages of a board."""
    wheel = tmp_path / "drupelet-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for part in ("drupelet", "edge_broker"):
            for file in (ROOT / part).rglob("*.py"):
                archive.write(file, file.relative_to(ROOT))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from edge_broker.configuration_check import Serve, check_configuration; "
        "print(check_configuration(Serve(assignments=['num.partitions=0'])).problems)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code, str(wheel)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "num.partitions" in done.stdout


def test_a_bad_option_is_not_followed_by_a_problem_that_it_causes() -> None:
    assert check_configuration(Serve(listen="nowhere")).problems == [
        "--listen is 'nowhere'; write HOST:PORT, for example 127.0.0.1:9092"
    ]


def test_a_data_directory_of_another_broker_id_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, data_dir = written(tmp_path, '"broker.id" = 4\n"listeners" = "PLAINTEXT://127.0.0.1:0"\n'), tmp_path / "data"
    data_dir.mkdir()
    words = ["--config", file, "--data-dir", str(data_dir), "--strict"]
    assert check(*words) == 0
    write_broker_id(Disk(), str(data_dir), 5)
    assert check(*words) == 2
    assert f"broker.id is 4, and the data directory {data_dir} is of broker 5" in capsys.readouterr().err
    (data_dir / FILE).write_text("no state")
    assert check(*words) == 2
    assert f"{FILE} at byte 0: this is no broker-id file" in capsys.readouterr().err
