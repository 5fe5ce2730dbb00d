"""The limit of open files is raised as far as it may be, and never lowered."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from drupelet.host.descriptors import NO_LIMIT, as_number, hard_limit, raise_limit

FILES = resource.RLIMIT_NOFILE


@pytest.fixture(autouse=True)
def _limit_as_before() -> Iterator[None]:
    before = resource.getrlimit(FILES)
    yield
    resource.setrlimit(FILES, before)


def test_the_soft_limit_is_raised_and_never_lowered() -> None:
    hard = resource.getrlimit(FILES)[1]
    resource.setrlimit(FILES, (300, hard))
    assert raise_limit(400) == 400
    assert resource.getrlimit(FILES) == (400, hard)
    assert raise_limit(350) == 400
    assert resource.getrlimit(FILES) == (400, hard)


def test_the_hard_limit_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    assert raise_limit(4096) == 512
    assert told == [(512, 512)]
    assert hard_limit() == 512


def test_no_limit_is_more_than_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert raise_limit(4096) == hard_limit() == as_number(resource.RLIM_INFINITY) == NO_LIMIT
