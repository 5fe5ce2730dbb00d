"""Brokers that several modules hold against each other: started once, and only where a test asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.secured import Secured, secured_brokers


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_brokers(tmp_path_factory.mktemp("secured")) as brokers:
        yield brokers
