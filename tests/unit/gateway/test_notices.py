"""What `check` warns of on this host: each is a sentence that names the key, the file and the remedy."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.tls import secret_files
from gateway import cli, notices
from gateway.config import GatewayConfig, parse_config
from gateway.connect import kafka_check
from gateway.sources.mqtt.mqtt import read_password
from tests.support.ports import free_port

TOLD = "kafka sends its password to far in clear text: set kafka.security_protocol to SASL_SSL."
ROUTE = '[[mqtt.routes]]\npattern = "a"\ntopic = "t"\n'


def config(tmp_path: Path, text: str) -> GatewayConfig:
    head = 'state_dir = "state"\n[kafka]\nbootstrap_servers = "h:1"\n'
    return parse_config(tmp_path / "g.toml", head + text)


def test_what_is_not_there_is_told_and_what_is_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there.log").touch()
    text = "[journal]\n" + "".join(
        f'[[files]]\npath = "{path}"\n' for path in ("no.log", "no/x.log", "no/*.log", "x*.log", "t*.log", "there.log")
    )
    monkeypatch.setattr(notices, "PERSISTENT", tmp_path / "var")
    monkeypatch.setattr(notices, "VOLATILE", tmp_path / "run")
    assert notices.missing(config(tmp_path, text)) == [
        f"files.path {tmp_path}/no.log is not there.",
        f"files.path {tmp_path}/no/x.log: the directory {tmp_path}/no is not there.",
        f"files.path {tmp_path}/no/*.log: the directory {tmp_path}/no is not there.",
        f"files.path {tmp_path}/x*.log: no file matches.",
        f"neither {tmp_path}/var nor {tmp_path}/run is there: [journal] needs systemd, else follow [[files]].",
    ]
    (tmp_path / "run").mkdir()
    assert notices.missing(config(tmp_path, "[journal]\n")) == []
    assert notices.missing(config(tmp_path, f'[journal]\ndirectory = "{tmp_path}/no"\n')) == [
        f"journal.directory {tmp_path}/no is not there."
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[mosquitto]\nlisteners = ["0.0.0.0:1883"]', "mosquitto.listeners 0.0.0.0:1883 lets anyone publish"),
        ('[mosquitto]\nlisteners = ["h:1883"]\npassword_file = "p"', "takes passwords in clear text: move it to tls_"),
        (
            '[mosquitto]\ntls_listeners = ["h:8883"]\nssl_cert_file = "c"\nssl_key_file = "k"',
            "mosquitto.tls_listeners h:8883 lets anyone publish",
        ),
        ('[mqtt]\nhost = "far"\nusername = "u"\n' + ROUTE, "mqtt sends its password to far in clear text"),
    ],
)
def test_open_doors_are_told(tmp_path: Path, text: str, says: str) -> None:
    (told,) = notices.security(config(tmp_path, "[board]\n" + text))
    assert says in told


@pytest.mark.parametrize(
    ("host", "security", "told"),
    [
        (
            "far",
            "SASL_PLAINTEXT",
            TOLD,
        ),
        ("far", "SASL_SSL", ""),
        ("127.0.0.1", "SASL_PLAINTEXT", ""),
    ],
)
def test_a_password_for_kafka_that_is_read_on_the_way(tmp_path: Path, host: str, security: str, told: str) -> None:
    (tmp_path / "pw").touch(0o600)
    keys = f'security_protocol = "{security}"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"\nsasl_password_file = "pw"'
    text = f'state_dir = "s"\n[kafka]\nbootstrap_servers = "{host}:9092"\n{keys}\n[board]\n'
    assert "".join(notices.security(parse_config(tmp_path / "g.toml", text))) == told


def test_doors_on_loopback_or_with_tls_and_a_password_are_not(tmp_path: Path) -> None:
    text = '[mosquitto]\ntls_listeners = ["h:8883"]\nssl_cert_file = "c"\nssl_key_file = "k"\npassword_file = "p"\n'
    assert notices.security(config(tmp_path, "[board]\n" + text)) == []


def test_secrets_that_all_may_read_are_told(tmp_path: Path) -> None:
    """mosquitto's; a link's target counts. Those of the gateway itself are refused."""
    for name, mode in (("secret", 0o644), ("key", 0o604), ("cert", 0o644)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "passwd").symlink_to(tmp_path / "secret")
    text = '[mosquitto]\npassword_file = "passwd"\nssl_cert_file = "cert"\nssl_key_file = "key"\n'
    remedy = f"which other users of this host may use: `chmod g-w,o= {tmp_path}"
    assert notices.security(config(tmp_path, "[board]\n" + text)) == [
        f"mosquitto.password_file is {tmp_path}/passwd, {remedy}/passwd`.",
        f"mosquitto.ssl_key_file is {tmp_path}/key, {remedy}/key`.",
    ]
    (tmp_path / "secret").chmod(0o640)
    (tmp_path / "key").chmod(0o600)
    assert notices.security(config(tmp_path, "[board]\n" + text)) == []


@pytest.mark.parametrize("key", ["password_file", "ssl_key_file"])
def test_a_secret_of_the_gateway_that_others_may_use_is_refused_also_behind_a_link(tmp_path: Path, key: str) -> None:
    (tmp_path / "target").write_text("secret\n")
    (tmp_path / "cert").touch()
    (tmp_path / "link").symlink_to("target")
    more = 'username = "u"\n' if key == "password_file" else 'ssl_cert_file = "cert"\n'
    text = f'[mqtt]\n{key} = "link"\n{more}{ROUTE}'
    for mode in (0o644, 0o620):
        (tmp_path / "target").chmod(mode)
        with pytest.raises(ConfigurationError, match=f"mqtt.{key} is .*/link, which other users of this host may use"):
            config(tmp_path, text)
    (tmp_path / "target").chmod(0o640)
    assert config(tmp_path, text).mqtt is not None


@pytest.mark.parametrize("key", ["password_file", "ssl_key_file"])
@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_check_finds_before_a_restart_what_would_refuse_it_and_its_remedy_holds(
    tmp_path: Path, key: str, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A site that runs had a warning alone; its gateway must not find out at the restart of an upgrade."""
    secret = tmp_path / "the secret"
    secret.write_text("opensesame\n")
    secret.chmod(mode)
    (tmp_path / "cert").touch()
    more = 'username = "u"\n' if key == "password_file" else 'ssl_cert_file = "cert"\n'
    file = tmp_path / "gateway.toml"
    head = 'state_dir = "state"\n[kafka]\nbootstrap_servers = "127.0.0.1:9092"\n'
    file.write_text(f'{head}[mqtt]\n{key} = "the secret"\n{more}{ROUTE}')
    for command in ("check", "run"):
        assert cli.main([command, "--config", str(file)]) == 2
        said = capsys.readouterr().err
        assert f"mqtt.{key} is {secret}, which other users of this host may use: `chmod g-w,o=" in said
        assert "opensesame" not in said
    subprocess.run(["bash", "-c", said.split("`")[1]], check=True)
    assert cli.main(["check", "--config", str(file)]) == 0


def test_check_finds_a_secret_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pw").write_text("opensesame\n")
    (tmp_path / "pw").chmod(0o600)
    file = tmp_path / "gateway.toml"
    head = 'state_dir = "state"\n[kafka]\nbootstrap_servers = "127.0.0.1:9092"\n'
    file.write_text(f'{head}[mqtt]\npassword_file = "pw"\nusername = "u"\n{ROUTE}')
    monkeypatch.setattr(secret_files, "_owners", lambda: {(tmp_path / "pw").stat().st_uid + 1})
    assert cli.main(["check", "--config", str(file)]) == 2
    assert "which belongs to another user (uid " in capsys.readouterr().err


def test_a_password_that_others_may_use_later_goes_nowhere(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("secret\nsecond line\n")
    (tmp_path / "pw").chmod(0o600)
    mqtt = config(tmp_path, f'[mqtt]\npassword_file = "pw"\nusername = "u"\n{ROUTE}').mqtt
    assert mqtt is not None
    assert read_password(mqtt) == "secret"
    (tmp_path / "pw").chmod(0o604)
    with pytest.raises(ConfigurationError, match=r"mqtt\.password_file is .*/pw, which other users of"):
        read_password(mqtt)


def test_what_mosquitto_will_not_find_is_told_where_the_file_configures_it(tmp_path: Path) -> None:
    text = f'[mosquitto]\npassword_file = "passwd"\npersistence_dir = "db"\nuser = "{getpass.getuser()}"\n'
    told = notices.mosquitto(config(tmp_path, "[board]\n" + text))
    assert told[0] == f"mosquitto.password_file {tmp_path}/passwd is not there."
    assert f"mosquitto.persistence_dir {tmp_path}/db is not there: `install -d -m 700 -o " in told[1]
    (tmp_path / "db").mkdir()
    (tmp_path / "passwd").touch()
    assert notices.mosquitto(config(tmp_path, "[board]\n" + text)) == []
    assert notices.mosquitto(config(tmp_path, "[board]\n")) == []


def test_a_directory_that_mosquitto_cannot_write_is_told(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir(mode=0o755)
    (tmp_path / "file").touch()
    settings = config(tmp_path, '[board]\n[mosquitto]\npersistence_dir = "db"\nuser = "nobody"\n').mosquitto
    assert f"{tmp_path}/db cannot be written by nobody: `chown nobody" in str(notices.persistence_trouble(settings))
    os.chmod(tmp_path / "db", 0o777)
    assert notices.persistence_trouble(settings) is None
    text = '[board]\n[mosquitto]\npersistence_dir = "file"\nuser = "no-such-user"\n'
    settings = config(tmp_path, text).mosquitto
    assert "is no directory" in str(notices.persistence_trouble(settings))
    text = '[board]\n[mosquitto]\npersistence_dir = "db"\nuser = "no-such-user"\n'
    assert "is no user of this host" in str(notices.persistence_trouble(config(tmp_path, text).mosquitto))


def test_an_end_that_is_not_there_is_exit_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, port = tmp_path / "g.toml", free_port()
    file.write_text(f'state_dir = "s"\n[kafka]\nbootstrap_servers = "127.0.0.1:{port}"\n[board]\n')
    assert cli.main(["check", "--connect", "--config", str(file)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert (
        told[-1] == f"kafka 127.0.0.1:{port} refuses the connection: nothing listens there, start it or mend the port"
    )
    assert cli.main(["check", "--config", str(file)]) == 0


@pytest.mark.parametrize(
    ("topic", "code", "is_known", "says"),
    [
        ("readings", 29, False, "may not be written by this client: give it the right to WRITE there"),
        ("__edge_ledger", 29, False, "add its address to edge.ledger.writers"),
        (
            "__edge_ledger",
            29,
            True,
            "give it the right to WRITE there; a broker without an authorizer wants this host's",
        ),
        ("readings", 0, True, None),
        ("readings", 3, True, None),  # not there yet: brokers create it
        ("readings", 87, True, None),  # no records in the request, which is on purpose
    ],
)
def test_a_topic_that_is_denied_is_told(topic: str, code: int, is_known: bool, says: str | None) -> None:
    told = kafka_check._topic_trouble(topic, {code}, is_known=is_known)
    assert told is None if says is None else says in str(told)


@pytest.mark.parametrize(("trusted", "tried"), [("auto", True), ("false", True), ("true", False)])
def test_the_topic_of_the_boots_times_is_tried_where_it_may_be_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str, tried: bool
) -> None:
    found: list[str] = []
    monkeypatch.setattr(kafka_check, "try_kafka", lambda _config, topics: found.extend(topics) or iter(()))
    text = f'state_dir = "s"\nclock_trusted = "{trusted}"\n[kafka]\nbootstrap_servers = "h:1"\n[board]\n'
    list(kafka_check.try_all(parse_config(tmp_path / "g.toml", text)))
    assert ("boot_times" in found) is tried
