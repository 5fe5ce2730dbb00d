"""Our clients at an Apache Kafka that is secured: every security protocol and mechanism, and what is said of a refusal.

The command-line tools, the gateway, the mirror and Spark's jobs each speak to a real Apache Kafka 4.3.1 whose one
process has a listener per security protocol (tests/support/secured_kafka.py).
"""

from __future__ import annotations

import subprocess

import pytest

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.kafka_reading import create_topic
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.support.waiting import CALL_S

MODULES = {"PLAIN": "plain.PlainLoginModule"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"), "central CA")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory, authority):
    with SecuredKafka(tmp_path_factory.mktemp("central"), authority) as broker:
        create_topic(broker.bootstrap, "readings", 1, {})
        yield broker


@pytest.fixture(scope="module")
def client_files(authority, tmp_path_factory):
    """Certificate, key and both in one file, of a client that the CA knows."""
    certificate, key = authority.sign("client", "DNS:client")
    both = tmp_path_factory.mktemp("client") / "client.pem"
    both.touch(0o600)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, key, both


def jaas(mechanism, user=USER, password=PASSWORD):
    module = MODULES.get(mechanism, "scram.ScramLoginModule")
    return f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'


def properties(path, **values):
    path.touch(0o600)
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
    return path


def topics(server, config=None):
    command = [runtimes.console_script("edge-broker"), "topics", "--bootstrap", server]
    command += [] if config is None else ["--command-config", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


WAYS = [
    ("TLS", {"security_protocol": "SSL"}),
    ("MUTUAL", {"security_protocol": "SSL"}),
    *(
        (listener, {"security_protocol": protocol, "sasl_mechanism": mechanism, "sasl_jaas_config": jaas(mechanism)})
        for listener, protocol in (("LOGIN", "SASL_PLAINTEXT"), ("BOTH", "SASL_SSL"))
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
]


@pytest.mark.parametrize(("listener", "values"), WAYS)
def test_the_tools_get_in_by_every_security_protocol(kafka, authority, client_files, tmp_path, listener, values):
    if "SSL" in values["security_protocol"]:
        values = values | {"ssl_truststore_type": "PEM", "ssl_truststore_location": authority.certificate}
    if listener == "MUTUAL":
        values = values | {"ssl_keystore_type": "PEM", "ssl_keystore_location": client_files[2]}
    status, out = topics(kafka.at(listener), properties(tmp_path / "client.properties", **values))
    assert status == 0, out
    assert "readings" in out


def test_each_refusal_of_the_tools_is_a_sentence(kafka, authority, tmp_path):
    other = Authority(tmp_path / "other", "other CA")
    tls = {"ssl_truststore_location": authority.certificate}
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    by_plain = login | {"sasl_jaas_config": jaas("PLAIN")}
    wrong = [
        ("TLS", {}, "wants TLS on that port: name a file in --command-config"),
        ("BOTH", {}, "wants TLS on that port"),
        ("LOGIN", {}, "may want a log-in (--command-config)"),
        ("TLS", {"security_protocol": "SSL"}, "has a certificate of an unknown CA: name that CA in ssl.truststore.loc"),
        ("TLS", {"security_protocol": "SSL", "ssl_truststore_location": other.certificate}, "of an unknown CA"),
        ("MUTUAL", {"security_protocol": "SSL", **tls}, "ssl.keystore.location"),
        ("LOGIN", {"security_protocol": "SSL", **tls}, "TLS"),
        ("LOGIN", login | {"sasl_jaas_config": jaas("PLAIN", password="x")}, f"refuses the user '{USER}' by PLAIN"),
        ("TLS", {**by_plain, "security_protocol": "SASL_SSL", **tls}, "wants no log-in on that port"),
    ]
    for listener, values, says in wrong:
        status, err = topics(kafka.at(listener), properties(tmp_path / "client.properties", **values))
        assert (status, says in err, err.count("\n")) == (1, True, 1), (listener, values, err)
