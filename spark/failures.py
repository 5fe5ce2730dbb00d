"""What went wrong inside the JVM, as one short text: class and message of each cause, the root first.

Here: reading Java exceptions. Never here: what to do about them (`run`).
"""

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

CAUSES_MAX = 10
MESSAGE_CHARACTERS_MAX = 600


class BatchError(Exception):
    """A batch that Python drives failed; the message is short, as Spark parses it with a recursive pattern."""


def chain(throwable: Any) -> str:
    """Describe a Java exception and its causes, at most ten, each cut to 600 characters."""
    links: list[str] = []
    while throwable is not None and len(links) < CAUSES_MAX:
        message = " ".join(str(throwable.getMessage()).split())[:MESSAGE_CHARACTERS_MAX]
        links.append(f"{throwable.getClass().getName()}: {message}")
        throwable = throwable.getCause()
    return " < ".join(reversed(links))


def root(text: str) -> str:
    """Cut a chain of causes to the first one."""
    return text.partition(" < ")[0]


def described(error: Exception) -> str:
    """Describe what a PySpark call raised; by its name alone if the JVM that knows more has ended."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    try:
        return f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS_MAX] if java is None else chain(java)
    except (Py4JError, OSError):
        return type(error).__name__


def short_errors(each_batch: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Wrap a foreachBatch function so that its Spark errors leave as a BatchError.

    With a long message (a Python traceback around a Java one) Spark 4.0 overflows its stack while it reads it, and the
    query ends without saying why.
    """

    def run(batch: DataFrame, batch_id: int) -> None:
        try:
            each_batch(batch, batch_id)
        except (Py4JJavaError, PySparkException) as error:
            raise BatchError(root(described(error))) from None

    return run
