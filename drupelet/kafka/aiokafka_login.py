"""Replace aiokafka's SCRAM client by sasl_login.py, which bounds the iterations that a broker may request.

aiokafka's own accepts any number of iterations: few reveal the password to a false broker, many block a thread for
hours. An answer that is no SCRAM, or has a wrong signature, ends its producer with a ValueError, like a bug.
Does not contain: aiokafka and asyncio at import; their users import them.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Generator
from typing import Any

from drupelet.kafka.sasl_login import LogInError, tokens


class Scram:
    """An authentication for aiokafka: `step` returns the next token and that an answer is due; None: it is complete."""

    def __init__(self, exchange: Generator[bytes, bytes, None], failure: type[Exception]) -> None:
        self._exchange: Generator[bytes, Any, None] = exchange
        self._failure = failure

    def step(self, answer: bytes | None) -> Awaitable[tuple[bytes, bool] | None]:
        """Process the broker's answer, None at first; hash in a thread. Raises `failure` with the reason."""
        import asyncio  # noqa: PLC0415 - the caller has imported it

        return asyncio.get_running_loop().run_in_executor(None, self._step, answer)

    def _step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        try:
            return self._exchange.send(answer), True
        except StopIteration:
            return None
        except LogInError as error:
            raise self._failure(f"the broker {error}") from error


def log_in_as_ours(connection: Any, failure: type[Exception]) -> None:
    """Make aiokafka's connections authenticate by this SCRAM; `failure` is its exception for a refusal."""

    def authenticator(self: Any) -> Scram:
        exchange = tokens(
            self._sasl_mechanism, self._sasl_plain_username, self._sasl_plain_password, secrets.token_urlsafe(24)
        )
        return Scram(exchange, failure)

    connection.authenticator_scram = authenticator
