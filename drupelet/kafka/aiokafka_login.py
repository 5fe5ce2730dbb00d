"""SCRAM of aiokafka's connections by our own side of it (sasl_login.py), which bounds what a broker may ask for.

aiokafka's own does any number of iterations: few tell a false broker the password, many keep a thread for hours; and
an answer that is no SCRAM, or has a wrong signature, ends its producer with a ValueError, as if that were a bug.
Must never come in: aiokafka itself and asyncio at import, which those bring who use it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Generator
from typing import Any

from drupelet.kafka.sasl_login import LogInError, tokens


class Scram:
    """A log-in as aiokafka takes one: `step` gives the next token, and that an answer is due; None: it is over."""

    def __init__(self, exchange: Generator[bytes, bytes, None], failure: type[Exception]) -> None:
        self._exchange: Generator[bytes, Any, None] = exchange
        self._failure = failure

    def step(self, answer: bytes | None) -> Awaitable[tuple[bytes, bool] | None]:
        """Take the broker's answer, None at first; a thread does the hashing. `failure` says what is wrong with it."""
        import asyncio  # noqa: PLC0415 - whoever comes here has it already

        return asyncio.get_running_loop().run_in_executor(None, self._step, answer)

    def _step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        try:
            return self._exchange.send(answer), True
        except StopIteration:
            return None
        except LogInError as error:
            raise self._failure(f"the broker {error}") from error


def log_in_as_ours(connection: Any, failure: type[Exception]) -> None:
    """Have aiokafka's class of connections log in by this SCRAM; `failure` is its exception for a failed log-in."""

    def authenticator(self: Any) -> Scram:
        exchange = tokens(
            self._sasl_mechanism, self._sasl_plain_username, self._sasl_plain_password, secrets.token_urlsafe(24)
        )
        return Scram(exchange, failure)

    connection.authenticator_scram = authenticator
