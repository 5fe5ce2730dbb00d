"""The product's Python files, parsed once for all checks of this folder and dropped after the last one."""

from __future__ import annotations

import pytest

from tests.support.product_sources import Source, sources


@pytest.fixture(scope="package")
def product() -> list[Source]:
    return sources()
