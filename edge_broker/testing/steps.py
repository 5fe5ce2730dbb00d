"""What is worked on step by step, taken to its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from edge_broker.broker.outcome import Outcome, Steps

T = TypeVar("T")


def ended(steps: Generator[Any, None, T]) -> T:
    """Take all steps; what the generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def carried_out(outcome: Outcome) -> Any:
    """What is left when an outcome's steps are taken."""
    while isinstance(outcome, Steps):
        outcome = ended(outcome.steps)
    return outcome
