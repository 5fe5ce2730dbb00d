"""What a function says of its thread is checked, here and in every broker that a test starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edge_broker.testing.site import Site
from edge_broker.thread_checks import LOOP, place, running_in, runs_in


@runs_in("files")
def in_files() -> str | None:
    return place()


@runs_in()
def in_any_worker() -> str | None:
    return place()


@runs_in("files")
def steps_in_files() -> Iterator[str | None]:
    yield place()
    yield place()


def test_where_nothing_else_runs_everything_may_be_called() -> None:
    assert (place(), in_files(), in_any_worker()) == (None, None, None)


def test_a_worker_calls_what_is_its_own() -> None:
    with running_in("files"):
        assert (in_files(), in_any_worker()) == ("files", "files")
    with running_in("disk"), pytest.raises(AssertionError, match="in_files runs in files, and was called in disk"):
        in_files()
    assert place() is None


def test_the_loop_calls_nothing_that_waits() -> None:
    with (
        running_in(LOOP),
        pytest.raises(AssertionError, match="in_any_worker runs in a worker, and was called in loop"),
    ):
        in_any_worker()


def test_a_generator_is_made_anywhere_and_looks_at_each_step() -> None:
    with running_in(LOOP):
        steps = steps_in_files()
    with running_in("files"):
        assert next(steps) == "files"
    with running_in(LOOP), pytest.raises(AssertionError, match="steps_in_files runs in files, and was called in loop"):
        next(steps)


def test_a_site_says_where_it_is() -> None:
    site, seen = Site(), list[str | None]()
    site.loop.call_soon(lambda: seen.append(place()))
    site.disk_worker.submit(lambda: seen.append(place()), lambda result, error: seen.append(place()))
    site.run_until_idle()
    assert seen == [LOOP, "disk", LOOP]
