"""The event loop of a service: uvloop's, which hands on what is written without a copy; asyncio's where there is none.

Must never come in: what runs on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; what it returns or raises."""
    try:
        import uvloop  # noqa: PLC0415 - absent on 32-bit boards
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
