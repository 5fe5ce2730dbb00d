"""Properties files as Kafka's own tools read them, and what is taken of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.kafka.properties import in_kafkas_names, properties, security_of

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BY_PLAIN = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.touch(0o600)
    return path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a = b \nc:d\ne f", {"a": "b ", "c": "d", "e": "f"}),
        ("# a=b\n  ! c=d\n\n e=", {"e": ""}),
        ("a=b\\\n   c\\\n  d", {"a": "bcd"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        (r"a=\u00e9\t\x", {"a": "é\tx"}),
        (r"a=\ud83d\ude00", {"a": "\N{GRINNING FACE}"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=b\r\nc=d\r", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert properties(text, "f") == found


def test_an_escape_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match=r"f: a has a \\u without four hexadecimal digits"):
        properties(r"a=\u12", "f")


def test_a_log_in_with_a_password_that_needs_quoting(file: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").touch()
    file.write_text(
        "bootstrap.servers=elsewhere:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        "ssl.truststore.type=PEM\nssl.truststore.location=ca.pem\nssl.endpoint.identification.algorithm=https\n"
        f'sasl.jaas.config={SCRAM} required \\\n  username="a b" password="x\\\\"y;z\'";\n'
    )
    found = security_of(file)
    assert found[:3] == ("SASL_SSL", str(tmp_path / "ca.pem"), None)
    assert (found.mechanism, found.username) == ("SCRAM-SHA-256", "a b")
    assert found.password is not None
    assert found.password.text() == "x\"y;z'"
    assert 'x"y' not in repr(found)


def test_a_keystore_holds_certificate_and_key(file: Path, tmp_path: Path) -> None:
    (tmp_path / "both.pem").touch(0o600)
    file.write_text(f"security.protocol=SSL\nssl.keystore.location={tmp_path}/both.pem\nssl.keystore.type=PEM\n")
    assert security_of(file)[:4] == ("SSL", None, f"{tmp_path}/both.pem", f"{tmp_path}/both.pem")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ssl.trustore.location=x", "ssl.trustore.location is not taken here: did you mean ssl.truststore.location?"),
        ("ssl.key.password=x", "ssl.key.password is not taken here"),
        ("security.protocol=SSL\nssl.truststore.type=JKS", "ssl.truststore.type is JKS: PEM files alone"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=", "names are always checked here"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is missing: write PLAIN"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", 'sasl.mechanism is "GSSAPI": use one of'),
        (BY_PLAIN, "sasl.jaas.config is missing: security.protocol needs it"),
        (
            f"{BY_PLAIN}\nsasl.jaas.config={PLAIN} required;",
            "is not taken: write",
        ),
        (
            f'{BY_PLAIN}\nsasl.jaas.config={SCRAM} required username="u" password="p";',
            "sasl.jaas.config is for SCRAM-SHA-256 or SCRAM-SHA-512, not for PLAIN",
        ),
        ("security.protocol=TLS", 'security.protocol is "TLS"'),
        (
            "security.protocol=SSL\nssl.truststore.location=/none.pem",
            "ssl.truststore.location is /none.pem, which is not",
        ),
        ("ssl.truststore.location=/etc/hostname", "is set, and security.protocol is PLAINTEXT: use SSL or SASL_SSL"),
    ],
)
def test_what_is_not_taken_is_a_sentence(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        security_of(file)
    assert says in str(caught.value)


def test_a_file_with_a_password_is_for_one_user(file: Path) -> None:
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required username=u password=p;"
    file.write_text(text)
    assert security_of(file).username == "u"
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"--command-config is .* which other users of this host may use"):
        security_of(file)


def test_sentences_name_kafkas_keys() -> None:
    said = in_kafkas_names("name it in ssl_cert_file and ssl_key_file, or set sasl_mechanism")
    assert said == "name it in ssl.keystore.location, or set sasl.mechanism"
