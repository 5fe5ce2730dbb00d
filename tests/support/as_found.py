"""A pytest plugin: each import, test and module leaves the process as it found it, or fails with what it left.

| checked | compared |
|---|---|
| when a module of tests was imported | the settings (hygiene.py), threads, children and descriptors (left_over.py) |
| when the fixtures of a test ended | the settings |
| when a test is over and its objects are dropped | threads, children and descriptors of its own |
| when the fixtures of a module ended | all of these: such fixtures may change settings and start processes, too |

A fixture of several tests owns the threads, children and descriptors that exist at the end of its set-up and not before
it, also where a test asks for it by name while it runs. A test may end such a process or listener and start it again.
The traceback of a test that failed holds its objects, so that what they keep open is no error of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import hygiene, left_over, processes

IMPORTED = ("sys.meta_path",)  # an imported package may add a finder of its modules, as Ansible does

_STARTED = pytest.StashKey[left_over.Started]()
_AT_MODULE = pytest.StashKey["_AtModule"]()
_TEARDOWN = pytest.StashKey[bool]()


@dataclass
class _AtModule:
    """The process before the first fixture of a module."""

    module: pytest.Module | None
    settings: hygiene.Settings
    started: left_over.Started
    failed: int
    """Tests that had failed."""
    running: pytest.Item | None = None


def pytest_configure() -> None:
    """Let uvloop open what it keeps for the whole process: libuv's pipe for signals."""
    with suppress(ImportError):  # it is optional
        importlib.import_module("uvloop").new_event_loop().close()


# First and as a wrapper, so that what pytest changes for a phase is not seen: capturing and caplog.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module whose import changes the process for all tests of the run, before the first of them."""
    before, started = hygiene.settings(), left_over.started()
    report = yield
    found = [*hygiene.restored(before, kept=IMPORTED), *left_over.left_over(started)]
    if found and report.passed:
        report.outcome = "failed"
        report.longrepr = _complaint(f"the import of {collector.nodeid}", found)
    return report


@pytest.fixture(autouse=True)
def _as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if it leaves other settings; note which threads, children and descriptors exist before it."""
    before = hygiene.settings()
    left_over.own(*processes.live())
    request.node.stash[_STARTED] = left_over.started()
    yield
    if _TEARDOWN in request.node.stash:  # else Ctrl-C ended the run: pytest's capturing has ended before the fixtures
        _check(request.node, "the test", hygiene.restored(before))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Give a fixture of several tests what its set-up starts and opens."""
    if fixturedef.scope == "function":
        return (yield)
    before, live = left_over.started(), set(processes.live())
    result = yield
    of_run = fixturedef.scope in ("session", "package")
    left_over.own(*(set(processes.live()) - live), of_run=of_run)
    left_over.own_listeners(before, of_run=of_run)
    at_module = request.config.stash[_AT_MODULE]
    if at_module.running is not None and (started := at_module.running.stash.get(_STARTED, None)) is not None:
        at_module.running.stash[_STARTED] = started.including(before)
    if of_run:
        at_module.started = at_module.started.including(before)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note the settings, threads, children and descriptors before the first fixture of a module."""
    module = item.getparent(pytest.Module)
    if _AT_MODULE not in item.config.stash or item.config.stash[_AT_MODULE].module is not module:
        failed = item.session.testsfailed
        item.config.stash[_AT_MODULE] = _AtModule(module, hygiene.settings(), left_over.started(), failed)
    item.config.stash[_AT_MODULE].running = item
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Check what the test left; after the last fixture of a module, compare with the start of the module."""
    item.stash[_TEARDOWN] = True
    yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # objects of fixtures close their files when they are dropped
    left_over.end_all()
    started = item.stash.get(_STARTED, None)
    failed = hasattr(sys, "last_value")  # pytest sets it when a test fails
    found = [] if started is None else list(left_over.left_over(started, failed=failed))
    if failed:
        found = []
    at_module = item.config.stash[_AT_MODULE]
    if nextitem is None or nextitem.getparent(pytest.Module) is not at_module.module:
        _check_module(item, at_module)
    _check(item, "the test", found)


def _check_module(last: pytest.Item, at_module: _AtModule) -> None:
    found = list(hygiene.restored(at_module.settings))
    failed = last.session.testsfailed != at_module.failed
    left = list(left_over.left_over(at_module.started, of_module=True, failed=failed))
    found += [] if failed else left
    _check(last, last.nodeid.partition("::")[0], found)


def _check(item: pytest.Item, what: str, found: Iterable[str]) -> None:
    sentences = list(found)  # sets each setting back
    assert not sentences, _complaint(what, sentences)


def _complaint(what: str, sentences: Iterable[str]) -> str:
    return f"{what} does not leave the process as it found it:\n" + "\n".join(sentences)
