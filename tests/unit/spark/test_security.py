"""A job's security as options of the Java client: files are named, and no secret is in any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.installation import built_s
from spark import cli, notify
from spark.cli import wait_for_clock
from spark.config import Settings
from spark.security import client_options, connector_options, security_of, waits_for_clock
from spark.streams.sinks import kafka_options
from tests.support.command import in_process

main = in_process(cli.main)

PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in (("ca", "x"), ("cert", "x"), ("key", "-----BEGIN PRIVATE KEY-----"), ("pw", "se cret")):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    return tmp_path


def settings(files: Path, **changes: str) -> Settings:
    login = {"sasl_username": 'a"b\\c', "sasl_password_file": str(files / "pw"), "sasl_mechanism": "SCRAM-SHA-256"}
    tls = {"ssl_ca_file": str(files / "ca"), "ssl_cert_file": str(files / "cert"), "ssl_key_file": str(files / "key")}
    return Settings(**{"security_protocol": "SASL_SSL", **login, **tls, **changes})  # type: ignore[arg-type]


def test_without_security_there_is_no_option() -> None:
    assert client_options(Settings()) == {}
    assert connector_options(Settings(bootstrap="h:1")) == {"kafka.bootstrap.servers": "h:1"}


def test_files_are_named_and_read_by_the_client_itself(files: Path) -> None:
    options = client_options(settings(files))
    assert options == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{files}/ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": f"${{directory:{files}:cert}}",
        "ssl.keystore.key": f"${{directory:{files}:key}}",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="a\\"b\\\\c" password="${{directory:{files}:pw}}";'
        ),
        "config.providers": "directory",
        "config.providers.directory.class": PROVIDER,
    }
    assert "se cret" not in str(kafka_options(settings(files), "t"))


def test_an_option_of_kafka_comes_after_ours(files: Path) -> None:
    given = Settings(kafka={"kafka.client.id": "x", "kafka.security.protocol": "SSL"})
    assert client_options(given) == {"client.id": "x", "security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("pw", "secret\n", "pw ends with a line end"),
        ("pw", "", "pw is empty"),
        ("pw", 'a"b', "has a quotation mark, a backslash or a line end"),
        ("pw", "a\\b", "has a quotation mark, a backslash or a line end"),
        ("pw", "a\nb", "has a quotation mark, a backslash or a line end"),
        ("key", "-----BEGIN EC PRIVATE KEY-----", "key is no PKCS #8 key, the only kind that Java reads"),
    ],
)
def test_what_java_would_read_otherwise_is_refused(files: Path, name: str, text: str, says: str) -> None:
    (files / name).write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        security_of(settings(files))


@pytest.mark.parametrize(("mode", "lines"), [(0o644, 0), (0o664, 1)])
def test_cas_that_others_may_change_are_named(
    files: Path, mode: int, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ca = files / "ca"
    ca.chmod(mode)
    assert main(["check", "--set", "security_protocol=SSL", "--set", f"ssl_ca_file={ca}"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "may change" in line]
    assert len(said) == lines
    assert not said or f"--set ssl_ca_file is {ca}, which other users of this host may change: `chmod go-w" in said[0]


def test_a_path_that_the_client_cannot_be_told(files: Path) -> None:
    (files / "a:b").touch(0o600)
    (files / "a:b").write_text("x")
    with pytest.raises(ConfigurationError, match="a path with a colon or brace"):
        client_options(settings(files, sasl_password_file=str(files / "a:b")))


@pytest.mark.parametrize("key", ["sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.keystore.key"])
def test_a_secret_among_the_arguments_is_refused(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--set", f"kafka.{key}=s3cret"]) == 2
    said = capsys.readouterr().err
    assert f"--set kafka.{key}: every user of this host would see it" in said
    assert "s3cret" not in said


def test_a_job_with_tls_waits_for_a_clock_that_was_set(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert waits_for_clock(settings(files), 0.0)
    assert not waits_for_clock(settings(files), float(built_s()))
    assert not waits_for_clock(Settings(), 0.0)
    told: list[tuple[str, ...]] = []
    times = iter([0.0, 0.0, float(built_s())])
    monkeypatch.setattr(notify, "notify", lambda *lines: told.append(lines))
    wait_for_clock(settings(files), clock=lambda: next(times), pause=lambda _: None)
    assert "waiting_for_clock" in capsys.readouterr().err
    assert [line[1] for line in told] == ["STATUS=waiting for the clock, which shows 1970-01-01T00:00:00Z"] * 2
