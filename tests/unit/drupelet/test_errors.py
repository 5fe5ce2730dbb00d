"""The text of every error that a client library or Python raises is a plain sentence.

Invariants:
- no text holds a class name, a repr, an error number, an address in memory or a line break, and none is empty;
- nothing raises, also for an error that fails to print itself.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import inspect
import re
import socket
import ssl
from collections.abc import Iterator
from types import ModuleType

import aiokafka.errors
import paho.mqtt.client
import pytest

from drupelet.errors import SENTENCE_CHARACTERS_MAX, reason, sentence
from drupelet.kafka.connection_errors import HUNG_UP_IN_TLS, explain

MODULES: tuple[ModuleType, ...] = (aiokafka.errors, paho.mqtt.client, builtins, ssl, socket, asyncio)
ARGUMENTS: tuple[tuple[object, ...], ...] = (
    (),
    ("",),
    ("it\n broke",),
    ("Unable to bootstrap from [('127.0.0.1', 54154, <AddressFamily.AF_UNSPEC: 0>)]",),
    (f"Connection {object()!r} closed",),
    ([("127.0.0.1", 54154, socket.AF_INET)],),
    (aiokafka.errors.KafkaTimeoutError(),),
    (repr(aiokafka.errors.UnknownError("why")),),
    (errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
    (1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)"),
)
UNWANTED = re.compile(r"<|>|0x[0-9a-f]{5}|\[Err|_ssl\.c|\n|[a-z]Error\b|Exception\b|KafkaError|^$|\(\)")


def classes() -> Iterator[type[BaseException]]:
    found = {value for module in MODULES for value in vars(module).values() if inspect.isclass(value)}
    for value in sorted(found, key=lambda kind: (kind.__module__, kind.__name__)):
        if issubclass(value, BaseException):
            yield value


@pytest.mark.parametrize("kind", list(classes()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_error_is_a_sentence(kind: type[BaseException]) -> None:
    for arguments in ARGUMENTS:
        try:
            error = kind(*arguments)
        except TypeError:  # it takes other arguments
            continue
        for text in (sentence(error), explain(error)):
            assert not UNWANTED.search(text), text
            assert len(text) <= SENTENCE_CHARACTERS_MAX + 100


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            aiokafka.errors.KafkaConnectionError("Unable to bootstrap from [('127.0.0.1', 1, <AddressFamily.X: 0>)]"),
            "the broker cannot be connected to, or closed the connection",
        ),
        (aiokafka.errors.KafkaTimeoutError(), "the broker does not answer in time"),
        (
            aiokafka.errors.TopicAuthorizationFailedError("readings"),
            "the broker answers TOPIC_AUTHORIZATION_FAILED (readings)",
        ),
        (aiokafka.errors.KafkaError("KafkaTimeoutError()"), "the broker does not answer in time"),
        (FileNotFoundError(errno.ENOENT, "x", "/etc/x"), "/etc/x: no such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on device"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] more"),
            "Connect call failed ::1:1, more",
        ),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (  # 6 and 8 are OpenSSL's numbers; the system's words for these are of devices and formats
            ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF) (_ssl.c:992)"),
            "TLS fails: TLS/SSL connection has been closed (EOF)",
        ),
        (
            ssl.SSLEOFError(8, "EOF occurred in violation of protocol (_ssl.c:992)"),
            "TLS fails: EOF occurred in violation of protocol",
        ),
        (ssl.SSLWantReadError(2), "TLS fails"),
        (TimeoutError(), "no answer came in time"),
        (KeyError("offset"), "a key is missing: 'offset'"),
        (ValueError("invalid literal for int() with base 10: 'x'"), "invalid literal for int() with base 10: 'x'"),
        (RuntimeError(), "an internal error (runtime)"),
    ],
)
def test_what_an_error_says(error: BaseException, text: str) -> None:
    assert sentence(error) == text


def test_a_reason_within_a_sentence_takes_no_number_of_tls_for_the_systems() -> None:
    assert reason(ssl.SSLZeroReturnError(6, "closed (EOF)")) == "TLS fails: closed (EOF)"
    assert reason(OSError(errno.ENXIO, "x")) == "no such device or address"


@pytest.mark.parametrize("error", [ssl.SSLZeroReturnError(6, "closed (EOF)"), ssl.SSLEOFError(8, "EOF occurred")])
def test_a_peer_that_closes_during_the_handshake_has_a_remedy(error: ssl.SSLError) -> None:
    assert explain(error) == HUNG_UP_IN_TLS


def test_an_error_that_fails_to_print_itself_is_named_in_words() -> None:
    class NeverPrinted(Exception):
        def __str__(self) -> str:
            raise AttributeError("errno")

    assert sentence(NeverPrinted()) == "an internal error (never printed)"
