"""Run a service on uvloop, which sends written bytes without a copy; on asyncio's loop without uvloop.

Does not contain: the work that runs on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end; return its result or raise its error."""
    try:
        import uvloop  # noqa: PLC0415 - absent on 32-bit boards
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
