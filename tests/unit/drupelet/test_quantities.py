"""Counts for people have the noun and verb of one, and of several."""

from __future__ import annotations

import pytest

from drupelet.quantities import is_or_are, quantity_text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "partition", "0 partitions are"),
        (1, "partition", "1 partition is"),
        (2, "partition", "2 partitions are"),
        (1, "loss", "1 loss is"),
        (2, "loss", "2 losses are"),
        (1, "damaged place", "1 damaged place is"),
    ],
)
def test_one_has_no_plural(count: int, noun: str, text: str) -> None:
    assert f"{quantity_text(count, noun)} {is_or_are(count)}" == text
