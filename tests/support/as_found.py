"""A pytest plugin: each test, and each module, leaves the process as it found it, or fails with what it left.

| checked | compared |
|---|---|
| when the fixtures of a test ended | the settings of hygiene.py |
| when a test is over and its objects are dropped | threads, children and descriptors of its own (left_over.py) |
| when the fixtures of a module ended | the settings: these fixtures may change them, too |

Fixtures of a module or of the run start brokers that several tests share: these exist before the test's first look.
The traceback of a test that failed holds its objects, so that what they keep open is no error of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from tests.support import hygiene, left_over

# Folders of tests that are not proven yet: their settings are set back, and no test fails for what it leaves.
UNPROVEN = (
    "tests/conformance",
    "tests/differential",
    "tests/e2e",
    "tests/fault",
    "tests/simulation",
    "tests/unit/ansible",
)

_STARTED = pytest.StashKey[left_over.Started]()
_AT_MODULE = pytest.StashKey[tuple[pytest.Module | None, hygiene.Settings]]()


def pytest_configure() -> None:
    """Let uvloop open what it keeps for the whole process: libuv's pipe for signals."""
    with suppress(ImportError):  # it is optional
        importlib.import_module("uvloop").new_event_loop().close()


@pytest.fixture(autouse=True)
def _as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if it leaves other settings; note which threads, children and descriptors exist before it."""
    before = hygiene.settings()
    if not request.node.nodeid.startswith(UNPROVEN):
        request.node.stash[_STARTED] = left_over.started()
    yield
    _check(request.node, "the test", hygiene.restored(before))


def _check(item: pytest.Item, what: str, found: Iterable[str]) -> None:
    sentences = list(found)  # sets each setting back
    proven = not item.nodeid.startswith(UNPROVEN)
    assert not (proven and sentences), f"{what} does not leave the process as it found it:\n" + "\n".join(sentences)


# First and as a wrapper, so that what pytest changes for a phase of a test is not seen: capturing and caplog.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note the settings before the first fixture of a module."""
    module = item.getparent(pytest.Module)
    if _AT_MODULE not in item.config.stash or item.config.stash[_AT_MODULE][0] is not module:
        item.config.stash[_AT_MODULE] = module, hygiene.settings()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Check what the test left; after the last fixture of a module, compare the settings again."""
    yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # objects of fixtures close their files when they are dropped
    started = item.stash.get(_STARTED, None)
    found = [] if started is None else list(left_over.left_over(started))
    if hasattr(sys, "last_value"):  # pytest sets it when a test fails
        found = []
    module, before = item.config.stash[_AT_MODULE]
    if nextitem is None or nextitem.getparent(pytest.Module) is not module:
        _check(item, item.nodeid.partition("::")[0], hygiene.restored(before))
    _check(item, "the test", found)
