"""HOST:PORT, as every part reads it."""

from __future__ import annotations

import pytest

from drupelet.addresses import host_and_port


@pytest.mark.parametrize(
    ("text", "parts"),
    [("h:1", ("h", 1)), ("[::1]:9092", ("::1", 9092)), ("::1:0", ("::1", 0)), ("h:65535", ("h", 65535))],
)
def test_an_address(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "h", "h:", ":1", "[]:1", "h:-1", "h:x", "h:65536", "h:1.0", "h:١", "[::1", "[::1:1", "::1]:1", "[[::1]]:1"],
)
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        host_and_port(text)
