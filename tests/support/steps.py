"""What is worked on step by step, taken to its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def ended(steps: Generator[Any, None, T]) -> T:
    """Take all steps; what the generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
