"""The arguments that every Kafka client of ours takes."""

from __future__ import annotations

import ssl

import pytest

from drupelet.errors import ConfigurationError
from drupelet.kafka.client import COMPRESSION_TYPES, ClientSettings, replicas_for
from drupelet.kafka.security import Security
from drupelet.tls.secret_files import Secret

SETTINGS = ClientSettings("a:1,b:2", "me", 5_000)


def test_a_producer_is_answered_by_all_replicas_and_repeats_nothing() -> None:
    arguments = SETTINGS.producer_arguments("none", 1_000)
    assert arguments.items() >= SETTINGS.arguments().items()
    assert (arguments["acks"], arguments["enable_idempotence"], arguments["compression_type"]) == ("all", True, None)
    assert [SETTINGS.producer_arguments(codec, 1)["compression_type"] for codec in COMPRESSION_TYPES[1:]] == [
        *COMPRESSION_TYPES[1:]
    ]


def test_tls_checks_the_brokers_certificate() -> None:
    assert SETTINGS.arguments()["ssl_context"] is None
    context = SETTINGS._replace(security=Security("SSL")).arguments()["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_certificate_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"/nowhere\.pem cannot be used \(no such file or directory"):
        SETTINGS._replace(security=Security("SSL", ca_file="/nowhere.pem")).arguments()


def test_a_log_in_is_an_argument_and_a_new_password_counts_from_the_next_client_on() -> None:
    passwords = iter(("old", "new"))
    security = Security("SASL_PLAINTEXT", mechanism="PLAIN", username="u", password=Secret(lambda: next(passwords)))
    settings = SETTINGS._replace(security=security)
    assert "old" not in repr(settings)
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u"}
    assert settings.arguments().items() >= {**login, "sasl_plain_password": "old"}.items()
    assert settings.arguments()["sasl_plain_password"] == "new"


def test_a_topic_has_a_replica_on_each_broker_and_three_at_most() -> None:
    assert [replicas_for(brokers) for brokers in (0, 1, 2, 3, 50)] == [1, 1, 2, 3, 3]
