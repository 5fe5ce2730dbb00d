"""Which event loop a service runs on."""

from __future__ import annotations

import asyncio
import sys

import pytest

from drupelet import event_loop


async def kind_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_it_is_uvloops_where_there_is_one() -> None:
    pytest.importorskip("uvloop", reason="32-bit boards have none")
    assert event_loop.run(kind_of_loop()) == "uvloop"


def test_it_is_asyncios_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # as where it is not installed
    assert event_loop.run(kind_of_loop()).startswith("asyncio.")


def test_what_the_work_raises_is_raised() -> None:
    async def fails() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        event_loop.run(fails())
