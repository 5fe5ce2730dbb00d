"""The SCRAM of aiokafka's connections in the gateway: a false broker gets neither much work nor a hint."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError

import gateway.kafka.producer
from edge_broker.security.scram import MECHANISMS, Challenge, CredentialLookup, ScramExchange, Success, new_credential

MECHANISM = "SCRAM-SHA-256"
SALT = b"salt"
CREDENTIAL = new_credential(MECHANISMS[MECHANISM], "secret", SALT, 4096)


async def connection_log_in(answers: Any) -> None:
    """What a connection does to log in; `answers` gives a broker's answer to each token."""
    connection = AIOKafkaConnection(
        "localhost",
        9092,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISM,
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    log_in = connection.authenticator_scram()
    answer = None
    while (step := await log_in.step(answer)) is not None:
        answer = answers(step[0])


def test_the_gateway_has_seen_to_it() -> None:
    """It is imported above, and sees to all connections of its process."""
    assert gateway.kafka.producer.AIOKafkaConnection.authenticator_scram.__module__ == "drupelet.kafka.aiokafka_login"


def test_a_broker_that_knows_the_user_is_logged_in_to() -> None:
    exchange = ScramExchange(MECHANISMS[MECHANISM], "n" * 32)
    made: list[Challenge | Success] = []

    def answers(token: bytes) -> bytes:
        made.append(exchange.step(token, lambda user: CredentialLookup(CREDENTIAL, known=user == "alice")))
        return made[-1].data

    asyncio.run(connection_log_in(answers))
    assert isinstance(made[-1], Success)


@pytest.mark.parametrize("iterations", [1, 4095, (1 << 20) + 1, 1 << 31])
def test_iterations_that_no_broker_needs_are_not_done(iterations: int) -> None:
    def answers(token: bytes) -> bytes:
        nonce = token.rpartition(b"r=")[2] + b"more"
        return b"r=" + nonce + b",s=" + base64.b64encode(SALT) + f",i={iterations}".encode()

    with pytest.raises(KafkaError, match="iterations"):
        asyncio.run(connection_log_in(answers))


@pytest.mark.parametrize("answer", [b"", b"x", b"r=", b"\xff", b"r=a,s=b,i=c"])
def test_what_is_no_scram_is_an_error_of_kafka(answer: bytes) -> None:
    """As gateway and mirror try again after those, and end at any other."""
    with pytest.raises(KafkaError, match="the broker"):
        asyncio.run(connection_log_in(lambda token: answer))


def test_a_broker_that_does_not_know_the_password_itself_is_found_out() -> None:
    exchange = ScramExchange(MECHANISMS[MECHANISM], "n" * 32)

    def answers(token: bytes) -> bytes:
        if token.startswith(b"c="):
            return b"v=" + base64.b64encode(b"x" * 32)
        return exchange.step(token, lambda user: CredentialLookup(CREDENTIAL, known=True)).data

    with pytest.raises(KafkaError, match="does not know"):
        asyncio.run(connection_log_in(answers))
