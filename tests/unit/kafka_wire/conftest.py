"""Each test of the client runs on asyncio's own loop and on uvloop's."""

from __future__ import annotations

import asyncio

import pytest
import uvloop


@pytest.hookimpl(optionalhook=True)  # pytest-asyncio before 1.4 knows its own loop alone
def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
