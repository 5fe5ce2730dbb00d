"""Describe an error of the JVM as one short text: class and message of each cause, the root first.

Contains: reading Java exceptions. Does not contain: the reaction to them (`run`).
"""

import re
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

CAUSES_MAX = 10
MESSAGE_CHARACTERS_MAX = 600
PROXY_MARK = "raised by the Python Proxy"  # of a foreachBatch function: a traceback, whose last line has the cause
PYTHON_RAISED = re.compile(r"^[\w.]+(?:Error|Exception): .*", re.MULTILINE)


class BatchError(Exception):
    """A batch that Python drives failed; the message is short, as Spark parses it with a recursive pattern."""


def chain(throwable: Any) -> str:
    """Describe a Java exception and its causes, at most ten, each cut to 600 characters."""
    links: list[str] = []
    while throwable is not None and len(links) < CAUSES_MAX:
        name, message = throwable.getClass().getName(), str(throwable.getMessage())
        raised = PYTHON_RAISED.findall(message) if PROXY_MARK in message else []
        text = raised[-1] if raised else f"{name}: {message}"
        links.append(" ".join(text.split())[:MESSAGE_CHARACTERS_MAX])
        throwable = throwable.getCause()
    return " < ".join(reversed(links))


def root(text: str) -> str:
    """Cut a chain of causes to the first one."""
    return text.partition(" < ")[0]


# Remedies by Java's text; the first match counts.
REMEDIES = (
    (
        "All masters are unresponsive",
        "no Spark master answers: start `edge-spark master` there, or give another --master",
    ),
    ("spark.authenticate", "the cluster wants its secret: name the folder of spark-defaults.conf in SPARK_CONF_DIR"),
    ("No space left on device", "the disk is full: make room below the checkpoint and in Java's temporary folder"),
    ("Permission denied", "a file below the checkpoint belongs to another user: give it to this one"),
    ("must be at least", "the heap is too small: give --set spark.driver.memory=512m or more"),
    ("Java gateway process exited", "Java did not start: the lines above are what it said"),
    ("TopicAuthorizationException", "this user may not use the topic: give it Read, Write, Describe and Create"),
    ("SaslAuthenticationException", "the broker refuses the log-in: see --set sasl_username, sasl_password_file"),
    (
        "CertificateExpiredException",
        "a certificate has ended by this host's clock: renew it, or set the clock",
    ),
    ("CertificateNotYetValidException", "a certificate is not valid yet by this host's clock: set the clock"),
    ("bad_certificate", "the broker wants a client certificate, or refuses this one: see --set ssl_cert_file"),
    ("certificate_required", "the broker wants a client certificate: give --set ssl_cert_file and ssl_key_file"),
    ("SslAuthenticationException", "the broker's certificate is not trusted: see --set ssl_ca_file"),
)


def sentence(error: Exception) -> str:
    """Return in one sentence the error of a PySpark call, with the remedy if it is known."""
    return with_remedy(describe_error(error))


def with_remedy(text: str) -> str:
    """Put the remedy before the first cause of a chain."""
    found = (remedy for mark, remedy in REMEDIES if mark in text)
    remedy = next(found, None)
    return root(text) if remedy is None else f"{remedy} ({root(text)})"


def describe_error(error: Exception) -> str:
    """Describe the error of a PySpark call; only by its name if the JVM has ended."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    try:
        return f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS_MAX] if java is None else chain(java)
    except (Py4JError, OSError):
        return type(error).__name__


def short_errors(each_batch: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Wrap a foreachBatch function so that its Spark errors leave as a BatchError.

    Spark 4.0 overflows its stack while it parses a long message, such as a Python traceback around a Java one. Then the
    query ends without a reason.
    """

    def run(batch: DataFrame, batch_id: int) -> None:
        try:
            each_batch(batch, batch_id)
        except (Py4JJavaError, PySparkException) as error:
            raise BatchError(root(describe_error(error))) from None

    return run
